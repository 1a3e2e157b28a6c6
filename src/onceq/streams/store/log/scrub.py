"""Looking for damage in a segment of which everything was synced: which numbers are harmed. Pure.

What is whole says which numbers can be read; what lacks of a run cannot. So it does not matter
what the damage looks like: a flipped bit in a message, a header that is none, or a file cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onceq.streams.model import frames
from onceq.streams.store.log.entries import FRAMES, Entry, EntryKind, Unproven
from onceq.streams.store.log.index import Run

Harmed = dict[int, list[range]]
"""By the short numbers of streams: the numbers that cannot be read."""


@dataclass(slots=True)
class Whole:
    """Numbers that can be read, of frames that follow each other. last: the last one's position."""

    begin: int
    end: int
    position: int
    last: int


class Survey:
    """What can be read of a segment, before the position `bound`.

    has_damage: something in it is no entry, or not whole.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._whole: dict[tuple[int, EntryKind], list[Whole]] = {}
        self.has_damage = False

    def take(self, one: Entry | Unproven) -> None:
        """Take what was found next in the segment."""
        if isinstance(one, Unproven):
            self.has_damage |= one.end > one.position  # at the end of a file there is nothing
        elif not one.is_whole:
            self.has_damage = True
        elif one.kind in FRAMES:
            frame = frames.decode(one.payload)
            known = self._whole.setdefault((one.stream, one.kind), [])
            if known and known[-1].end == frame.number:
                known[-1].end, known[-1].last = frame.end, one.position
            else:
                known.append(Whole(frame.number, frame.end, one.position, one.position))

    def harmed(self, runs: Mapping[int, Iterable[Run]]) -> Harmed:
        """Return what cannot be read of some runs, which lie in the segment."""
        found = {
            local: [lost for run in ones for lost in self._lost(local, run)]
            for local, ones in runs.items()
        }
        return {local: ranges for local, ranges in found.items() if ranges}

    def _lost(self, local: int, run: Run) -> Iterator[range]:
        known = self._whole.get((local, run.kind), [])
        here = [one for one in known if run.position <= one.last and one.position < run.stop]
        number = run.begin
        for one in sorted(here, key=lambda whole: whole.begin):
            if number < min(one.begin, run.end):
                yield range(number, min(one.begin, run.end))
            number = max(number, one.end)
        if number < run.end and run.stop <= self._bound:
            yield range(number, run.end)
