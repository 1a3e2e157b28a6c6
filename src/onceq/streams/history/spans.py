"""Values of numbers, kept as ranges: what many numbers in a row have alike takes little room."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")
Span = tuple[int, int, V]
"""The first and the last of numbers in a row, and their value."""


class Spans(Generic[V]):
    """Which numbers have which value. Ranges ascend, do not overlap, and are as long as can be."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._rest: list[tuple[int, V]] = []

    def put(self, first: int, last: int, value: V) -> None:
        """Give numbers a value, whatever they had before."""
        begin = bisect_left(self._firsts, first)
        if begin and self._rest[begin - 1][0] >= first - 1:
            begin -= 1
        end = bisect_right(self._firsts, last + 1)
        before: list[Span[V]] = []
        after: list[Span[V]] = []
        low, high = first, last
        for known, until, its in [*self._between(begin, end)]:
            if its == value:
                low, high = min(low, known), max(high, until)
                continue
            if known < first:
                before.append((known, min(until, first - 1), its))
            if until > last:
                after.append((max(known, last + 1), until, its))
        self._replace(begin, end, [*before, (low, high, value), *after])

    def cut(self, first: int) -> None:
        """Take the values of all numbers from this one on."""
        begin = bisect_left(self._firsts, first)
        kept = [one for one in self._between(max(0, begin - 1), begin) if one[1] >= first]
        self._replace(begin - len(kept), len(self._firsts), [(k, first - 1, v) for k, _, v in kept])

    def remove(self, first: int, last: int) -> None:
        """Take the values of these numbers."""
        behind = list(self.over(last + 1, self.end))
        self.cut(first)
        for known, until, value in behind:
            self.put(known, until, value)

    def over(self, first: int, last: int) -> Iterator[Span[V]]:
        """Yield the ranges between two numbers that have a value."""
        begin = bisect_right(self._firsts, first)
        if begin and self._rest[begin - 1][0] >= first:
            begin -= 1
        for known, until, value in self._between(begin, bisect_right(self._firsts, last)):
            yield max(known, first), min(until, last), value

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two numbers that have no value."""
        number = first
        for known, until, _ in self.over(first, last):
            if number < known:
                yield number, known - 1
            number = until + 1
        if number <= last:
            yield number, last

    def __iter__(self) -> Iterator[Span[V]]:
        return self._between(0, len(self._firsts))

    @property
    def end(self) -> int:
        """The number behind the last one; 0: there is none."""
        return self._rest[-1][0] + 1 if self._rest else 0

    @property
    def count(self) -> int:
        """How many numbers have a value."""
        return sum(until - known + 1 for known, until, _ in self)

    def _between(self, begin: int, end: int) -> Iterator[Span[V]]:
        for at in range(begin, end):
            until, value = self._rest[at]
            yield self._firsts[at], until, value

    def _replace(self, begin: int, end: int, made: list[Span[V]]) -> None:
        self._firsts[begin:end] = [known for known, _, _ in made]
        self._rest[begin:end] = [(until, value) for _, until, value in made]
