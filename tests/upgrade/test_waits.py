"""What an upgrade waits for, and that it is all or nothing (ADR 32)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from onceq import telemetry
from onceq.cli.exits import VIOLATION
from onceq.engine.faultpoints import VARIABLE
from onceq.engine.schema import migrate, upgrading
from onceq.engine.schema.holders import Holder
from onceq.engine.sessions import levels
from onceq.errors import DeadlineExceeded
from tests.cli.parts import run_here
from tests.events import Events, emits
from tests.parts import Background, plain
from tests.upgrade.looks import shape, stamp

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import psycopg


@pytest.fixture
def busy(conninfo: str, released: str) -> Generator[psycopg.Connection[object]]:
    """A session with an open transaction that has read the largest table."""
    with plain(make_conninfo(conninfo, application_name="report")) as connection:
        connection.execute(f"begin; select from {released}.element".encode())
        yield connection


def test_a_table_that_stays_locked_ends_an_upgrade_in_time(
    conninfo: str, released: str, busy: psycopg.Connection[object]
) -> None:
    before = stamp(conninfo, released)
    with plain(conninfo) as connection:
        holder = rf"pid {busy.info.backend_pid} \(\w+, report, .*idle in transaction for \d+ s\)"
        with pytest.raises(DeadlineExceeded, match=rf"was not upgraded.* held by {holder}; end"):
            migrate.apply(connection, released, wait_s=0)
    assert stamp(conninfo, released) == before
    answer = run_here("init", "--url", conninfo, "--repository", released, "--timeout", "0")
    assert answer.code == VIOLATION
    assert "report" in answer.err


@emits(telemetry.UpgradeWaits)
def test_it_is_tried_again_until_the_lock_is_free(
    conninfo: str,
    released: str,
    busy: psycopg.Connection[object],
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(event: telemetry.UpgradeWaits) -> None:
        telemetry.tell(migrate.log, event)
        assert f"pid {busy.info.backend_pid}" in event.holders
        busy.execute("rollback")

    monkeypatch.setattr(migrate, "PAUSE_S", 0.01)
    with plain(conninfo) as connection:
        assert migrate.apply(connection, released, told=told)
    assert stamp(conninfo, released) == upgrading.made()
    assert [one["event"] for one in events.all].count("upgrade_waits") == 1


def test_a_repository_that_cannot_even_be_looked_at_ends_an_upgrade_in_time(
    conninfo: str, released: str
) -> None:
    with plain(conninfo) as other, plain(conninfo) as connection:
        other.execute(f"begin; lock table {released}.repository".encode())
        call = Background(lambda: migrate.apply(connection, released, wait_s=0))
        with pytest.raises(DeadlineExceeded, match=f"held by pid {other.info.backend_pid} "):
            call.result()


def test_another_one_who_upgrades_is_waited_for(
    conninfo: str, released: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "OTHERS_MS", 50)
    with plain(conninfo) as other, plain(conninfo) as connection:
        other.execute("select pg_advisory_lock(hashtext('onceq.migrate'))")
        with pytest.raises(DeadlineExceeded, match=f"held by pid {other.info.backend_pid} "):
            migrate.apply(connection, released, wait_s=0)


def test_a_prepared_transaction_that_holds_a_lock_is_named() -> None:
    nobody = Holder(pid=None, role=None, application=None, state=None, host=None, open_s=None)
    assert "pg_prepared_xacts" in str(nobody)


def test_one_who_was_faster_is_noticed(
    conninfo: str, released: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SQL refuses a repository that has changed since it was made for it."""
    body = upgrading.body

    def late(repository: str, stamp: levels.Stamp | None) -> str:
        text = body(repository, stamp)
        monkeypatch.setattr(upgrading, "body", body)
        migrate.apply_with(conninfo, repository)
        return text

    monkeypatch.setattr(upgrading, "body", late)
    assert not migrate.apply_with(conninfo, released)
    monkeypatch.setattr(upgrading, "body", late)
    missing = f"{released}_fresh"
    assert not migrate.apply_with(conninfo, missing)
    with plain(conninfo) as connection:
        connection.execute(f"drop schema {missing} cascade".encode())


def test_one_that_is_killed_in_the_middle_has_done_nothing_and_is_run_again(
    conninfo: str, released: str, tmp_path: Path
) -> None:
    before = (stamp(conninfo, released), shape(conninfo, released))
    program = (
        "import sys; from onceq.engine.schema.migrate import apply_with; apply_with(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, conninfo, released]
    killed = subprocess.run(
        command,
        env={**os.environ, VARIABLE: f"migrate.made 1 kill {tmp_path}"},
        check=False,
        stderr=subprocess.DEVNULL,
    )
    assert killed.returncode == -9
    assert (stamp(conninfo, released), shape(conninfo, released)) == before
    assert migrate.apply_with(conninfo, released)
    assert stamp(conninfo, released) == upgrading.made()
