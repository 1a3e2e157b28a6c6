"""The Programs that run in a store: what they yield is done here, or asked elsewhere.

An admission fetches from other stores; trimming asks them what receivers have; scrubbing fetches
what is damaged. Each is a generator that waits between two steps of `serving`. Pure but for what
the store does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, Final

import msgspec

from onceq.model.ops.base import Program
from onceq.streams.errors import StoreFull
from onceq.streams.model import asks
from onceq.streams.model.states import may_copy
from onceq.streams.store import acts, healing, limits, records
from onceq.streams.store.answering import Waiting
from onceq.streams.store.catalogue import Needs, Step
from onceq.streams.store.program import Keep, Perform, admit
from onceq.streams.store.scrubbing import Scrubbing
from onceq.streams.store.store import Store
from onceq.streams.store.trimming import trim

NOBODY: Final = -1
"""The link of a Program that no connection waits for."""


class Running(msgspec.Struct, kw_only=True):
    """A Program that runs. position: behind what it appended last. ask: of an admission."""

    program: Program[Any]
    link: int
    stream: int = 0
    tag: int = 0
    position: int = 0
    ask: asks.Admit | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a Program for which a link waits. life, activity_ms: of who asked for it."""

    link: int
    waiting: Waiting
    life: int
    activity_ms: int


class Programs:
    """The Programs that run, by a number each. own: the store's address."""

    def __init__(self, store: Store, own: str) -> None:
        self._store = store
        self.own = own
        scrubbed = store.scrubbed
        self.scrubbing = None if scrubbed is None else Scrubbing(scrubbed, own)
        self._last = 0
        self._running: dict[int, Running] = {}
        self._trimming: set[int] = set()
        self._copying: dict[int, int] = {}

    def call(self, own: str) -> None:
        """Note the store's address, as the lists of stores have it."""
        self.own = own
        if self.scrubbing is not None:
            self.scrubbing.own = own

    def admit(self, link: int, tag: int, ask: asks.Admit) -> Iterator[Any]:
        """Begin an admission for which a link waits."""
        running = Running(program=admit(ask), link=link, stream=ask.stream, tag=tag, ask=ask)
        return self._begin(running)

    def overtake(self, stream: int) -> Iterator[Any]:
        """End the admission that copies, if a promise leaves it no chance; it is told why."""
        number = self._copying.get(stream)
        running = None if number is None else self._running[number]
        if number is None or running is None or running.ask is None:
            return
        decided = self._store.catalogue.admit(running.ask)
        if isinstance(decided, Step) and not decided.records:
            running.position = self._store.end  # the promise is synced before anybody hears of it
            yield from self._close(number, decided.answer)

    def _close(self, number: int, answer: asks.Answer) -> Iterator[Any]:
        """End a Program whose Op is performed elsewhere; give its link an answer."""
        running = self._forgotten(number)
        running.program.close()
        yield acts.Drop(program=number)
        yield from self._end(running, answer)

    def _forgotten(self, number: int) -> Running:
        running = self._running.pop(number)
        if self._copying.get(running.stream) == number:
            del self._copying[running.stream]
        return running

    def scrub(self) -> Iterator[Any]:
        """Begin to look through the log, if there is one."""
        if self.scrubbing is not None:
            yield from self._begin(Running(program=healing.scrub(), link=NOBODY))

    def begin_trims(self) -> Iterator[Any]:
        """Begin to ask what may be given up of each stream that is over its limits."""
        for held in tuple(self._store.catalogue.streams.values()):
            want = self._store.surplus(held.stream)
            if want > held.begin and held.stream not in self._trimming:
                program = trim(held, self.own, want)
                self._trimming.add(held.stream)
                yield from self._begin(Running(program=program, link=NOBODY, stream=held.stream))

    def _begin(self, running: Running) -> Iterator[Any]:
        self._last += 1
        self._running[self._last] = running
        return self.go_on(self._last, None)

    def go_on(self, number: int, answer: Any) -> Iterator[Any]:
        """Send a Program the answer of its Op; yield what it wants then, or that it has ended."""
        running = self._running.get(number)
        if running is None:
            return
        try:
            while True:
                op = running.program.send(answer)
                if not self._is_own(op):
                    yield acts.Ask(program=number, op=op)
                    return
                answer = self._perform(running, op)
                if isinstance(answer, Needs):
                    answer = yield from self._copy(number, running, answer)
        except StopIteration as stop:
            self._forgotten(number)
            yield from self._end(running, stop.value)

    def _copy(
        self, number: int, running: Running, needs: Needs
    ) -> Generator[Any, None, Needs | asks.Answer]:
        """Let an admission copy, and end the one that does; or say that it lacks what it needs."""
        other = self._copying.get(running.stream, number)
        its, own = self._running[other].ask, running.ask
        if other != number and its is not None and own is not None:
            if not may_copy(own.bridge.epoch, its.bridge.epoch):
                return asks.Lacking(begin=needs.begin, end=needs.end)
            yield from self._close(other, asks.Lacking(begin=0, end=its.log.end))
        self._copying[running.stream] = number
        return needs

    def _is_own(self, op: Any) -> bool:
        return isinstance(op, Perform | Keep | healing.LookOn | healing.Mend)

    def _perform(self, running: Running, op: Any) -> Any:
        if isinstance(op, Perform | Keep):
            return self._copied(op) if isinstance(op, Keep) else self._admitted(running, op)
        if self.scrubbing is None:
            raise TypeError(f"{op} is for a store with a log")
        if isinstance(op, healing.Mend):
            return self.scrubbing.mend(op.stream, op.data)
        return self.scrubbing.step()

    def _admitted(self, running: Running, op: Perform) -> Any:
        try:
            answer, running.position = self._store.admitted(op.ask, op.copied)
        except StoreFull:
            return limits.full(self._store.catalogue.of(op.ask.stream))
        return answer

    def _copied(self, op: Keep) -> asks.Answer | None:
        try:
            self._store.keep_copies(op.ask, op.copies)
        except StoreFull:
            return limits.full(self._store.catalogue.of(op.ask.stream))
        return None

    def _end(self, running: Running, value: Any) -> Iterator[Ended]:
        if running.link != NOBODY:
            waiting = Waiting(
                position=running.position, stream=running.stream, tag=running.tag, answer=value
            )
            life, activity_ms = 0, 0
            if running.ask is not None:
                life, activity_ms = running.ask.life, running.ask.activity_ms
            yield Ended(link=running.link, waiting=waiting, life=life, activity_ms=activity_ms)
        elif running.stream in self._trimming:
            self._trimming.remove(running.stream)
            if isinstance(value, records.Trimmed):
                with contextlib.suppress(StoreFull):  # it is asked again after some ticks
                    self._store.do(Step(records=(value,), answer=asks.Forgot()))

    def running(self, link: int) -> int:
        """Return for how many Programs a link waits."""
        return sum(one.link == link for one in self._running.values())

    def forget(self, link: int) -> Iterator[acts.Drop]:
        """Close the Programs for which a link waits that is gone."""
        for number in [n for n, one in self._running.items() if one.link == link]:
            self._forgotten(number).program.close()
            yield acts.Drop(program=number)
