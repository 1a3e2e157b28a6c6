"""`onceq serve` with 0..N processes, or in a window: real processes come and go."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq import telemetry
from onceq.server import scaling
from onceq.server.processes import ChildEvent, Ended, Processes
from onceq.server.scaling import Scale, Window
from onceq.server.seats import Spec
from tests.cli.serve_app import ORDERS
from tests.events import emits
from tests.parts import LIMIT_S, Background, plain, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

APP = "tests.cli.serve_app:patient"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, conninfo: str, qm: onceq.QueueManager) -> None:
    monkeypatch.setattr(scaling, "LOOK_S", 0.2)
    monkeypatch.setattr(scaling, "GROW_AFTER_S", 0.2)
    monkeypatch.setattr(scaling, "SHRINK_AFTER_S", 1.0)
    monkeypatch.setenv("ONCEQ_REPOSITORY", qm.repository)
    with plain(conninfo) as connection:
        connection.execute(f"create table {qm.repository}.effects (rid text)".encode())


class Service:
    """A scaled service, run by the main thread, while a scene is played on another."""

    def __init__(self, qm: onceq.QueueManager, scale: Scale) -> None:
        self.qm = qm
        self.events: list[ChildEvent] = []
        self._service = Processes(Spec(APP), scale, told=self.events.append)

    def play(self, conninfo: str, scene: Callable[[], None]) -> Ended:
        """Runs the service until the scene has been played."""

        def played() -> None:
            with contextlib.ExitStack() as at_end:
                at_end.callback(self._service.stop)
                scene()

        background = Background(played)
        ended = self._service.run(conninfo, repository=self.qm.repository)
        background.result()
        return ended

    def pids(self, kind: str) -> list[int]:
        """The processes to which something happened, in order."""
        return [event.pid for event in self.events if event.kind == kind]

    @property
    def alive(self) -> set[int]:
        """Those that serve and go on."""
        return set(self.pids("ready")) - set(self.pids("retired")) - set(self.pids("died"))


@emits(telemetry.ServiceScaled, telemetry.ChildRetired)
def test_none_serves_until_something_waits_and_none_when_nothing_does(
    qm: onceq.QueueManager, conninfo: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(qm, Scale.parse("0..2"))
    caplog.set_level("INFO", logger="onceq")

    def scene() -> None:
        wait_until(lambda: len(service.pids("retired")) == 1)
        assert (service.pids("loaded"), service.pids("ready")) == (service.pids("retired"), [])
        with qm.clerk("till", ORDERS) as clerk:  # declared by the one that only loaded
            clerk.send("1", "echo")
            assert clerk.receive(timeout_s=LIMIT_S).value.startswith("echo")
        assert len(service.pids("ready")) == 1
        wait_until(lambda: not service.alive)

    ended = service.play(conninfo, scene)
    assert (ended.restarts, ended.abandoned, service.pids("died")) == (0, 0, [])
    told = [getattr(record, "onceq", {}) for record in caplog.records]
    scaled = [one for one in told if one.get("event") == "service_scaled"]
    counts = [(one["before"], one["processes"]) for one in scaled]
    assert (counts[0], counts[-1]) == ((0, 1), (1, 0))
    retired = [one for one in told if one.get("event") == "child_retired"]
    assert len(retired) == len(service.pids("retired"))


def test_what_waits_starts_more_and_what_runs_is_let_finish(
    qm: onceq.QueueManager, conninfo: str, tmp_path: Path
) -> None:
    service = Service(qm, Scale.parse("1..3"))

    def scene() -> None:
        wait_until(lambda: len(service.alive) == 1)
        with qm.clerk("till", ORDERS, window=3) as clerk:
            for n in range(3):
                clerk.send(str(n), f"nap {tmp_path / str(n)}")
            wait_until(lambda: len(service.alive) == 3)
            wait_until(lambda: all((tmp_path / str(n)).exists() for n in range(3)))
            napping = {n: int((tmp_path / str(n)).read_text()) for n in range(3)}
            last = service.pids("ready")[-1]  # in the seat that would be left first
            for n in [n for n in napping if napping[n] != last]:
                (tmp_path / f"{n}.end").touch()
            wait_until(lambda: len(service.alive) == 1)
            assert service.alive == {last}, "the one that runs something stays"
            for n in napping:
                (tmp_path / f"{n}.end").touch()
            replies = [clerk.receive(timeout_s=LIMIT_S) for _ in range(3)]
            assert {(one.outcome, one.attempts) for one in replies} == {
                (onceq.RequestOutcome.DONE, 1)
            }

    ended = service.play(conninfo, scene)
    assert (ended.restarts, ended.abandoned) == (0, 0)


@pytest.mark.parametrize("hours", [(-1, 1), (1, 2)], ids=["open", "closed"])
def test_outside_its_window_none_serves(
    qm: onceq.QueueManager, conninfo: str, hours: tuple[int, int]
) -> None:
    now = datetime.now(UTC)
    begin, end = (f"{now + timedelta(hours=hour):%H:%M}" for hour in hours)
    scale = Scale.parse("2", window=Window.parse(f"{begin}-{end}", "UTC"))
    service = Service(qm, scale)

    def scene() -> None:
        wait_until(lambda: len(service.pids("retired")) == 1)
        with qm.clerk("till", ORDERS) as clerk:
            clerk.send("1", "echo")
            if hours[0] < 0:
                assert clerk.receive(timeout_s=LIMIT_S).value.startswith("echo")
                wait_until(lambda: len(service.alive) == 2)
            else:
                time.sleep(2.0)
                assert (service.pids("ready"), qm.show("orders").ready) == ([], 1)

    assert service.play(conninfo, scene).abandoned == 0


def test_one_that_is_killed_is_replaced(qm: onceq.QueueManager, conninfo: str) -> None:
    service = Service(qm, Scale.parse("1..2"))

    def scene() -> None:
        wait_until(lambda: len(service.alive) == 1)
        with qm.clerk("till", ORDERS) as clerk:
            clerk.send("1", "poison")
            assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
            wait_until(lambda: len(service.alive) == 1)

    assert service.play(conninfo, scene).restarts == 2
