"""A store in memory: what it has goes with its process, and is reported received, not synced."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from onceq.streams.model import frames
from onceq.streams.store import limits, records
from onceq.streams.store.store import Store

Copy: TypeAlias = tuple[frames.Frame, bytes]


@dataclass(slots=True)
class Kept:
    """The frames of a stream, in a row: the first number of each, and its bytes."""

    numbers: list[int] = field(default_factory=list[int])
    data: list[bytes] = field(default_factory=list[bytes])
    copies: list[Copy] = field(default_factory=list["Copy"])

    def add(self, number: int, data: bytes) -> None:
        """Add a frame behind the others."""
        self.numbers.append(number)
        self.data.append(data)

    def cut(self, kept: int) -> None:
        """Drop what lies from a number on."""
        while self.numbers and self.numbers[-1] >= kept:
            self.numbers.pop()
            self.data.pop()

    def trim(self, below: int) -> None:
        """Drop what lies before a number."""
        at = max(0, bisect_right(self.numbers, below) - 1)
        del self.numbers[:at], self.data[:at]


class MemoryStore(Store):
    """A store without a disk. Every position is 0: nothing is ever to be synced."""

    def __init__(
        self,
        *,
        may_keep: limits.Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(may_keep, clock)
        self._kept: dict[int, Kept] = {}

    @property
    def end(self) -> int:
        """See Store."""
        return 0

    @property
    def synced(self) -> int:
        """See Store."""
        return 0

    def tend(self) -> None:
        """See Store. There is nothing to do."""

    def _of(self, local: int) -> Kept:
        return self._kept.setdefault(local, Kept())

    def _put(self, record: records.Record) -> int:
        local = self.catalogue.of(record.stream).local
        match record:
            case records.Admitted():
                below = record.kept if record.begin <= record.kept else 0  # others trimmed the rest
                self._admitted(local, below, record.end)
            case records.Ended():
                self._admitted(local, 0, 0)
            case records.Trimmed():
                self._of(local).trim(record.below)
                self.weights.of(local).trim(record.below)
            case _:
                pass
        self.catalogue.apply(record)
        return 0

    def _admitted(self, local: int, below: int, end: int) -> None:
        kept = self._of(local)
        kept.cut(below)
        self.weights.admit(local, below, self._clock(), end)
        copies, kept.copies = kept.copies, []
        for frame, data in copies:
            if below <= frame.number < end:  # others are of an admission that came to nothing
                kept.add(frame.number, data)

    def _append(self, local: int, frame: frames.Frame, data: bytes) -> int:
        self._of(local).add(frame.number, data)
        self.weights.of(local).add(range(frame.number, frame.end), len(data), self._clock())
        return 0

    def _append_copy(self, local: int, frame: frames.Frame, data: bytes) -> int:
        copies = self._of(local).copies
        if copies and copies[-1][0].end != frame.number:
            copies.clear()  # of an admission that came to nothing
        copies.append((frame, data))
        self.weights.copy(local, range(frame.number, frame.end), len(data))
        return 0

    def read(self, stream: int, numbers: range) -> Iterator[bytes]:
        """See Store."""
        held = self.catalogue.of(stream)
        kept = self._of(held.local)
        number, end = max(numbers.start, held.begin), min(numbers.stop, held.end)
        for data in kept.data[max(0, bisect_right(kept.numbers, number) - 1) :]:
            frame = frames.decode(data)
            if number >= end:
                return
            if number < frame.end:
                yield data
                number = frame.end
