"""Open, join, leave, stop: the ordinary life of an embedded server."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import psycopg
import pytest

from onceq.engine.embedded import embedded_status, open_embedded, stop_embedded
from onceq.errors import EmbeddedError
from tests.engine.embedded_children import OPEN, Child

SETTINGS = {
    "autovacuum": "on",
    "client_connection_check_interval": "5s",
    "data_checksums": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "max_connections": "200",
    "server_encoding": "UTF8",
    "shared_buffers": "128MB",
    "synchronous_commit": "on",
}


def ask(conninfo: str, query: str) -> str:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return str(row[0])


def test_the_first_open_makes_a_durable_private_server(fresh: Path) -> None:
    with open_embedded(fresh) as server:
        for name, value in SETTINGS.items():
            assert ask(server.conninfo, f"show {name}") == value, name
        assert ask(server.conninfo, "select current_user || ' ' || current_database()") == (
            "onceq onceq"
        )
        assert ask(server.conninfo, "select lower('ÄÖ') || ('a' > 'B')") == "äötrue"
        assert fresh.stat().st_mode & 0o777 == 0o700
        socket = embedded_status(fresh).socket_directory
        assert socket is not None
        assert socket.stat().st_mode & 0o777 == 0o700
        assert socket.parent.stat().st_mode & 0o777 == 0o700


def test_the_second_user_joins_and_the_last_one_stops_the_server(directory: Path) -> None:
    first = open_embedded(directory)
    with Child(OPEN, directory) as other:
        assert int(other.line()) == first.postmaster_pid()
        first.close()
        assert embedded_status(directory).running
        other.go_on()
        assert other.line() == "closed"
    assert not embedded_status(directory).running


def test_two_users_in_one_process_count_as_two(directory: Path) -> None:
    with open_embedded(directory) as first:
        with open_embedded(directory) as second:
            assert second.postmaster_pid() == first.postmaster_pid()
        assert ask(first.conninfo, "select 1") == "1"
        assert not first.ensure_running()


def test_closing_twice_is_closing_once_and_ends_the_use(directory: Path) -> None:
    server = open_embedded(directory)
    server.close()
    server.close()
    with pytest.raises(EmbeddedError, match="was closed"):
        server.ensure_running()
    with pytest.raises(EmbeddedError, match="No PostgreSQL runs"):
        server.postmaster_pid()


def test_data_outlives_a_stop(directory: Path) -> None:
    with open_embedded(directory) as server, psycopg.connect(server.conninfo) as connection:
        connection.execute("create table outlived as select 42 as answer")
    with open_embedded(directory) as server:
        assert ask(server.conninfo, "select answer from outlived") == "42"


def test_settings_hold_for_the_server_that_the_call_starts(directory: Path) -> None:
    with open_embedded(directory, settings={"work_mem": "7MB"}) as server:
        assert ask(server.conninfo, "show work_mem") == "7MB"
        with open_embedded(directory, settings={"work_mem": "9MB"}) as other:
            assert ask(other.conninfo, "show work_mem") == "7MB"


@pytest.mark.parametrize(
    "name",
    [
        "with blanks  and 'quotes' \"\\",
        "ünïcødé-数据",
        b"not-utf8-\xff",
        "percent %d $HOME ;,&#",
        "-dash",
        "l" * 100 + "/" + "o" * 100 + "/" + "ng" * 50,
    ],
)
def test_paths_may_look_like_anything(directory: Path, name: str | bytes) -> None:
    odd = directory.parent / os.fsdecode(name)
    odd.parent.mkdir(parents=True, exist_ok=True)
    directory.rename(odd)
    with open_embedded(odd) as server:
        assert ask(server.conninfo, "select 1") == "1"
        assert server.directory == odd
    assert not embedded_status(odd).running
    odd.rename(directory)


def test_a_prefix_of_another_path_is_never_taken_for_it(directory: Path) -> None:
    longer = directory.with_name(directory.name + "2")
    shutil.copytree(directory, longer)
    with open_embedded(directory) as one, open_embedded(longer) as two:
        assert one.postmaster_pid() != two.postmaster_pid()
        assert stop_embedded(directory, force=True)
        assert not two.ensure_running()
        assert ask(two.conninfo, "show data_directory") == str(longer / "cluster")
        assert one.ensure_running()


def test_a_link_leads_to_the_same_server(directory: Path) -> None:
    link = directory.with_name("link")
    link.symlink_to(directory)
    with open_embedded(directory) as one, open_embedded(link) as two:
        assert one.postmaster_pid() == two.postmaster_pid()


def test_a_copy_of_a_directory_in_use_is_another_server(directory: Path) -> None:
    copy = directory.with_name("copy")
    with open_embedded(directory) as original:
        shutil.copytree(directory, copy)
        assert not embedded_status(copy).running
        with open_embedded(copy) as copied:
            assert copied.postmaster_pid() != original.postmaster_pid()
            assert ask(copied.conninfo, "show data_directory") == str(copy / "cluster")


def test_a_directory_may_be_renamed_while_its_server_is_down(directory: Path) -> None:
    moved = directory.with_name("moved")
    directory.rename(moved)
    with open_embedded(moved) as server:
        assert ask(server.conninfo, "show data_directory") == str(moved / "cluster")
    moved.rename(directory)


def test_the_status_tells_and_changes_nothing(directory: Path) -> None:
    missing = embedded_status(directory / ".." / "missing")
    assert (missing.running, missing.version, missing.pid) == (False, None, None)
    assert not missing.directory.exists()
    with open_embedded(directory) as server:
        status = embedded_status(directory)
        assert status.running
        assert status.pid == server.postmaster_pid()
        assert status.version == 18
        assert status.users in {(os.getpid(),), None}
    status = embedded_status(directory)
    assert (status.running, status.pid, status.socket_directory) == (False, None, None)


def test_stopping_needs_that_nobody_uses_it_or_force(directory: Path) -> None:
    assert not stop_embedded(directory.with_name("missing"))
    assert not stop_embedded(directory)
    with Child(OPEN, directory) as user:
        user.line()
        with pytest.raises(EmbeddedError, match=f"in use.*{user.pid}"):
            stop_embedded(directory)
        assert stop_embedded(directory, force=True)
    assert not stop_embedded(directory)


def test_a_forced_stop_ends_a_server_that_hangs(directory: Path) -> None:
    with open_embedded(directory) as server:
        os.kill(server.postmaster_pid(), signal.SIGSTOP)  # it cannot answer a clean stop
        assert stop_embedded(directory, timeout_s=2, force=True)
        assert server.ensure_running()


def test_a_database_that_was_never_made_is_made_by_the_next_open(directory: Path) -> None:
    with (
        open_embedded(directory) as server,
        psycopg.connect(server.conninfo, dbname="postgres", autocommit=True) as connection,
    ):
        connection.execute("drop database onceq")
    with open_embedded(directory) as server:
        assert ask(server.conninfo, "select current_database()") == "onceq"


def test_a_server_without_a_free_slot_is_alive(directory: Path) -> None:
    settings = {"max_connections": "4", "superuser_reserved_connections": "0"}
    with open_embedded(directory, settings=settings) as server:
        held = [psycopg.connect(server.conninfo) for _ in range(4)]
        assert not server.ensure_running()
        for connection in held:
            connection.close()


def test_variables_of_libpq_do_not_lead_elsewhere(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGHOSTADDR": "192.0.2.1", "PGPORT": "1", "PGDATA": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    with open_embedded(directory) as server:
        assert ask(server.conninfo, "select 1") == "1"
