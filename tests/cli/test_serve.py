"""`onceq serve`: real processes, a poison, kill -9 of the parent, stops of all kinds."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import telemetry
from onceq.server.seats import backoff_s
from tests.cli.parts import ROOT, run_here
from tests.cli.serve_app import ORDERS
from tests.events import emits
from tests.parts import LIMIT_S, plain, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from tests.cli.parts import Cli
    from tests.events import Events

APP = "tests.cli.serve_app"


class Service:
    """`onceq serve` in a process of its own, the events that it prints, the lines of its log."""

    def __init__(self, cli: Cli, words: Sequence[str], cwd: Path) -> None:
        self.process = cli.start("serve", *words, "--json", cwd=cwd)
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self.log: list[str] = []
        self._readers = [threading.Thread(target=one) for one in (self._read, self._read_log)]
        for one in self._readers:
            one.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.put(msgspec.json.decode(line))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Returns the next event of a kind."""
        end = time.monotonic() + 2 * LIMIT_S
        while True:
            event = self.events.get(timeout=max(0.0, end - time.monotonic()))
            self.seen.append(event)
            if event["event"] == kind:
                return event

    def end(self) -> None:
        """Kills it, if it still lives, and closes what belongs to it."""
        self.process.kill()
        self.process.wait(LIMIT_S)
        for one in self._readers:
            one.join(LIMIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stops it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@pytest.fixture
def ledger(cli: Cli, conninfo: str) -> Cli:
    """The command line on a repository with the table that counts executions."""
    with plain(conninfo) as connection:
        connection.execute(f"create table {cli.repository}.effects (rid text)".encode())
    return cli


@contextlib.contextmanager
def service(
    cli: Cli,
    spec: str = f"{APP}:server",
    processes: int = 1,
    *,
    log: str = "json",
    level: str = "info",
    cwd: Path = ROOT,
) -> Generator[Service]:
    """Runs a service; at the end nothing of it is left, and its log is whole."""
    words = (spec, "--processes", str(processes), "--log-format", log, "--log-level", level)
    running = Service(cli, words, cwd)
    try:
        for _ in range(processes):
            running.wait_for("ready")
        yield running
    finally:
        running.end()


def test_serves_with_every_process_and_stops(ledger: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    with service(ledger, processes=2) as running, qm.clerk("till", ORDERS, window=50) as clerk:
        clerk.send_many([(str(n), f"echo {n}") for n in range(50)])
        pids = {clerk.receive(timeout_s=LIMIT_S).value.split()[-1] for _ in range(50)}
        children = {str(one["pid"]) for one in running.seen if one["event"] == "ready"}
        assert pids <= children
        assert running.stop() == 0
        assert running.wait_for("stopped") == {
            "v": 1,
            "event": "stopped",
            "restarts": 0,
            "abandoned": 0,
        }
    assert scalar(ledger.url, f"select count(*) from {ledger.repository}.effects") == 50


@emits(telemetry.ChildDied, telemetry.TookOver)
def test_a_poison_does_not_stop_the_service(
    ledger: Cli, qm: onceq.QueueManager, events: Events
) -> None:
    qm.declare(ORDERS)
    with service(ledger) as running, qm.clerk("till", ORDERS, window=9) as clerk:
        clerk.send("poison", "poison")
        reply = clerk.receive(timeout_s=LIMIT_S)
        assert (reply.outcome, reply.attempts) == (onceq.RequestOutcome.FAILED, 2)
        clerk.send("good", "echo")
        assert clerk.receive(timeout_s=LIMIT_S).value.startswith("echo")
        assert running.stop(signal.SIGINT) == 0
        assert running.wait_for("stopped")["restarts"] == 2
    died = [one for one in running.seen if one["event"] == "died"]
    assert [one["code"] for one in died] == [-signal.SIGKILL] * 2
    events.read(running.log)
    told = [(one["child"], one["code"]) for one in events.of(telemetry.ChildDied)]
    assert told == [(one["pid"], one["code"]) for one in died]
    taken = events.of(telemetry.TookOver)
    assert {one["of_pid"] for one in taken} == {one["pid"] for one in died}
    assert [sum(one[name] for one in taken) for name in ("charged", "suspects")] == [2, 0]


def test_what_runs_at_the_deadline_is_given_back_uncharged(
    ledger: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    started = tmp_path / "started"
    with service(ledger) as running, qm.clerk("till", ORDERS) as clerk:
        clerk.send("long", f"sleep {started}")
        wait_until(lambda: started.exists() and bool(started.read_text()))
        assert running.stop() == 1
        assert running.wait_for("stopped")["abandoned"] == 1
        (state,) = [one for one in qm.lookup("long") if one.state != "finished"]
        assert (state.aborts, state.state in {"queued", "waiting"}) == (0, True)
    assert scalar(ledger.url, f"select count(*) from {ledger.repository}.effects") == 0
    wait_until(lambda: not _lives(int(started.read_text())))


@emits(telemetry.ChildKilled)
def test_a_second_signal_ends_it_at_once(
    ledger: Cli, qm: onceq.QueueManager, tmp_path: Path, events: Events
) -> None:
    qm.declare(ORDERS)
    started = tmp_path / "started"
    with service(ledger, f"{APP}:patient") as running, qm.clerk("till", ORDERS) as clerk:
        clerk.send("long", f"sleep {started}")
        wait_until(lambda: started.exists() and bool(started.read_text()))
        running.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(0.3)
        assert running.stop(signal.SIGINT) == 1
        running.wait_for("killed")
        (state,) = [one for one in qm.lookup("long") if one.state != "finished"]
        assert state.aborts == 0
    assert not _lives(int(started.read_text()))
    events.read(running.log)


def test_children_stop_when_their_parent_is_killed(
    ledger: Cli, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    started = tmp_path / "started"
    with service(ledger, processes=2) as running, qm.clerk("till", ORDERS) as clerk:
        pids = [one["pid"] for one in running.seen if one["event"] == "ready"]
        clerk.send("long", f"sleep {started}")
        wait_until(started.exists)
        running.process.kill()
        wait_until(lambda: not any(_lives(pid) for pid in pids))
        (state,) = [one for one in qm.lookup("long") if one.state != "finished"]
        assert (state.aborts, state.state in {"queued", "waiting"}) == (0, True)


def test_a_password_stands_in_no_list_of_processes(ledger: Cli, conninfo: str) -> None:
    secret = "s3cr3t-of-the-test"
    with_secret = type(ledger)(f"{conninfo} password={secret}", ledger.repository)
    with service(with_secret) as running:
        pids = [one["pid"] for one in running.seen if one["event"] == "ready"]
        for pid in (*pids, running.process.pid):
            listed = subprocess.run(
                ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=True
            )
            assert "onceq" in listed.stdout
            assert secret not in listed.stdout


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (f"{APP}:nothing", "has no 'nothing'"),
        (f"{APP}:NOT_A_SERVER", "not an onceq.Server"),
        ("no_such_module:server", "no module 'no_such_module'"),
        ("app", "MODULE:ATTRIBUTE"),
    ],
)
def test_what_cannot_be_served_is_said(cli: Cli, spec: str, said: str) -> None:
    answer = cli("serve", spec, code=2)
    assert said in answer.err
    assert "serving" not in answer.err


def test_it_says_once_that_it_serves(ledger: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    with service(ledger, processes=2, log="text") as running:
        assert running.stop() == 0
    assert sum(one.startswith("onceq: serving") for one in running.log) == 1


FAILING = {
    "raise": (
        "def build():\n    raise KeyError('of the user')\nbuild()\n",
        "KeyError: 'of the user'",
        2,
    ),
    "import": ("import not_there_at_all\n", "ModuleNotFoundError: No module named", 1),
    "syntax": ("def f(:\n", "SyntaxError: invalid syntax", 0),
    "ours": (
        "import onceq\nQ = onceq.Queue('q', bytes, bytes, abort_limit=-1)\n",
        "InvalidValue: abort_limit is",
        1,
    ),
}
"""A module that fails, what is said of it, and how many frames of it there are."""


@pytest.mark.parametrize("command", [("serve",), ("spark", "serve")], ids=" ".join)
@pytest.mark.parametrize("kind", FAILING)
def test_a_module_that_fails_shows_its_own_traceback_and_not_ours(
    cli: Cli, tmp_path: Path, kind: str, command: tuple[str, ...]
) -> None:
    text, said, frames = FAILING[kind]
    (tmp_path / "broken.py").write_text(text)
    process = cli.start(*command, "broken:server", cwd=tmp_path)
    _, told = process.communicate(timeout=2 * LIMIT_S)
    assert process.returncode == 2
    assert "module 'broken' could not be loaded:" in told
    assert said in told
    named = [line.strip() for line in told.splitlines() if line.strip().startswith("File ")]
    assert len(named) == max(1, frames)
    assert all(str(tmp_path / "broken.py") in one for one in named)
    assert "defect" not in told


def test_a_service_has_as_many_connections_as_the_docs_say(
    ledger: Cli, qm: onceq.QueueManager
) -> None:
    """One a session, one a process that waits, and one of the supervisor's: docs/operations.md."""
    qm.declare(ORDERS)
    counted = replace(ledger, url=f"{ledger.url} application_name={ledger.repository}")
    name = (ledger.repository,)
    query = "select count(*) from pg_stat_activity where application_name = %s"
    waits = f"{query} and query like 'listen %%'"
    with service(counted, f"{APP}:several", processes=2):
        wait_until(lambda: scalar(ledger.url, waits, *name) == 2)
        wait_until(lambda: scalar(ledger.url, query, *name) == 2 * 3 + 2 + 1)


def test_a_missing_schema_and_other_settings_end_it(
    cli: Cli, conninfo: str, qm: onceq.QueueManager
) -> None:
    spec = f"{APP}:server"
    nowhere = run_here("serve", spec, "--url", conninfo, "--repository", "not_there")
    assert (nowhere.code, "onceq init" in nowhere.err) == (3, True)
    qm.create(onceq.Queue("orders", str, str, abort_limit=9))
    assert "abort_limit is 9" in cli("serve", spec, code=1).err


def test_back_off_grows_up_to_a_bound() -> None:
    assert [backoff_s(n) for n in (0, 1, 2, 3)] == [0.0, 0.1, 0.2, 0.4]
    assert backoff_s(1000) == 10.0


def test_spark_serve_names_what_is_not_its_kind(cli: Cli) -> None:
    answer = cli("spark", "serve", f"{APP}:server", code=2)
    assert "not an onceq.spark.Server" in answer.err


def test_spark_serve_runs_until_a_signal(cli: Cli) -> None:
    words = ("spark", "serve", "tests.cli.spark_app:server", "--once", "--json")
    process = cli.start(*words, cwd=ROOT)
    assert process.stdout is not None
    began = msgspec.json.decode(process.stdout.readline())
    assert began == {"repository": cli.repository, "once": True}
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=2 * LIMIT_S)
    assert (process.returncode, out.strip()) == (0, '{"v":1,"event":"stopped"}'), said


def test_spark_serve_without_spark(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "onceq[spark]" in cli("spark", "serve", f"{APP}:server", code=2).err


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
