"""Kill -9 of the user, of the postmaster, in the middle of anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from onceq.engine.embedded import embedded_status, open_embedded, stop_embedded
from onceq.engine.embedded.cluster import is_running
from onceq.engine.embedded.directory import Layout
from onceq.engine.embedded.launch import identity
from onceq.engine.embedded.process import Process, read_identity
from onceq.errors import EmbeddedError, EmbeddedStartFailed
from tests.engine.embedded_children import OPEN, Child, wait_until

# Opens argv[1], forks a child that lives until this pipe closes, and goes on.
FORK = """
import os, sys
from onceq.engine.embedded import open_embedded
server = open_embedded(sys.argv[1], timeout_s=60)
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)
    server.close()
    os._exit(0)
os.close(reading)
print(server.postmaster_pid(), flush=True)
sys.stdin.readline()
server.close()
print("closed", flush=True)
sys.stdin.readline()
"""

FORK_AND_STAY = """
import os, sys
from onceq.engine.embedded import open_embedded
from onceq.errors import EmbeddedError
server = open_embedded(sys.argv[1], timeout_s=60)
if os.fork() == 0:
    try:
        server.ensure_running()
    except EmbeddedError:
        print("refused", flush=True)
    server.close()
sys.stdin.read()
"""

START = """
import sys
from onceq.engine.embedded import open_embedded
print("go", flush=True)
open_embedded(sys.argv[1], timeout_s=60)
"""


def kill_postmaster(directory: Path) -> int:
    postmaster = read_identity(Layout(directory).run_lock)
    assert postmaster is not None
    assert postmaster.alive()
    os.kill(postmaster.pid, signal.SIGKILL)
    return postmaster.pid


def test_a_killed_user_leaves_the_server_to_the_next(directory: Path) -> None:
    with Child(OPEN, directory) as user:
        pid = int(user.line())
    assert embedded_status(directory).running
    assert embedded_status(directory).users in {(), None}
    with open_embedded(directory) as server:
        assert server.postmaster_pid() == pid
    assert not embedded_status(directory).running


def test_a_killed_server_is_restarted_once_and_recovers(directory: Path) -> None:
    with open_embedded(directory) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table if not exists kept as select 42 as answer")
        pid = kill_postmaster(directory)
        assert server.ensure_running()
        assert not server.ensure_running()
        assert server.postmaster_pid() != pid
        with psycopg.connect(server.conninfo) as connection:
            assert connection.execute("select answer from kept").fetchone() == (42,)


def test_of_many_who_reconnect_one_restarts_it(directory: Path) -> None:
    servers = [open_embedded(directory) for _ in range(4)]
    kill_postmaster(directory)
    started: list[bool] = []
    threads = [
        threading.Thread(target=lambda s=s: started.append(s.ensure_running())) for s in servers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(started) == [False, False, False, True]
    assert len({server.postmaster_pid() for server in servers}) == 1
    for server in servers:
        server.close()
    assert not embedded_status(directory).running


def test_the_remains_of_a_killed_server_end_before_the_next_starts(directory: Path) -> None:
    """A backend that computes does not notice by itself that its postmaster is gone."""
    with open_embedded(directory) as server:
        connection = psycopg.connect(server.conninfo, autocommit=True)
        backend = connection.info.backend_pid
        process = Process(backend, identity(backend))
        busy = threading.Thread(target=_compute, args=(connection,))
        busy.start()
        with psycopg.connect(server.conninfo, autocommit=True) as other:
            query = "select state from pg_stat_activity where pid = %s"
            wait_until(lambda: other.execute(query, [backend]).fetchone() == ("active",))
        kill_postmaster(directory)
        assert is_running(Layout(directory))  # by the backend alone
        assert server.ensure_running()
        assert not process.alive()
        busy.join(60)
        connection.close()


def _compute(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("do $$ begin loop null; end loop; end $$")


def test_a_pid_used_again_by_another_process_does_not_block_the_start(directory: Path) -> None:
    with open_embedded(directory) as server:
        kill_postmaster(directory)
        wait_until(lambda: not is_running(Layout(directory)))
        pid_file = directory / "cluster" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        with subprocess.Popen(["sleep", "60"]) as sleeper:
            pid_file.write_text("\n".join([str(sleeper.pid), *lines[1:]]) + "\n")
            assert server.ensure_running()
            assert sleeper.poll() is None
            sleeper.kill()


def test_a_server_started_by_hand_is_left_alone(directory: Path) -> None:
    layout = Layout(directory)
    with open_embedded(directory) as server:
        lines = layout.pid_file.read_text()
        kill_postmaster(directory)
        wait_until(lambda: not is_running(layout))
        with subprocess.Popen(["sleep", "60"], cwd=layout.cluster) as by_hand:
            layout.pid_file.write_text(
                "\n".join([str(by_hand.pid), *lines.splitlines()[1:]]) + "\n"
            )
            with pytest.raises(EmbeddedStartFailed, match=f"pid {by_hand.pid}.*pg_ctl"):
                server.ensure_running()
            by_hand.kill()
        assert server.ensure_running()


def test_no_signal_goes_to_a_process_with_a_pid_used_again(directory: Path) -> None:
    layout = Layout(directory)
    open_embedded(directory).close()
    text = layout.run_lock.read_text().rstrip("\0 ")
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        layout.run_lock.write_text(text.replace(text.split()[0], str(sleeper.pid), 1))
        found = read_identity(layout.run_lock)
        assert found is not None
        assert found.pid == sleeper.pid
        assert not found.alive()
        found.send(signal.SIGKILL)
        assert sleeper.poll() is None
        sleeper.kill()


def test_the_server_has_a_session_of_its_own(directory: Path) -> None:
    """So that Ctrl-C, sent to the group of the terminal, does not reach it."""
    with open_embedded(directory) as server:
        pid = server.postmaster_pid()
        assert os.getsid(pid) == pid
        assert os.getpgid(pid) not in {os.getpgid(0), os.getpid()}


def test_a_forked_child_does_not_keep_the_use(directory: Path) -> None:
    with Child(FORK, directory) as user:
        user.line()
        user.go_on()
        assert user.line() == "closed"
        assert not embedded_status(directory).running


def test_a_forked_child_of_a_killed_user_does_not_count_as_one(directory: Path) -> None:
    with Child(FORK_AND_STAY, directory) as user:
        assert user.line() == "refused"  # the child speaks, and lives until its input ends
        user.kill()
        open_embedded(directory).close()
        assert not embedded_status(directory).running


def test_a_started_program_does_not_keep_the_use(directory: Path) -> None:
    server = open_embedded(directory)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as program:
        server.close()
        assert not embedded_status(directory).running
        program.kill()


def test_the_run_lock_lives_exactly_as_long_as_the_server(directory: Path) -> None:
    layout = Layout(directory)
    with Child(OPEN, directory) as user:
        user.line()
    assert is_running(layout)
    kill_postmaster(directory)
    wait_until(lambda: not is_running(layout))


def test_a_cluster_half_made_is_cleaned_away_and_made_again(fresh: Path) -> None:
    with Child(START, fresh) as maker:
        maker.line()
        wait_until(lambda: any(fresh.glob("cluster.new.*/base")))
    assert not (fresh / "cluster").exists()
    with (
        open_embedded(fresh, timeout_s=200) as server,
        psycopg.connect(server.conninfo) as connection,
    ):
        assert connection.execute("select 1").fetchone() == (1,)
    assert not list(fresh.glob("cluster.new.*"))


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.08, 0.12, 0.2])
def test_a_start_cut_off_at_any_time_is_taken_over(directory: Path, after_s: float) -> None:
    with Child(START, directory) as starter:
        starter.line()
        time.sleep(after_s)
    with open_embedded(directory, timeout_s=60) as server:
        assert embedded_status(directory).pid == server.postmaster_pid()
    assert not embedded_status(directory).running


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03])
def test_a_stop_cut_off_at_any_time_is_no_harm(directory: Path, after_s: float) -> None:
    with Child(OPEN, directory) as user:
        user.line()
        user.go_on()
        time.sleep(after_s)
    with open_embedded(directory, timeout_s=60) as server:
        assert not server.ensure_running()


def test_a_server_that_does_not_answer_is_reported_in_time(directory: Path) -> None:
    with open_embedded(directory), open_embedded(directory, timeout_s=5) as server:
        pid = server.postmaster_pid()
        Path(embedded_status(directory).socket_directory or "", ".s.PGSQL.5432").unlink()
        with pytest.raises(EmbeddedError, match=f"pid {pid}.*does not answer"):
            server.ensure_running()
        assert stop_embedded(directory, force=True)


def test_recovery_may_take_its_time(directory: Path) -> None:
    """The wait is for as long as the postmaster lives and recovers, up to the time-out."""
    with open_embedded(directory) as server:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute("drop table if exists many")
            connection.execute("create table many as select generate_series(1, 300000) as n")
        kill_postmaster(directory)
        code = "import sys; from onceq.engine.embedded import open_embedded as o; o(sys.argv[1])"
        done = subprocess.run(
            [sys.executable, "-c", code, str(directory)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=120,
            check=False,
        )
        assert done.returncode == 0
        assert not server.ensure_running()
        with psycopg.connect(server.conninfo) as connection:
            assert connection.execute("select count(*) from many").fetchone() == (300000,)
