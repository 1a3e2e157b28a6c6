"""Which numbers a source gives up, and what its application is told of the others. Pure.

A number that is not stable can be given up. That begins an epoch: if the log that it goes on with
lacks the number, that is sent as void; if it has it, it is stable, and not given up at all.
Source: streams.md 5; spec M12, M14, M15.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.model import events


class GivingUp:
    """asked: numbers that the next epoch is to give up. void: that were, and are still kept.

    lost: that are void since they were lost before this life, and a person accepted that.
    """

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.void: set[int] = set()
        self.lost = range(0)

    def begin(self, end: int) -> list[int]:
        """Return what an epoch gives up. end: of the log that it goes on with."""
        gone = sorted(one for one in self.asked if one >= end)
        self.asked.clear()
        self.void.update(gone)
        return gone

    def stable(self, stream: int, begin: int, below: int) -> Iterator[events.Stable]:
        """Yield what is told when numbers are stable: that the messages among them are."""
        self.asked = {one for one in self.asked if one >= below}
        for numbers in self._messages(begin, below):
            yield events.Stable(stream=stream, first=numbers.start, last=numbers.stop - 1)

    def released(
        self, stream: int, begin: int, below: int, *, forced: bool
    ) -> Iterator[events.Reclaimed]:
        """Yield what is told when numbers are kept no more: of those given up it was told."""
        for numbers in self._messages(begin, below):
            yield events.Reclaimed(
                stream=stream, first=numbers.start, last=numbers.stop - 1, forced=forced
            )
        if self.void:
            self.void = {one for one in self.void if one >= below}

    def messages(self, numbers: range) -> Iterator[range]:
        """Yield the rows of some numbers that were not given up."""
        return self._messages(numbers.start, numbers.stop)

    def _messages(self, begin: int, below: int) -> Iterator[range]:
        """Yield the ranges between two numbers of what was not given up."""
        void = [range(one, one + 1) for one in self.void if begin <= one < below]
        for gone in sorted([*void, self.lost], key=_start):
            if begin < min(gone.start, below):
                yield range(begin, min(gone.start, below))
            begin = max(begin, gone.stop)
        if begin < below:
            yield range(begin, below)


def _start(numbers: range) -> int:
    return numbers.start


def given_up(stream: int, numbers: list[int]) -> Iterator[events.Reclaimed]:
    """Yield for each number that it was given up."""
    for number in numbers:
        yield events.Reclaimed(stream=stream, first=number, last=number, forced=True, unstable=True)
