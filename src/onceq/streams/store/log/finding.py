"""Finding frames in the segments of a log, by the index and the marks of the segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceq.streams.model import frames
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    Entry,
    Geometry,
    Unproven,
    decode_head,
    walk,
)

if TYPE_CHECKING:
    from onceq.streams.store.log.index import Run
    from onceq.streams.store.log.index_files import IndexFiles
    from onceq.streams.store.log.segments import Files


class Finder:
    """Reads what is synced in the segments of a log."""

    def __init__(self, files: Files, geometry: Geometry, marks: IndexFiles) -> None:
        self._files = files
        self._geometry = geometry
        self._marks = marks

    def frames(
        self, local: int, run: Run, number: int, synced: int
    ) -> Iterator[tuple[frames.Frame, bytes]]:
        """Yield the frames of a run of a stream, from the one with a number on, in a row.

        They end where one is damaged, or is not yet synced.
        """
        segment = self._geometry.number(run.position)
        begin = self._marks.of(segment).before(local, run, number)
        for entry in self.entries(segment, range(begin, min(run.stop, synced))):
            if not isinstance(entry, Entry) or entry.stream != local or entry.kind is not run.kind:
                continue
            if not entry.is_whole:
                continue
            frame = frames.decode(entry.payload)
            if frame.number <= number < frame.end:
                yield frame, entry.payload
                number = frame.end
            if number >= run.end:
                return

    def entries(self, segment: int, positions: range) -> Iterator[Entry | Unproven]:
        """Yield what is found between two positions of a segment."""
        head = decode_head(self._files.read_at(segment, 0, HEAD_BYTES))
        if head is None or not positions:
            return iter(())
        first = self._geometry.first(segment)
        return walk(
            lambda at, length: self._files.read_at(segment, at, length),
            range(positions.start - first, positions.stop - first),
            first,
            head.salt,
        )
