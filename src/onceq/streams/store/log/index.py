"""Where the numbers of a stream are in a log. Pure.

A *run* begins where a stream goes on in another segment, or after its log was cut: runs are kept in
snapshots. Between them there are finer marks, in memory only: one in 64 KiB. A reader begins at the
last mark that is not behind the number that it looks for, and reads on. Entries that were cut lie
before the next run: a reader stops at the number with which that begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from onceq.streams.store.log.entries import Geometry

MARK_BYTES: Final = 64 << 10

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a number and the position of its entry, both ascending."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin to read: the entry of `number` is at `position`.

    until: the number with which the next run begins; None: it is the last one.
    """

    number: int
    position: int
    until: int | None


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot keeps of a stream.

    copies: those whose admission is still to come. moved: frames that were written again, since
    they were damaged where they were.
    """

    runs: Runs = ()
    copies: Runs = ()
    moved: Runs = ()


class Index:
    """The places of the streams of a store, by their short numbers."""

    def __init__(self, geometry: Geometry, places: Mapping[int, Places] | None = None) -> None:
        self._geometry = geometry
        known = places or {}
        self._runs = {local: list(one.runs) for local, one in known.items()}
        self._marks = {local: list(one.runs) for local, one in known.items()}
        self._copies = {local: list(one.copies) for local, one in known.items() if one.copies}
        self._moved = {local: dict(one.moved) for local, one in known.items() if one.moved}
        self._cut: set[int] = set()

    def places(self) -> dict[int, Places]:
        """Return what a snapshot keeps."""
        return {
            local: Places(
                runs=tuple(self._runs.get(local, ())),
                copies=tuple(self._copies.get(local, ())),
                moved=tuple(sorted(self._moved.get(local, {}).items())),
            )
            for local in self._runs.keys() | self._copies.keys()
        }

    def add(self, local: int, number: int, position: int) -> None:
        """Note that a frame was appended, which begins with a number."""
        runs = self._runs.setdefault(local, [])
        marks = self._marks.setdefault(local, [])
        segment = self._geometry.number(position)
        if local in self._cut or not runs or self._geometry.number(runs[-1][1]) != segment:
            self._cut.discard(local)
            runs.append((number, position))
            marks.append((number, position))
        elif position - marks[-1][1] >= MARK_BYTES:
            marks.append((number, position))

    def copy(self, local: int, number: int, position: int) -> None:
        """Note that a copy was appended: it counts when the stream is admitted."""
        copies = self._copies.setdefault(local, [])
        if copies and copies[-1][0] >= number:
            copies.clear()  # of an admission that came to nothing
        copies.append((number, position))

    def move(self, local: int, number: int, position: int) -> None:
        """Note that the frame that begins with a number was written again."""
        self._moved.setdefault(local, {})[number] = position

    def moved(self, local: int, number: int) -> int | None:
        """Return where the frame with this first number was written again; None: it was not."""
        return self._moved.get(local, {}).get(number)

    def admit(self, local: int, kept: int) -> None:
        """Note an admission: the log keeps what lies before a number, and then its copies."""
        self._keep_moved(local, lambda number: number < kept)
        for ones in (self._runs.get(local, []), self._marks.get(local, [])):
            while ones and ones[-1][0] >= kept:
                ones.pop()
        self._cut.add(local)
        for number, position in self._copies.pop(local, ()):
            if number >= kept:
                self.add(local, number, position)
        self._cut.add(local)

    def trim(self, local: int, number: int) -> None:
        """Note that what lies before a number is given up."""
        self._keep_moved(local, lambda one: one >= number)
        for ones in (self._runs.get(local, []), self._marks.get(local, [])):
            while len(ones) > 1 and ones[1][0] <= number:
                ones.pop(0)

    def _keep_moved(self, local: int, kept: Callable[[int], bool]) -> None:
        moved = self._moved.pop(local, {})
        if left := {number: at for number, at in moved.items() if kept(number)}:
            self._moved[local] = left

    def in_segment(self, segment: int) -> dict[int, Runs]:
        """Return of each stream the runs that lie in a segment."""
        return {
            local: tuple(one for one in ones if self._geometry.number(one[1]) == segment)
            for local, ones in self._runs.items()
        }

    def run_end(self, local: int, number: int, end: int) -> int:
        """Return with which number the run of a number ends. end: of the stream's log."""
        runs = self._runs.get(local, [])
        behind = bisect_right(runs, number, key=_number)
        return runs[behind][0] if behind < len(runs) else end

    def find(self, local: int, number: int) -> Found | None:
        """Return where to read for a number; None: it is not here."""
        marks = self._marks.get(local, [])
        at = bisect_right(marks, number, key=_number) - 1
        if at < 0:
            return None
        runs = self._runs[local]
        behind = bisect_right(runs, marks[at][0], key=_number)
        until = runs[behind][0] if behind < len(runs) else None
        return Found(number=marks[at][0], position=marks[at][1], until=until)

    def segments(self) -> set[int]:
        """Return the segments in which something lies that is not given up."""
        listed = (*self._runs.values(), *self._copies.values())
        found = {self._geometry.number(at) for ones in listed for _, at in ones}
        moved = {self._geometry.number(at) for ones in self._moved.values() for at in ones.values()}
        return found | moved


def _number(one: tuple[int, int]) -> int:
    return one[0]
