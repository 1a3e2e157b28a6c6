"""The log of a stream, as the lives of its source tell it: whose each number is for ever."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from onceq.streams.history.facts import SourceLife, Stream
from onceq.streams.history.spans import Spans

NOBODY: Final = -1


class Log:
    """Whose the numbers are. lives: by epoch, of the lives that could send; doubles: of several.

    owners: by number, the life whose content stays: the last that began at or before it. A life
    cuts what lies behind where its first epoch begins; its later ones send the same again. What is
    lost, and accepted as that, is nobody's (lost: of all lives).
    """

    def __init__(self, stream: Stream) -> None:
        self.lives: dict[int, SourceLife] = {}
        self.doubles: list[tuple[int, int, int]] = []
        for life in stream.lives.values():
            for epoch, _ in life.epochs:
                known = self.lives.setdefault(epoch, life)
                if known is not life:
                    self.doubles.append((epoch, known.life, life.life))
        firsts = sorted(
            (*min(life.epochs), life.life) for life in stream.lives.values() if life.epochs
        )
        self.firsts: list[tuple[int, int, int]] = firsts
        self._epochs = [epoch for epoch, _, _ in firsts]
        self._cuts = [number for _, number, _ in firsts]
        for at in range(len(firsts) - 2, -1, -1):
            self._cuts[at] = min(self._cuts[at], self._cuts[at + 1])
        self.lost = Spans[bool]()
        for first, last, _ in (row for life in stream.lives.values() for row in life.lost):
            self.lost.put(first, last, value=True)
        self.owners = _owners(stream, firsts)
        self._sources = stream.lives
        self._stores = stream.stores

    def cut_after(self, epoch: int) -> int | None:
        """Return the first number that a later life than that of an epoch cut; None: none did."""
        at = bisect_right(self._epochs, epoch)
        return self._cuts[at] if at < len(self._cuts) else None

    def cut_between(self, epoch: int, until: int) -> int | None:
        """Return the first number that a life cut which began behind an epoch, up to another."""
        numbers = [number for its, number, _ in self.firsts if epoch < its <= until]
        return min(numbers, default=None)

    @property
    def stable_below(self) -> int:
        """All below is stable, as some life was told, or found when it began."""
        ends = [life.stable.end for life in self._sources.values()]
        return max([*ends, *(number for _, number, _ in self.firsts)], default=0)

    def stays(self, epoch: int, first: int, last: int) -> Spans[bool]:
        """Return which of some numbers of an epoch are stable, and stay as they are.

        A life sends again in a later epoch what it was not told of: that is stable, too, and its
        own. Of what it was told then, that stays as it was which a store has of the former epoch.
        """
        stay = Spans[bool]()
        life = self.lives.get(epoch)
        for begin, end, told in () if life is None else life.stable.over(first, last):
            if told <= epoch:
                stay.put(begin, end, value=True)
                continue
            for low, high, (its, _, is_void) in self._held(begin, end):
                if its == epoch and not is_void:
                    stay.put(low, high, value=True)
        return stay

    def _held(self, first: int, last: int) -> Iterator[tuple[int, int, tuple[int, str, bool]]]:
        for store in self._stores.values():
            yield from store.held.over(first, last)

    def is_given_up(self, first: int, last: int) -> bool:
        """Whether some of these numbers were given up by a life, or lost and accepted as that."""
        return any(self.lost.over(first, last)) or any(
            any(one.given_up.over(first, last)) for one in self._sources.values()
        )

    def contents(self, first: int, last: int) -> Iterator[tuple[int, int, str]]:
        """Yield what stays of the numbers between two that some life sent, and did not give up."""
        for begin, end, life in self.owners.over(first, last):
            own = self._sources[life]
            for low, high in own.given_up.gaps(begin, end):
                yield from own.sent.over(low, high)


def _owners(stream: Stream, firsts: list[tuple[int, int, int]]) -> Spans[int]:
    """Return whose each number is. firsts: each life's first epoch, with its first number."""
    owners = Spans[int]()
    for _, number, its in firsts:
        life = stream.lives[its]
        for first, last, _ in life.lost:
            owners.remove(first, last)
        owners.cut(number)
        for first, last, _ in life.sent.over(number, life.sent.end):
            owners.put(first, last, its)
    return owners
