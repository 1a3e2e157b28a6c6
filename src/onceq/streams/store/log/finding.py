"""Finding frames in the segments of a log, by the index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from onceq.streams.model import frames
from onceq.streams.store.log.entries import (
    FRAMES,
    HEAD_BYTES,
    HEADER_BYTES,
    Entry,
    Geometry,
    decode,
    decode_head,
)

if TYPE_CHECKING:
    from onceq.streams.store.log.index import Found, Index
    from onceq.streams.store.log.segments import Files

READ_BYTES: Final = frames.FRAME_BYTES_MAX + HEADER_BYTES
"""What is read at a time: as much as the largest frame takes."""


class Finder:
    """Reads what is committed in the segments of a log."""

    def __init__(self, files: Files, geometry: Geometry) -> None:
        self._files = files
        self._geometry = geometry

    def frames_at(
        self, index: Index, local: int, number: int
    ) -> Iterator[tuple[frames.Frame, bytes]]:
        """Yield frames of a stream, from one at or before a number on, up to the end of its run."""
        moved = index.moved(local, number)
        if moved is None:
            yield from self._frames(local, index.find(local, number))
            return
        for entry in itertools.islice(self._entries(moved), 1):
            yield frames.decode(entry.payload), entry.payload

    def _frames(self, local: int, found: Found | None) -> Iterator[tuple[frames.Frame, bytes]]:
        """Yield the whole frames of a stream in one run, from a mark on."""
        if found is None:
            return
        for entry in self._entries(found.position):
            if entry.stream == local and entry.kind in FRAMES and entry.is_whole:
                frame = frames.decode(entry.payload)
                if found.until is not None and frame.number >= found.until:
                    return
                yield frame, entry.payload

    def _entries(self, position: int) -> Iterator[Entry]:
        """Yield the entries of a segment, from a position on, up to the first that is none."""
        segment = self._geometry.number(position)
        head = decode_head(self._files.read_at(segment, 0, HEAD_BYTES))
        if head is None:
            return
        data = memoryview(b"")
        at = 0
        while True:
            entry = decode(data, at, position, head.salt)
            if (entry is None and at > 0) or not data:
                offset = self._geometry.offset(position)
                data = memoryview(self._files.read_at(segment, offset, READ_BYTES))
                at = 0
                entry = decode(data, at, position, head.salt)
            if entry is None:
                return
            yield entry
            at += entry.end - position
            position = entry.end
