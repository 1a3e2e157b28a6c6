"""Where the numbers of a stream are in a log: in which segment, from which position on. Pure.

A *run* is a range of numbers that lie one behind the other in one segment, as entries of one kind.
Runs are all that is in memory, and in snapshots; where to begin to read within one is told by the
marks of its segment. A run ends where a stream goes on in another segment, or after its log was
cut, or where frames were written again elsewhere. Runs ascend by their numbers; their positions
do not, once frames were written again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from onceq.streams.store.log.entries import EntryKind, Geometry


class Run(msgspec.Struct, array_like=True, kw_only=True):
    """Numbers from `begin` to before `end`, whose entries lie from a position to before `stop`.

    size: the bytes of their entries; about, if some were given up. Other entries may lie between
    them, and some of this stream and kind that were given up before, behind or between: what is
    read for a number is the first entry here that has it.
    """

    begin: int
    end: int
    position: int
    stop: int
    size: int
    kind: EntryKind

    def part(self, begin: int, end: int) -> Run:
        """Return the part of it between two numbers."""
        size = self.size * (end - begin) // (self.end - self.begin)
        return msgspec.structs.replace(self, begin=begin, end=end, size=size)

    def extend(self, behind: Run) -> None:
        """Take what follows it in its segment."""
        self.end, self.stop, self.size = behind.end, behind.stop, self.size + behind.size


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot keeps of a stream. copies: those whose admission is still to come."""

    runs: tuple[Run, ...] = ()
    copies: tuple[Run, ...] = ()


class Index:
    """The runs of the streams of a store, by their short numbers."""

    def __init__(self, geometry: Geometry, places: Mapping[int, Places] | None = None) -> None:
        self._geometry = geometry
        known = places or {}
        self._runs = {local: _own(one.runs) for local, one in known.items()}
        self._copies = {local: _own(one.copies) for local, one in known.items() if one.copies}
        self._cut: set[int] = set()
        self._moving: dict[int, Run] = {}

    def places(self) -> dict[int, Places]:
        """Return what a snapshot keeps."""
        return {
            local: Places(
                runs=tuple(_own(self._runs.get(local, ()))),
                copies=tuple(_own(self._copies.get(local, ()))),
            )
            for local in self._runs.keys() | self._copies.keys()
        }

    def _run(self, numbers: range, position: int, size: int, kind: EntryKind) -> Run:
        return Run(
            begin=numbers.start,
            end=numbers.stop,
            position=position,
            stop=position + size,
            size=size,
            kind=kind,
        )

    def _goes_on(self, before: Run, made: Run) -> bool:
        """Whether an entry belongs to a run: it follows in its segment, and is of its kind."""
        segments = {self._geometry.number(one.position) for one in (before, made)}
        return before.end == made.begin and before.kind is made.kind and len(segments) == 1

    def add(self, local: int, numbers: range, position: int, size: int) -> None:
        """Note that a frame with some numbers was appended, as an entry of a size."""
        runs = self._runs.setdefault(local, [])
        made = self._run(numbers, position, size, EntryKind.FRAME)
        if local not in self._cut and runs and self._goes_on(runs[-1], made):
            runs[-1].extend(made)
            return
        self._cut.discard(local)
        runs.append(made)

    def copy(self, local: int, numbers: range, position: int, size: int) -> None:
        """Note that a copy was appended: it counts when the stream is admitted."""
        copies = self._copies.setdefault(local, [])
        made = self._run(numbers, position, size, EntryKind.COPY)
        if copies and copies[-1].end != made.begin:
            copies.clear()  # of an admission that came to nothing
        if copies and self._goes_on(copies[-1], made):
            copies[-1].extend(made)
        else:
            copies.append(made)

    def move(self, local: int, numbers: range, position: int, size: int) -> None:
        """Note that a frame was written again."""
        runs = self._runs.setdefault(local, [])
        at = _at(runs, numbers.stop - 1)
        old = runs[at] if at >= 0 and runs[at].end >= numbers.stop else None
        begin = numbers.start if old is None else max(numbers.start, old.begin)
        made = self._run(range(begin, numbers.stop), position, size, EntryKind.RELOCATED)
        pieces: list[Run] = []
        if old is not None and old.begin < begin:
            pieces.append(old.part(old.begin, begin))
        before = runs[at - 1] if old is not None and not pieces and at > 0 else None
        if before is not None and before is self._moving.get(local) and self._goes_on(before, made):
            before.extend(made)
        else:
            pieces.append(made)
            self._moving[local] = made
        if old is not None and made.end < old.end:
            pieces.append(old.part(made.end, old.end))
        runs[at if old is not None else at + 1 : at + 1] = pieces

    def admit(self, local: int, kept: int, end: int | None = None) -> None:
        """Note an admission: the log keeps what lies before a number, and then its copies.

        end: of the log; copies beyond it are of an admission that came to nothing.
        """
        runs = self._runs.setdefault(local, [])
        while runs and runs[-1].begin >= kept:
            runs.pop()
        if runs and runs[-1].end > kept:
            runs[-1] = runs[-1].part(runs[-1].begin, kept)
        for one in self._copies.pop(local, ()):
            numbers = range(max(one.begin, kept), one.end if end is None else min(one.end, end))
            if numbers:
                runs.append(one.part(numbers.start, numbers.stop))
        self._cut.add(local)
        self._moving.pop(local, None)

    def trim(self, local: int, number: int) -> None:
        """Note that what lies before a number is given up."""
        runs = self._runs.get(local, [])
        while runs and runs[0].end <= number:
            runs.pop(0)
        if runs and runs[0].begin < number:
            runs[0] = runs[0].part(number, runs[0].end)

    def drop(self, local: int, gone: Iterable[Run]) -> None:
        """Note that some runs are not there."""
        left = [one for one in self._runs[local] if one not in gone]
        self._runs[local] = left

    def find(self, local: int, number: int) -> Run | None:
        """Return the run that has a number; None: it is not here."""
        runs = self._runs.get(local, [])
        at = _at(runs, number)
        return runs[at] if at >= 0 and number < runs[at].end else None

    def lacking(self, local: int, numbers: range) -> list[range]:
        """Return which of some numbers of a stream are in no run."""
        found: list[range] = []
        number = numbers.start
        for one in self._runs.get(local, ()):
            if number < min(one.begin, numbers.stop):
                found.append(range(number, min(one.begin, numbers.stop)))
            number = max(number, one.end)
        return found if number >= numbers.stop else [*found, range(number, numbers.stop)]

    def in_segment(self, segment: int) -> dict[int, tuple[Run, ...]]:
        """Return of each stream the runs that lie in a segment."""
        found = {
            local: tuple(one for one in ones if self._geometry.number(one.position) == segment)
            for local, ones in self._runs.items()
        }
        return {local: ones for local, ones in found.items() if ones}

    def alive(self) -> dict[int, int]:
        """Return of each segment in which something is not given up how many bytes that takes."""
        found: defaultdict[int, int] = defaultdict(int)
        for ones in (*self._runs.values(), *self._copies.values()):
            for one in ones:
                found[self._geometry.number(one.position)] += one.size
        return dict(found)


def _own(runs: Iterable[Run]) -> list[Run]:
    """Return runs of one's own, since a run grows."""
    return [msgspec.structs.replace(one) for one in runs]


def _at(runs: list[Run], number: int) -> int:
    """Return where in a list the last run is that begins at or before a number; -1: none does."""
    return bisect_right(runs, number, key=_begin) - 1


def _begin(run: Run) -> int:
    return run.begin
