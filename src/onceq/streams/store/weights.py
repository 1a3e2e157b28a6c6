"""How many bytes of each stream a store has, before which number, and since when. Pure.

Kept in steps of 64 KiB, and of more where there would be over 1,024 of them, so that it takes the
same memory for any stream: what is found by it is right but for a thousandth, or 64 KiB. After a
restart nobody knows how old anything is: it counts as new.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

import msgspec

STEP_BYTES: Final = 64 << 10
MARKS_MAX: Final = 1_024


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot keeps of a stream: marks of numbers, and the bytes before each."""

    marks: tuple[tuple[int, int], ...]
    step: int
    total: int
    end: int


class Weight:
    """The bytes of a stream. now_s: as which what a snapshot has counts. step: of a new one."""

    def __init__(
        self, known: Weighed | None = None, now_s: float = 0.0, step: int = STEP_BYTES
    ) -> None:
        marks = () if known is None else known.marks
        self._numbers = [number for number, _ in marks]
        self._before = [before for _, before in marks]
        self._since = [now_s for _ in marks]
        self._step = step if known is None else known.step
        self._total = 0 if known is None else known.total
        self.end = 0 if known is None else known.end

    def weighed(self) -> Weighed:
        """Return what a snapshot keeps."""
        marks = tuple(zip(self._numbers, self._before, strict=True))
        return Weighed(marks=marks, step=self._step, total=self._total, end=self.end)

    def add(self, numbers: range, size: int, now_s: float) -> None:
        """Note a frame that was appended."""
        if not self._numbers or self._total - self._before[-1] >= self._step:
            self._numbers.append(numbers.start)
            self._before.append(self._total)
            self._since.append(now_s)
            if len(self._numbers) > MARKS_MAX:
                self._thin()
        self._total += size
        self.end = numbers.stop

    def _thin(self) -> None:
        self._step *= 2
        for ones in (self._numbers, self._before, self._since):
            del ones[1::2]

    def cut(self, kept: int) -> None:
        """Note that what lies from a number on is no part of the log any more."""
        if kept >= self.end:
            return
        at = bisect_left(self._numbers, kept)
        if at < len(self._numbers):
            self._total = self._before[at]
        for ones in (self._numbers, self._before, self._since):
            del ones[at:]
        self.end = kept

    def trim(self, below: int) -> None:
        """Note that what lies before a number is given up."""
        at = len(self._numbers) if below >= self.end else bisect_right(self._numbers, below) - 1
        for ones in (self._numbers, self._before, self._since):
            del ones[: max(0, at)]

    @property
    def kept(self) -> int:
        """How many bytes there are, at most."""
        return self._total - self._before[0] if self._before else 0

    def first_within(self, size: int) -> int:
        """Return the least known number behind which there are no more bytes than this."""
        at = bisect_left(self._before, self._total - size)
        return self._numbers[at] if at < len(self._numbers) else self.end

    def first_since(self, when_s: float) -> int:
        """Return the least known number behind which nothing came before a moment."""
        at = bisect_left(self._since, when_s)
        return self._numbers[at] if at < len(self._numbers) else self.end


class Weights:
    """The bytes of all streams, by their short numbers. step: how exactly, at first."""

    def __init__(
        self,
        known: Mapping[int, Weighed] | None = None,
        now_s: float = 0.0,
        *,
        step: int = STEP_BYTES,
    ) -> None:
        self._step = step
        self._of = {local: Weight(one, now_s) for local, one in (known or {}).items()}
        self._copies: dict[int, list[tuple[range, int]]] = {}

    def weighed(self) -> dict[int, Weighed]:
        """Return what a snapshot keeps."""
        return {local: one.weighed() for local, one in self._of.items()}

    def of(self, local: int) -> Weight:
        """Return the bytes of a stream."""
        return self._of.setdefault(local, Weight(step=self._step))

    def copy(self, local: int, numbers: range, size: int) -> None:
        """Note that a copy was appended: it counts when the stream is admitted."""
        copies = self._copies.setdefault(local, [])
        if copies and copies[-1][0].stop != numbers.start:
            copies.clear()  # of an admission that came to nothing
        copies.append((numbers, size))

    def admit(
        self, local: int, kept: int, now_s: float, end: int | None = None, *, begin: int = 0
    ) -> None:
        """Note an admission: the log keeps what lies before a number, and then its copies.

        begin: of the log then; if others have trimmed what follows `kept`, nothing is kept.
        """
        weight = self.of(local)
        weight.cut(kept if begin <= kept else 0)
        for numbers, size in self._copies.pop(local, ()):
            if numbers.start >= kept and (end is None or numbers.start < end):
                weight.add(numbers, size, now_s)
