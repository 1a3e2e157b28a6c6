"""Freeing segments: those in which nothing is needed, and those with little, once it is copied.

What is left of a segment that is less than half alive is written again at the end of the log; when
that is synced, nothing in the segment is needed any more. A step copies little, so that a store
goes on serving between two of them. A process may end at any moment: what was written again is in
the log, and what it came from stays until that is synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from onceq.streams.errors import StoreFull

if TYPE_CHECKING:
    from onceq.streams.store.disk_store import DiskStore
    from onceq.streams.store.log.index import Run
    from onceq.streams.store.records import Held

STEP_BYTES: Final = 1 << 20
ALIVE_MIN: Final = 0.5
"""A segment of which a lesser part is needed is copied forward."""


class Reclaiming:
    """Frees the segments of a store on a disk, step by step. copied: bytes, since it began."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._found: list[int] = []
        self._position = 0
        self._tried: dict[int, tuple[int, int]] = {}
        self.copied = 0

    def free(self) -> list[int]:
        """Free the segments in which nothing lies that is needed; return their numbers.

        Each waits until all is synced that was appended when it was found: what says so, too.
        """
        freed = self._unlink()
        if not self._found:
            self._found, self._position = self._dead(), self._store.log.end
            freed += self._unlink()
        return freed

    def _unlink(self) -> list[int]:
        if self._store.log.synced < self._position:
            return []
        found, self._found = self._found, []
        for number in found:
            self._store.files.unlink(number)
            self._store.marks.forget(number)
            self._tried.pop(number, None)
        return found

    def _dead(self) -> list[int]:
        needed, last = self._store.index.alive(), self._store.log.segment
        return [n for n in self._store.files.numbers() if n < last and n not in needed]

    def step(self) -> int:
        """Copy forward some of the oldest segment of which little is needed; return how many bytes.

        0: there is none, or no room.
        """
        segment = self._sparse()
        if segment is None:
            return 0
        before = self.copied
        try:
            self._copy(segment)
        except StoreFull:
            return self.copied - before
        if self.copied == before:
            self._tried[segment] = self._state(segment)
            self._store.scrub(segment)  # what is harmed must be repaired before the rest can go
        return self.copied - before

    def _sparse(self) -> int | None:
        alive, synced = self._store.index.alive(), self._store.log.synced
        least = ALIVE_MIN * self._store.geometry.segment_bytes
        for number in sorted(one for one, size in alive.items() if size < least):
            if number >= self._store.geometry.number(synced):
                return None
            is_sparse = alive[number] < ALIVE_MIN * self._store.files.size(number)
            if is_sparse and self._tried.get(number) != self._state(number):
                return number
        return None

    def _state(self, segment: int) -> tuple[int, int]:
        """Return what must change before a segment that could not be copied is tried again."""
        damaged = sum(len(held.damaged) for held in self._store.catalogue.streams.values())
        return self._store.index.alive()[segment], damaged

    def _copy(self, segment: int) -> None:
        until = self.copied + STEP_BYTES
        for local, runs in self._store.index.in_segment(segment).items():
            held = self._store.catalogue.of_local(local)
            for run, numbers in _whole(held, runs):
                synced = self._store.log.synced
                for frame, data in self._store.finder.frames(local, run, numbers.start, synced):
                    if frame.number >= numbers.stop:
                        break
                    self._store.append_again(local, frame, data)
                    self.copied += len(data)
                    if self.copied >= until:
                        return


def _whole(held: Held | None, runs: tuple[Run, ...]) -> Iterator[tuple[Run, range]]:
    """Yield the parts of runs that are not known to be damaged."""
    damaged = () if held is None else held.damaged
    for run in runs:
        number = run.begin
        for lost in (*(n for n in damaged if run.begin <= n < run.end), run.end):
            if number < lost:
                yield run, range(number, lost)
            number = lost + 1
