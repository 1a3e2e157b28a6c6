"""The crash tests' own parts: processes that are killed and started again, and what is checked."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceq.history import check_files
from onceq.history.events import Executed, Fault, Recorder, load, save_final
from proof.harness.ledger import final_state
from tests.crash.server_child import Settings
from tests.parts import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from onceq.history.events import Event

ROOT = Path(__file__).resolve().parents[2]


def start(program: str, argument: bytes) -> subprocess.Popen[bytes]:
    """Starts a program of this folder."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.crash.{program}", argument.decode()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


@dataclass
class Fleet:
    """Server processes, started again whenever one has died, for the time of a block."""

    settings: Settings
    size: int = 1
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    deaths: int = 0

    def __enter__(self) -> Self:
        self.processes = [self._start() for _ in range(self.size)]
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        return start("server_child", msgspec.json.encode(self.settings))

    def tend(self) -> None:
        """Starts again what has died: what a supervisor does."""
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                self.deaths += 1
                self.processes[index] = self._start()

    def wait(self, condition: Callable[[], bool], timeout_s: float = 2 * LIMIT_S) -> None:
        """Tends the processes until the condition is true."""

        def tended() -> bool:
            self.tend()
            return condition()

        wait_until(tended, timeout_s)

    def events(self) -> list[Event]:
        """Returns what clients and servers have recorded."""
        return load(Path(self.settings.files).glob("*.events"))

    def executions(self, rid: str | None = None) -> list[Executed]:
        """Returns the executions that began, of all rids or of one."""
        return [
            event
            for event in self.events()
            if isinstance(event, Executed) and rid in {None, event.rid}
        ]

    def kill(self, pid: int) -> None:
        """Kills one of the processes with -9, and records it: perhaps nobody else could say so.

        What it had just begun is charged, and its handler may not have come to record anything.
        """
        assert pid in {process.pid for process in self.processes}
        with Recorder(Path(self.settings.files) / "kills.events") as recorder:
            recorder.record(Fault(what="kill -9", target=f"server {pid}"))
        os.kill(pid, signal.SIGKILL)

    def release(self) -> None:
        """Lets handlers that hold go on."""
        (Path(self.settings.files) / "release").touch()

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(LIMIT_S)


def pid_of(event: Executed) -> int:
    """Returns the process of an execution."""
    return int(event.actor.removeprefix("server "))


def assert_history(fleet: Fleet, conninfo: str, abort_limit: int | None = 5) -> None:
    """Checks the whole history against the guarantees, from its files, which it completes.

    Here everybody records what they do, and every order that is done has one effect.
    """
    files = Path(fleet.settings.files)
    final = final_state(conninfo, fleet.settings.repository, abort_limit)
    save_final(dataclasses.replace(final, effects_each=1, all_recorded=True), files)
    violations = check_files(files).violations
    assert not violations, "\n".join(map(str, [files, *violations[:20]]))


def wait_executions(fleet: Fleet, count: int, rid: str | None = None) -> list[Executed]:
    """Waits until so many executions have begun."""
    found: list[Executed] = []

    def enough() -> bool:
        found[:] = fleet.executions(rid)
        return len(found) >= count

    fleet.wait(enough)
    return found


def kill_at_work(fleet: Fleet, kills: int, work_ms: int, chance: random.Random) -> None:
    """Kills processes, each while it runs a handler that began after the kill before."""
    seen = 0
    for _ in range(kills):
        found = wait_executions(fleet, seen + 1)
        time.sleep(chance.uniform(0, 1.2 * work_ms / 1000))  # the moment within the work
        fleet.kill(pid_of(found[-1]))
        seen = len(fleet.executions()) + chance.randrange(3)


def report(text: str) -> None:
    """Says a measurement, for `pytest -s`."""
    sys.stdout.write(f"\n{text}\n")


def milliseconds_since(event: Executed, then_ns: int) -> float:
    return (event.at - then_ns) / 1e6


def now_ns() -> int:
    """The clock of the events."""
    return time.monotonic_ns()
