"""Plain functions as Programs: each runs in a thread that waits for the answer to each Op it asks.

For the simulator, so that what ships as functions over a connection takes part as it is: the queue
manager, submit, collect. Never two threads run at once, so that a seed is one schedule. A function
that is to die gets `Killed` at the Op that it waits for, and all that it still asks is refused.
"""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.errors import OnceqError
from onceq.model import ops
from onceq.testing.steps import Renew

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long the simulator waits for a function to ask or to end, before it gives up."""


class Killed(BaseException):
    """The process of this function is dead."""


class Line(ops.Runs):
    """A connection as functions know it: `Link`, but each Op is asked of the simulator.

    In the thread `perform`, `run`, `reconnect`, `close`; everything else is the simulator's.
    """

    def __init__(self) -> None:
        self._life: ops.Incarnation | None = None
        self.asked: ops.Op[Any] | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._stop = threading.Semaphore(0)

    @property
    def connection(self) -> Any:
        """What tells one connection from the next: `info.backend_pid`."""
        pid = 0 if self._life is None else self._life.backend_pid
        return SimpleNamespace(info=SimpleNamespace(backend_pid=pid))

    def run(self, program: ops.Program[T], wait_s: float | None = None) -> T:
        """Runs a Program; wait_s: as `Links` has it, no link is silent here."""
        del wait_s
        return super().run(program)

    def perform(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """Has an Op performed by the simulator; its answer, or what it raised."""
        del wait_s
        self.asked = op
        self._stop.release()
        self._go.acquire()
        error, self.error = self.error, None
        if error is not None:
            if isinstance(error, Killed):
                self.error = error  # for ever
            raise error
        if isinstance(op, ops.OpenIncarnation):
            self._life = self.answer
        return self.answer  # type: ignore[no-any-return] # typed by the Op

    @contextlib.contextmanager
    def bounded(self, patience: object) -> Generator[None]:
        """A block like any other: no link is silent here."""
        del patience
        yield

    def _leave(self) -> None:
        """Nothing: the simulator has what a Program holds."""

    def reconnect(self) -> None:
        """Makes the connection anew, if it broke."""
        if self.perform(Renew()):
            self._life = None

    def connect(self, wait_s: float | None = None) -> None:
        """The same, as `Links` names it."""
        del wait_s
        self.reconnect()

    def close(self) -> None:
        """Nothing: the next `reconnect` ends the former connection, as does the process."""

    def begin(
        self, body: Callable[[], None], ended: Callable[[BaseException | None], None]
    ) -> None:
        """Starts the thread; it runs until it first asks, or ends."""

        def run() -> None:
            self._go.acquire()
            error: BaseException | None = None
            try:
                body()
            except BaseException as raised:  # noqa: BLE001 # raised again, by the simulator's side
                error = raised
            ended(error)
            self.asked = None
            self._stop.release()

        threading.Thread(target=run, daemon=True).start()
        self.resume()

    def resume(self) -> None:
        """Lets the thread go on until it asks again, or ends."""
        self._go.release()
        if not self._stop.acquire(timeout=PATIENCE_S):
            raise TimeoutError("a function of a simulation neither asked nor ended")


def as_program(line: Line, body: Callable[[], None]) -> ops.Program[None]:
    """Runs a function, which uses this line, as a Program."""
    ends: list[BaseException | None] = []
    line.begin(body, ends.append)
    try:
        while not ends and line.asked is not None:
            try:
                line.answer = yield line.asked
            except OnceqError as error:
                line.error = error
            line.resume()
    finally:
        if not ends:
            line.error = Killed()
            line.resume()
            while not ends:  # each further thing that it asks is refused, at once
                line.resume()
    if ends[0] is not None:
        raise ends[0]
