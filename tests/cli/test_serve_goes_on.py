"""`onceq serve` goes on: a handler hangs, a child or PostgreSQL is gone at its start."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest

import onceq
from onceq import telemetry
from proof.harness.proxy import Cut, Proxy, Side
from tests.cli.parts import Cli
from tests.cli.serve_hung_app import LONG, QUICK
from tests.cli.test_serve import service
from tests.events import Events, emits
from tests.parts import LIMIT_S, wait_until

APP = "tests.cli.serve_hung_app"


@pytest.fixture(autouse=True)
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what the server's `on_error` is told."""
    monkeypatch.setenv("ONCEQ_TEST_TOLD", str(tmp_path / "told"))
    return tmp_path / "told"


def wait_told(told: Path, lines: list[str]) -> None:
    """Waits until `on_error` was told this, and nothing else."""
    wait_until(lambda: told.exists() and len(told.read_text("utf-8").splitlines()) >= len(lines))
    assert told.read_text("utf-8").splitlines() == lines


@emits(telemetry.Aborted, telemetry.TookOver)
def test_a_death_is_told_to_on_error_in_the_next_process(
    cli: Cli, qm: onceq.QueueManager, told: Path, events: Events
) -> None:
    """The supervisor knows of it and has no `on_error`; the log has it once."""
    qm.declare(QUICK)
    with service(cli, f"{APP}:server") as running, qm.clerk("till", QUICK) as clerk:
        clerk.send("dies", "die")
        assert clerk.receive(timeout_s=LIMIT_S).code == "server_died"
        wait_told(
            told,
            [f"dies {n} server_died charge {n == 2} HandlerFailed" for n in (1, 2)],
        )
        assert running.stop() == 0
    events.read(running.log)
    aborted = [(one["rid"], one["attempt"], one["fate"]) for one in events.of(telemetry.Aborted)]
    assert aborted == [("dies", 1, "returned"), ("dies", 2, "failed")]
    assert sum(one["charged"] for one in events.of(telemetry.TookOver)) == 2


@emits(telemetry.HandlerHangs, telemetry.Aborted)
@pytest.mark.parametrize("where", ["python", "sql", "c"])
def test_a_handler_that_hangs_is_charged_and_nothing_beside_it(
    cli: Cli, qm: onceq.QueueManager, told: Path, events: Events, where: str
) -> None:
    """And told, in the next process: to the log once, and to `on_error`."""
    qm.declare(QUICK)
    qm.declare(LONG)
    mine = told.with_name("long")
    with (
        service(cli, f"{APP}:server") as running,
        qm.clerk("long", LONG) as long,
        qm.clerk("till", QUICK) as clerk,
    ):
        long.send("innocent", str(mine))
        wait_until(Path(f"{mine}.begun").exists)
        clerk.send("hangs", where)
        reply = clerk.receive(timeout_s=2 * LIMIT_S)
        assert (reply.outcome, reply.attempts, reply.code) == (
            onceq.RequestOutcome.FAILED,
            2,
            "hung",
        )
        assert reply.text is not None
        assert "the limit is 1 s" in reply.text
        Path(f"{mine}.goes_on").touch()
        assert long.receive(timeout_s=LIMIT_S).value == "well"
        assert {one.aborts for one in qm.lookup("innocent")} == {0}
        clerk.send("next", "well")
        assert clerk.receive(timeout_s=LIMIT_S).value.startswith("well")
        wait_told(told, [f"hangs {n} hung charge {n == 2} HandlerFailed" for n in (1, 2)])
        assert running.stop() == 0
        assert running.wait_for("stopped")["restarts"] == 2
    assert [one["event"] for one in running.seen].count("hung") == 2
    events.read(running.log)
    hangs = [
        (one["queue"], one["rid"], one["attempt"], one["charge"])
        for one in events.of(telemetry.HandlerHangs)
    ]
    assert hangs == [("quick", "hangs", 1, "charge"), ("quick", "hangs", 2, "charge")]
    aborted = [(one["rid"], one["attempt"], one["fate"]) for one in events.of(telemetry.Aborted)]
    assert aborted == [("hangs", 1, "returned"), ("hangs", 2, "failed")]


def test_of_a_batch_the_one_that_hangs_is_found(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(QUICK)
    with qm.clerk("till", QUICK, window=5) as clerk:
        clerk.send_many([("1", "well"), ("2", "python"), ("3", "well")])
        with service(cli, f"{APP}:batches"):
            found = {}
            for _ in range(3):
                reply = clerk.receive(timeout_s=3 * LIMIT_S)
                found[reply.rid] = (reply.outcome, reply.code)
    done = (onceq.RequestOutcome.DONE, None)
    assert found == {"1": done, "2": (onceq.RequestOutcome.FAILED, "hung"), "3": done}


def test_a_child_that_is_killed_while_it_imports_is_started_again(
    cli: Cli, qm: onceq.QueueManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEQ_TEST_DIES", str(tmp_path / "died"))
    qm.declare(QUICK)
    with service(cli, f"{APP}:server") as running, qm.clerk("till", QUICK) as clerk:
        assert [one["event"] for one in running.seen].count("died") == 1
        clerk.send("1", "well")
        assert clerk.receive(timeout_s=LIMIT_S).value.startswith("well")
        assert running.stop() == 0


@emits(telemetry.DatabaseAway)
def test_postgresql_that_goes_while_it_starts_is_waited_for(
    cli: Cli, qm: onceq.QueueManager, conninfo: str, events: Events
) -> None:
    qm.declare(QUICK)
    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as proxy,
    ):
        proxy.plan(Cut(side=Side.BEFORE, pattern=re.compile(r"to_jsonb\(|\.repository")))
        with service(Cli(proxy.conninfo, cli.repository), f"{APP}:server") as running:
            assert len(proxy.made) == 1
            assert running.stop() == 0
    events.read(running.log)


@emits(telemetry.ChildNotLoaded)
def test_a_module_that_is_broken_while_it_serves_ends_nothing(
    cli: Cli, qm: onceq.QueueManager, tmp_path: Path, events: Events
) -> None:
    """As in the middle of a deployment: what cannot be loaded is tried again."""
    qm.declare(QUICK)
    module = tmp_path / "app.py"
    module.write_text("from tests.cli.serve_hung_app import server\n", "utf-8")
    with service(cli, "app:server", cwd=tmp_path) as running:
        module.write_text("", "utf-8")
        (ready,) = [one for one in running.seen if one["event"] == "ready"]
        os.kill(ready["pid"], signal.SIGKILL)
        wait_until(lambda: any('"child_not_loaded"' in line for line in running.log))
        module.write_text("from tests.cli.serve_hung_app import server\n", "utf-8")
        running.wait_for("ready")
        assert running.stop() == 0
    events.read(running.log)
    assert "has no 'server'" in events.of(telemetry.ChildNotLoaded)[0]["error"]
