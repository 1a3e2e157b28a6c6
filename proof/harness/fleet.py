"""A fleet: server processes, begun again whenever one has died, and what they are judged by.

Used by the crash tests. The handler does what the order says and puts one row for it into the
ledger of effects. Each execution is recorded before anything else, in a file of its process, and
each kill before it is made. (Torture has a conductor of its own, whose participants are of many
kinds.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

import onceq
from onceq.engine import faultpoints
from onceq.engine.perform.driver import PostgresDriver
from onceq.history import check_files
from onceq.history.events import Executed, Fault, Recorder, load, save_final
from proof.harness.ledger import LedgerHandler, Order, Receipt, final_state
from proof.harness.processes import hearing, say_into, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess
    from typing import Self

    from onceq.history.events import Event

ENDING_S: Final = 30.0
HOLD_S: Final = 240.0
LOOK_S: Final = 0.002
NOT_DRAINED: Final = 3
"""Exit code of a server whose stop left something undone."""
STRIKE: Final = "strike"
"""What a server asks for at its fault point: the kill is recorded, then made."""


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """How to serve. files: where events go, and where `release` lets held handlers go on.

    dies_at: a fault point and its time, as "Commit.before 3": one process dies there, once.
    armed: for `arm`; made of that by the fleet.
    """

    url: str
    repository: str
    files: str
    concurrency: int = 1
    stop_timeout_s: float = 30.0
    queue: dict[str, Any] = {}
    batch: int = 1
    dies_at: str = ""
    armed: str = ""


def order_queue(settings: dict[str, Any]) -> onceq.Queue[Order, Receipt]:
    """Returns the queue of orders, with settings other than the defaults."""
    return onceq.Queue("orders", Order, Receipt, **settings)


class HoldingHandler(LedgerHandler):
    """Also holds: kind `hold` until a release, `hold_in_database` so, in statements."""

    def __init__(self, settings: Settings) -> None:
        files = Path(settings.files)
        recorder = Recorder(files / f"server-{os.getpid()}.events", f"server {os.getpid()}")
        super().__init__(recorder, settings.repository)
        self._release = files / "release"

    def before(self, order: Order, context: onceq.Context) -> None:
        """Holds in statements, if the order says so."""
        super().before(order, context)
        if order.kind == "hold_in_database":
            self._hold(lambda: context.connection.execute("select pg_sleep(0.2)"))

    def after(self, order: Order) -> None:
        """Holds in Python, if the order says so."""
        super().after(order)
        if order.kind == "hold":
            self._hold(lambda: time.sleep(LOOK_S))

    def _hold(self, pause: Callable[[], object]) -> None:
        end = time.monotonic() + HOLD_S
        while not self._release.exists() and time.monotonic() < end:
            pause()


def serve(settings: Settings) -> NoReturn:
    """Serves until it is told to stop, in this process, which ends with it."""
    say_into(Path(settings.files) / "said")
    if settings.armed:
        faultpoints.arm(settings.armed)
        faultpoints.pointed(PostgresDriver)
    handler = HoldingHandler(settings)
    handled = order_queue(settings.queue).handled_by(handler, batch=settings.batch)
    server = onceq.Server(
        [handled], concurrency=settings.concurrency, stop_timeout_s=settings.stop_timeout_s
    )
    with server.signals():
        drained = server.run(settings.url, repository=settings.repository)
    sys.stderr.flush()
    os._exit(0 if drained else NOT_DRAINED)  # a handler that never ends must not keep the process


@dataclass
class Fleet:
    """Server processes, begun again whenever one has died, for the time of a block.

    deaths: as they were found. strikes: at the fault point.
    """

    settings: Settings
    size: int = 1
    processes: list[BaseProcess] = field(default_factory=list["BaseProcess"])
    deaths: int = 0
    strikes: int = 0
    _undo: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        if self.settings.dies_at:
            self._listen()
        for _ in range(self.size):
            self.processes.append(self._start())
        return self

    def _listen(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="oqf-"))  # short, as a socket's path must be
        self._undo.callback(shutil.rmtree, place)
        armed = f"{self.settings.dies_at} {STRIKE} {place}"
        self.settings = msgspec.structs.replace(self.settings, armed=armed)
        self._undo.enter_context(hearing(place / faultpoints.EAR, self._strike))

    def _strike(self, asked: str) -> None:
        self.strikes += 1
        self.kill(int(asked.split()[1]))

    def _start(self) -> BaseProcess:
        return start(serve, self.settings)

    def tend(self) -> None:
        """Begins again what has died: what a supervisor does."""
        for index, process in enumerate(self.processes):
            if process.exitcode is not None:
                self.deaths += 1
                self.processes[index] = self._start()

    def wait(self, condition: Callable[[], bool], timeout_s: float = 4 * ENDING_S) -> None:
        """Tends the processes until the condition is true."""
        end = time.monotonic() + timeout_s
        self.tend()
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"it did not come true in {timeout_s} s: {self._said()}")
            time.sleep(LOOK_S)
            self.tend()

    def _said(self) -> str:
        path = Path(self.settings.files) / "said"
        if not path.exists():  # no server came so far as to open it
            return "no server has said anything"
        return "\n".join(path.read_text(errors="replace").splitlines()[-12:])

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

    def wait_executions(self, count: int, rid: str | None = None) -> list[Executed]:
        """Waits until so many executions have begun."""
        found: list[Executed] = []

        def are_enough() -> bool:
            found[:] = self.executions(rid)
            return len(found) >= count

        self.wait(are_enough)
        return found

    def kill(self, pid: int) -> None:
        """Kills one of the processes with -9, and records it: perhaps nobody else could say so.

        What it had just begun is charged, and its handler may not have come to record anything.
        """
        if pid not in {process.pid for process in self.processes}:
            raise AssertionError(f"{pid} is no process of this fleet")
        with Recorder(Path(self.settings.files) / "kills.events") as recorder:
            recorder.record(Fault(what="kill -9", target=f"server {pid}"))
        os.kill(pid, signal.SIGKILL)

    def release(self) -> None:
        """Lets handlers that hold go on."""
        (Path(self.settings.files) / "release").touch()

    def violations(self, conninfo: str, abort_limit: int | None) -> list[str]:
        """Judges the whole history by its files, which it completes.

        Here everybody records what they do, and every order that is done has one effect.
        """
        files = Path(self.settings.files)
        final = final_state(conninfo, self.settings.repository, abort_limit)
        save_final(dataclasses.replace(final, effects_each=1, all_recorded=True), files)
        return [str(one) for one in check_files(files).violations]

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(ENDING_S)
        self._undo.close()


def pid_of(event: Executed) -> int:
    """Returns the process of an execution."""
    return int(event.actor.removeprefix("server "))
