"""Plain functions as Programs: each waits for the answer to each Op that it asks for.

For the simulator, so that what ships as functions over a connection takes part as it is: the queue
manager, submit, collect. Each runs on a stack of its own (a greenlet), which is left wherever it
asks: switching takes a microsecond, a thread's takes as long as the machine has others to run. A
function that is to die gets `Killed` at the Op that it waits for, and all that it still asks for
is refused.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from greenlet import getcurrent, greenlet

from onceq.engine.embedded.locate import Located
from onceq.errors import OnceqError
from onceq.manager.taker import Taker
from onceq.model import ops
from proof.simulator.steps import Renew

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from uuid import UUID

    from onceq.engine.wake.waiting import Pause

T = TypeVar("T")


class Killed(BaseException):
    """The process of this function is dead."""


class Line(ops.Runs):
    """A connection as functions know it: `Link`, but each Op is asked of the simulator.

    is_dead: the process that has it died.
    """

    def __init__(self) -> None:
        self._life: ops.Incarnation | None = None
        self.is_dead = False

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
        if self.is_dead:
            raise Killed
        simulator = getcurrent().parent
        assert simulator is not None  # noqa: S101 # as_program began it
        answer = simulator.switch(op)
        if isinstance(op, ops.OpenIncarnation):
            self._life = answer
        return answer  # type: ignore[no-any-return] # typed by the Op

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


def as_program(line: Line, body: Callable[[], None]) -> ops.Program[None]:
    """Runs a function, which uses this line, as a Program."""
    function = greenlet(body)
    try:
        asked = function.switch()
        while not function.dead:
            try:
                answer = yield asked
            except OnceqError as error:
                asked = function.throw(error)
            else:
                asked = function.switch(answer)
    finally:
        if not function.dead:
            line.is_dead = True
            with contextlib.suppress(Killed):
                function.throw(Killed())


class LineTaker(Taker):
    """What dequeues in callers' transactions, over a line."""

    def __init__(self, line: Line, process: UUID) -> None:
        super().__init__(Located("", None), "onceq")
        self.link = cast("Any", line)
        self.held.process = process

    def wait(self, pause: Pause, op: ops.Wait) -> bool:
        """Waits in the simulator's time."""
        del pause  # the simulator has its own
        return self.link.perform(op)

    def _begin_watch(self) -> None:
        """Begins none: it would be a thread."""
