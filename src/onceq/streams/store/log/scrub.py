"""Looking for damage in a segment of which everything was synced: which numbers are harmed. Pure.

A frame whose header is whole says whose it is, and the frames around it say which numbers it had.
Where not even a header is whole, every stream that has a hole there is harmed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from onceq.streams.model import frames
from onceq.streams.store.log.entries import FRAMES, Entry, Unproven
from onceq.streams.store.log.index import Runs

Harmed = dict[int, list[range]]
"""By the short numbers of streams: the numbers that cannot be read."""


def harmed(
    found: Iterable[Entry | Unproven], runs: Mapping[int, Runs], ends: Mapping[int, int]
) -> Harmed:
    """Return what is damaged in a segment.

    found: what was read of it. runs: of each stream, those that lie in the segment. ends: of each
    stream, the number with which the last of them ends.
    """
    walks = {local: _Walk(ones, ends[local]) for local, ones in runs.items() if ones}
    for one in found:
        if isinstance(one, Unproven):
            for walk in walks.values():
                walk.pass_by(one.end)
        elif one.kind in FRAMES and one.stream in walks:
            walks[one.stream].meet(one)
    result: Harmed = defaultdict(list)
    for local, walk in walks.items():
        result[local] += walk.finish()
    return {local: ranges for local, ranges in result.items() if ranges}


class _Walk:
    """Follows the frames of one stream through a segment. next: the number that must come."""

    def __init__(self, runs: Runs, end: int) -> None:
        self._runs = list(runs)
        self._end = end
        self._next: int | None = None
        self._harmed: list[range] = []

    def pass_by(self, position: int) -> None:
        """What lies before a position is passed: runs that began there have begun."""
        while self._runs and self._runs[0][1] < position:
            self._begin()

    def _begin(self) -> None:
        number, _ = self._runs.pop(0)
        if self._next is not None and self._next < number:
            self._harm(number)
        self._next = number

    def meet(self, entry: Entry) -> None:
        """Take the next frame of the stream."""
        self.pass_by(entry.position + 1)
        if self._next is None or not entry.is_whole:
            return
        frame = frames.decode(entry.payload)
        if frame.number > self._next and not self._runs_hold(frame.number):
            self._harm(frame.number)
        if frame.number == self._next:
            self._next = frame.end

    def _runs_hold(self, number: int) -> bool:
        """Whether a number belongs to a run that is still to come: this one was cut."""
        limit = self._runs[0][0] if self._runs else self._end
        return number >= limit

    def _harm(self, until: int) -> None:
        if self._next is not None:
            self._harmed.append(range(self._next, until))
            self._next = until

    def finish(self) -> list[range]:
        """Return what was found harmed, now that the segment is at its end."""
        while self._runs:
            self._begin()
        if self._next is not None and self._next < self._end:
            self._harm(self._end)
        return self._harmed
