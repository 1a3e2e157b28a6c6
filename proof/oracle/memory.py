"""The in-memory driver: performs Ops on the oracle, runs Programs, moves its own clock.

For tests without a database. One thread; several drivers on one oracle are several sessions. A
`Wait` moves the clock instead of waiting. What would wait for another session's transaction
raises, as nothing else runs meanwhile; the simulator, which lets others run, uses `perform_once`.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from onceq.engine.perform.gate import Gate, Way
from onceq.engine.perform.together import LASTS_S
from onceq.engine.wake.waiting import Pause
from onceq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    EnvironmentFault,
    IllegalState,
    OnceqError,
)
from onceq.model import ops
from proof.oracle import Blocked, Oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from onceq.model.element import Element

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
WAITS_MAX = 100_000


class MemoryClock:
    """The time of an oracle: a tick later at each look, and moved on by tests."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        """Returns the time."""
        self.time += TICK
        return self.time

    def advance(self, seconds: float) -> None:
        """Moves the time on."""
        self.time += timedelta(seconds=seconds)

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return (self.time - START).total_seconds()


def memory_repository(
    seed: int = 0, answers: Mapping[type[Any], Any] | None = None
) -> tuple[Oracle, MemoryClock]:
    """Returns an empty repository and its clock; element ids come from the seed."""
    clock = MemoryClock()
    chance = random.Random(seed)  # a seed makes it repeatable
    return Oracle(clock.now, lambda: UUID(int=chance.getrandbits(128)), answers or {}), clock


class MemoryDriver:
    """A session with an oracle. calls: queue to handler; stop: what `Stopping` answers.

    gone: identities: who else has one lives. is_batch: several requests share the transaction that
    was begun last.
    """

    def __init__(
        self,
        oracle: Oracle,
        clock: MemoryClock,
        *,
        calls: Mapping[str, Callable[[Element, MemoryDriver], bytes]] | None = None,
        stop: Callable[[], bool] = lambda: False,
        gate: Gate | None = None,
    ) -> None:
        self.oracle = oracle
        self.session = oracle.session()
        self._clock = clock
        self._calls = calls or {}
        self._stop = stop
        self._way = Way(gate or Gate(lambda: clock.seconds))
        self.gone: Collection[str] = frozenset()
        self.is_batch = False
        self._until = 0.0
        self._one_way: ops.Sent | OnceqError | None = None
        self._pause = Pause()
        self._local: dict[type[Any], Callable[[Any], Any]] = {
            ops.Claim: self._claim,
            ops.Begin: self._begin,
            ops.MayGoOn: self._may_go_on,
            ops.Commit: self._ending,
            ops.Rollback: self._ending,
            ops.Finish: self._finish,
            ops.Call: lambda op: self._calls[op.queue](op.element, self),
            ops.Act: lambda op: op.act(),
            ops.Wait: self._wait,
            ops.Sleep: self._sleep,
            ops.Rouse: lambda _: None,
            ops.Post: self._post,
            ops.Posted: self._posted,
            ops.MayTend: lambda _: False,  # who wants to tick, runs the Program of it
            ops.Stopping: lambda _: self._stop(),
            ops.IsAlive: lambda op: op.identity not in self.gone,
        }

    def run(self, program: ops.Program[T]) -> T:
        """Runs a Program to its end; what an Op raises is thrown into it."""
        try:
            op = next(program)
            for _ in range(WAITS_MAX):
                try:
                    answer = self.perform(op)
                except OnceqError as error:
                    op = program.throw(error)
                else:
                    op = program.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # the Program's own type
        finally:
            program.close()
            self._leave()
        raise EnvironmentFault(f"the Program did not end within {WAITS_MAX} operations")

    def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op and returns its answer. Waiting for another session is an error."""
        try:
            return self.perform_once(op)
        except Blocked:
            text = f"{type(op).__name__} would wait for another session's transaction"
            if isinstance(op, (ops.Kill, ops.CancelRequest)):
                raise DeadlineExceeded(text) from None
            raise EnvironmentFault(text) from None

    def perform_once(self, op: ops.Op[T]) -> T:
        """Performs one Op, or raises Blocked: then nothing has happened, perform it again."""
        local = self._local.get(type(op))
        if local is not None:
            return local(op)  # type: ignore[no-any-return] # typed by the Op
        return self.oracle.perform(self.session, op)

    def _post(self, op: ops.Post) -> None:
        """Performs the send at once; its answer is told later."""
        try:
            self._one_way = self.oracle.perform(self.session, op.send)
        except OnceqError as error:
            self._one_way = error

    def _posted(self, _: ops.Posted) -> ops.Sent:
        answer, self._one_way = self._one_way, None
        if answer is None:
            raise IllegalState("no one-way send is under way")
        if isinstance(answer, OnceqError):
            raise answer
        return answer

    def effect(self, key: str, element: Element) -> None:
        """Records an effect of a handler in the transaction that it was given."""
        self.oracle.effect(self.session, key, element)

    def end(self) -> None:
        """Ends the session, like its process's death."""
        self.oracle.end(self.session)
        self._leave()

    def leave(self) -> None:
        """Leaves the gate, as the death of the process does, whatever becomes of the session."""
        self._leave()

    def _claim(self, op: ops.Claim) -> list[Element]:
        may = self._way.may_claim()
        if may is None:
            raise Blocked
        return self._way.claimed(
            self.oracle.perform(self.session, self._way.admitted(op, suspects=may))
        )

    def _begin(self, op: ops.Begin) -> bool:
        if not self._way.enter(alone=op.alone):
            return False
        self.is_batch = op.seq < 0
        self._until = self._clock.seconds + LASTS_S
        return self.oracle.perform(self.session, op)

    def _may_go_on(self, _: ops.MayGoOn) -> bool:
        if self.session.is_over:
            raise ConnectionLost("this session is over")
        return not self._stop() and self._clock.seconds < self._until

    def _finish(self, op: ops.Finish) -> ops.Finished:
        answer = self.oracle.perform(self.session, self._way.chained(op))
        if op.commit:
            self._way.leave()
        return answer

    def _ending(self, op: ops.Op[Any]) -> Any:
        try:
            answer = self.oracle.perform(self.session, op)
        except OnceqError:
            self._way.leave()
            raise
        self._way.leave()
        return answer

    def _leave(self) -> None:
        self._way.end()

    def wait_s(self, op: ops.Wait) -> float | None:
        """Returns how long to wait now; None: the deadline has passed, or a stop is due."""
        delay = self._pause.next(op, self._clock.seconds)
        return None if self._stop() else delay

    def sleep_s(self, op: ops.Sleep) -> tuple[float, ops.Rest]:
        """Returns how long to sleep now, and why to wake then: nobody is rung or called here."""
        delay = self._pause.falling_asleep(first=op.first)
        if delay is None and not self._stop():
            return op.within_s or 0.0, ops.Rest.WATCH
        return delay or 0.0, ops.Rest.LOOK

    def _sleep(self, op: ops.Sleep) -> ops.Rest:
        delay, rest = self.sleep_s(op)
        self._clock.advance(delay)
        return rest

    def _wait(self, op: ops.Wait) -> bool:
        delay = self.wait_s(op)
        if delay is None:
            return False
        self._clock.advance(max(delay, TICK.total_seconds()))  # less does not move it
        return True
