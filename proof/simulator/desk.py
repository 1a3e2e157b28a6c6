"""A desk in a simulation: a process whose clients have one connection (ADR 28).

The arrivals and their groups are those that ship. The desk is one participant, which performs what
its clients have asked; each client is another, which asks and waits. They live and die together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.engine.desk.arrivals import Arrivals, Asked, joined
from onceq.engine.desk.seated import seated_op
from onceq.model import ops
from proof.simulator import steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.simulator.participants import World

BELL = "!here 1 onceq_desk 00"
BUSY = 0.75
"""How likely others come before the desk takes whoever waits."""
ANSWER = "answer"
"""What a client at a desk waits for until its seat rings."""
LOCAL = (ops.Wait, ops.Act)
"""What a client at a desk does itself."""


class Seat:
    """Where the answer to a client's Op arrives. ring: makes the client ready."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.has_answer = False
        self.ring: Callable[[], None] = lambda: None

    def give(self, answer: Any) -> None:
        """Takes an answer, or an error."""
        self.answer, self.has_answer = answer, True
        self.ring()

    def take(self) -> Any:
        """Returns the answer that has arrived."""
        self.has_answer = False
        return self.answer


class SimulatedDesk:
    """One life of such a process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.arrivals: Arrivals[Seat] = Arrivals()

    def run(self) -> ops.Program[None]:
        """Performs what is asked, for as long as it lives."""
        while True:
            while not (group := self._group()):
                yield ops.Wait(key="desk", first=True)
            try:
                answer = yield joined(group)
            except errors.OnceqError as error:
                told = self.arrivals.failed(group, error, self._world.clock.seconds)
                yield steps.Renew()
            else:
                told = self.arrivals.answered(group, answer)
            for asked, one in told:
                asked.answer.give(one)

    def _group(self) -> list[Asked[Seat]]:
        """Returns who goes now; none if others are still to come, or must rest."""
        is_early = not self.arrivals or self._world.likely(BUSY)
        return [] if is_early else self.arrivals.take(self._world.clock.seconds)

    def ask(self, op: ops.Op[Any], seat: Seat) -> Asked[Seat]:
        """Puts an Op of a client among the arrivals."""
        until = None
        if isinstance(op, ops.CancelRequest):
            until = self._world.clock.seconds + op.timeout_s
        return self.arrivals.add(seated_op(op, BELL), seat, until)

    def seated(self, program: ops.Program[None]) -> ops.Program[None]:
        """Returns a client's Program, whose Ops go by this desk."""
        seat = Seat()
        try:
            op = next(program)
            while True:
                answer = yield from _answer(op, seat)
                if isinstance(answer, errors.OnceqError):
                    op = program.throw(answer)
                else:
                    op = program.send(answer)
        except StopIteration:
            return
        finally:
            program.close()


def _answer(op: ops.Op[Any], seat: Seat) -> ops.Program[Any]:
    """Returns what an Op of a client answers, or the error that it raises."""
    if isinstance(op, LOCAL):
        return (yield op)
    if isinstance(op, ops.Posted):  # refused by the seat itself
        return errors.IllegalState("no one-way send is under way")
    yield steps.Ask(op=op, seat=seat)
    while not seat.has_answer:
        yield ops.Wait(key=ANSWER, first=True)
    return seat.take()
