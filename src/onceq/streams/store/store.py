"""A store: what it knows, and what it does with frames and asks, wherever it keeps them.

What is decided is applied at once, and may be answered once it is kept: every call that changes
something returns the position that must be synced before its answer may be sent.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec.structs import replace

from onceq.streams.errors import StoreFull
from onceq.streams.model import asks, frames
from onceq.streams.model.choice import Firsts
from onceq.streams.model.log import agreed_below, epoch_at
from onceq.streams.store import limits, records
from onceq.streams.store.catalogue import Catalogue, Needs, Step
from onceq.streams.store.lifetimes import Lifetimes, Who
from onceq.streams.store.weights import Weights

if TYPE_CHECKING:
    from onceq.streams.store.scrubbing import Scrubbed


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in a row that are kept. firsts: of the log that they were copied for."""

    firsts: Firsts
    numbers: range


class Store(ABC):
    """What every store does. may_keep: of each stream. clock: seconds that only go on.

    keeps: whether it keeps messages, or only what is known of streams. forced: by stream, numbers
    that were given up though a receiver had not acknowledged them. expired: likewise, receivers
    that were forgotten since nothing was heard of them.
    """

    keeps: ClassVar[bool] = True
    _catalogue: ClassVar[type[Catalogue]] = Catalogue

    def __init__(self, may_keep: limits.Limits | None, clock: Callable[[], float]) -> None:
        self.catalogue = self._catalogue()
        self.weights = Weights()
        self.may_keep = may_keep or limits.Limits()
        self.forced: Counter[int] = Counter()
        self.expired: Counter[int] = Counter()
        self.lifetimes = Lifetimes(self.may_keep.state_lifetime_s)
        self._clock = clock
        self._copied: dict[int, Copied] = {}

    @property
    @abstractmethod
    def end(self) -> int:
        """The position of all that was kept so far."""

    @property
    @abstractmethod
    def synced(self) -> int:
        """The position before which all is kept for good."""

    @property
    def scrubbed(self) -> Scrubbed | None:
        """The store itself, if it has a log to look through; None: it has none."""
        return None

    @abstractmethod
    def tend(self) -> None:
        """Do a little of what keeps the store in order; called again and again."""

    @abstractmethod
    def _put(self, record: records.Record) -> int:
        """Keep a record, and apply it; return the position. Raises StoreFull."""

    @abstractmethod
    def _append(self, local: int, frame: frames.Frame, data: bytes) -> int:
        """Keep a frame; return the position. Raises StoreFull."""

    @abstractmethod
    def _append_copy(self, local: int, frame: frames.Frame, data: bytes) -> int:
        """Keep a copy, which counts once the stream is admitted. Raises StoreFull."""

    @abstractmethod
    def read(self, stream: int, numbers: range) -> Iterator[bytes]:
        """Yield the frames that have some numbers, as they came, up to one that is not here."""

    def do(self, step: Step) -> int:
        """Keep and apply what was decided; return the position that must be synced."""
        position = self.end
        for record in step.records:
            position = self._put(record)
        return position

    def forget_silent(self, connected: Container[Who]) -> None:
        """Forget the receivers of which nothing was heard for too long. connected: those that are.

        On a full disk: not now.
        """
        now_s = self._clock()
        for held in tuple(self.catalogue.streams.values()):
            for key in self.lifetimes.over(held, now_s):
                one = (held.stream, key)
                if one in connected:
                    self.lifetimes.hear(one, now_s)
                    continue
                with contextlib.suppress(StoreFull):
                    self._put(records.Deregistered(stream=held.stream, key=key))
                    self.lifetimes.forget(one)
                    self.expired[held.stream] += key in held.positions  # or it is a tombstone

    def hear(self, one: Who) -> None:
        """Note that a receiver is there."""
        self.lifetimes.hear(one, self._clock())

    def now_s(self) -> float:
        """Return what the clock of the store says, in seconds."""
        return self._clock()

    def take(self, frame: frames.Frame, data: bytes, life: int) -> tuple[asks.Answer, int]:
        """Take a frame of a source's life; return the answer, and the position for it.

        data: its bytes as they came, which are kept. Raises StoreFull.
        """
        taken = self.catalogue.take(frame, life)
        answer, position = taken.answer, self.end
        held = self.catalogue.of(frame.stream)
        if taken.append:
            if not self._makes_room(held):
                return limits.full(held), position
            position = self._append(held.local, frame, data)
        elif taken.compare and not self._has(frame, data):
            return asks.Conflict(number=frame.number), position
        if isinstance(answer, asks.Holding | asks.Noted):
            self.catalogue.apply_frame(frame)
        return answer, position

    def _makes_room(self, held: records.Held) -> bool:
        """Return whether the stream may grow: below its limit, or as old numbers are overwritten.

        What all receivers have is freed by `trimming`, which asks other stores.
        """
        if not limits.is_full(self.weights.of(held.local), self.may_keep):
            return True
        if self.is_blocked(held):
            return False
        given_up = limits.overwritten(held, self.surplus(held.stream, is_forced=True))
        if given_up is not None:
            self._put(given_up)
            unseen = given_up.below - max(held.begin, limits.slowest(held)[0])
            self.forced[held.stream] += max(0, unseen)
        return given_up is not None

    def is_blocked(self, held: records.Held) -> bool:
        """Return whether the stream is over its limit, and waits for a receiver."""
        is_full = limits.is_full(self.weights.of(held.local), self.may_keep)
        return is_full and self.may_keep.when_full is limits.WhenFull.BLOCK

    def surplus(self, stream: int, *, is_forced: bool = False) -> int:
        """Return the number below which there is more of a stream, or older, than should be kept.

        is_forced: than may be kept at all.
        """
        held = self.catalogue.of(stream)
        weight, now_s = self.weights.of(held.local), self._clock()
        return limits.wanted(held, weight, self.may_keep, now_s, is_forced=is_forced)

    def _has(self, frame: frames.Frame, data: bytes) -> bool:
        """Whether this frame's messages are here at its number, of whatever epoch."""
        given = frames.decode(data)
        for found in self.read(frame.stream, range(frame.number, frame.end)):
            here = frames.decode(found)
            return (here.number, here.count, here.body) == (given.number, given.count, given.body)
        return True  # trimmed or damaged: it was the same, for all that can be known

    def admit(
        self, ask: asks.Admit, copies: Sequence[bytes] = ()
    ) -> tuple[asks.Answer | Needs, int]:
        """Admit the store, with copies from other stores; return the answer, or what it lacks.

        Copies of another epoch than the chosen log's at their number are not taken.
        """
        read = [frames.decode(one) for one in copies]
        if any(epoch_at(ask.log.firsts, one.number) != one.epoch for one in read):
            return Needs(begin=read[0].number, end=ask.log.end, firsts=ask.log.firsts), self.end
        copied = range(read[0].number, read[-1].end) if read else None
        if isinstance(needs := self.catalogue.admit(ask, copied), Needs):
            return needs, self.end
        self.keep_copies(ask, copies)
        return self.admitted(ask, copied)

    def keep_copies(self, ask: asks.Admit, copies: Sequence[bytes]) -> None:
        """Keep copies for an admission; they count when it is performed. Raises StoreFull.

        They follow those that were kept for it before, or are the first.
        """
        local = self.catalogue.of(ask.stream).local
        for data in copies:
            frame = frames.decode(data)
            self._append_copy(local, frame, data)
            self._copied[ask.stream] = _with(self._copied.get(ask.stream), ask, frame)

    def admitted(
        self, ask: asks.Admit, copied: range | None = None
    ) -> tuple[asks.Answer | Needs, int]:
        """Admit the store, which has kept these copies before; return the answer, or what it lacks.

        If others were kept since, or between them, it lacks them all. Raises StoreFull.
        """
        kept, firsts = self._copied.get(ask.stream), ask.log.firsts
        if kept is not None and not _is_of(kept, firsts):
            kept = None
        if copied and (kept is None or copied != kept.numbers):
            copied = None  # an empty range: others have trimmed all of it
        decided = self.catalogue.admit(ask, copied)
        if isinstance(decided, Needs):
            return _going_on(decided, kept), self.end
        position = self.do(decided)
        if decided.records:
            self._copied.pop(ask.stream, None)
        return decided.answer, position


def _is_of(copied: Copied, firsts: Firsts) -> bool:
    """Whether copies are of a log: of the same epochs, and so the same. A new one has none."""
    if not firsts:
        return False
    agreed = agreed_below(copied.firsts, firsts)
    return agreed is None or agreed >= copied.numbers.stop


def _with(before: Copied | None, ask: asks.Admit, frame: frames.Frame) -> Copied:
    """Return what is kept with one more copy; it begins anew if that does not follow."""
    firsts, begin = ask.log.firsts, frame.number
    if before is not None and before.numbers.stop == begin and _is_of(before, firsts):
        begin = before.numbers.start
    return Copied(firsts=firsts, numbers=range(begin, frame.end))


def _going_on(needs: Needs, kept: Copied | None) -> Needs:
    """Return what is needed, with what is copied of it already."""
    if kept is None or kept.numbers.start != needs.begin or kept.numbers.stop > needs.end:
        return needs
    return replace(needs, copied=kept.numbers)
