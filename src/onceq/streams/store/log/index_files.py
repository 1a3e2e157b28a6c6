"""The marks of all segments: of those that are written to in memory, of the others beside them.

A few files of marks are kept at hand. One that is missing, damaged or another segment's is made
anew. Whoever appends notes and asks; `write` is called by the thread that commits.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from onceq.streams.store.log import marks
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    EntryKind,
    Geometry,
    SegmentHead,
    decode_head,
    walk,
)
from onceq.streams.store.log.marks import Marks

if TYPE_CHECKING:
    from onceq.streams.store.log.segments import Files

AT_HAND_MAX: Final = 16


class IndexFiles:
    """Gives the marks of a segment. made: how many files were made anew since the store began."""

    def __init__(self, files: Files, geometry: Geometry) -> None:
        self._files = files
        self._geometry = geometry
        self._unwritten: dict[int, Marks] = {}
        self._at_hand: dict[int, Marks] = {}
        self._lock = threading.Lock()
        self.made = 0

    def note(self, local: int, kind: EntryKind, number: int, position: int) -> None:
        """Note a frame that was appended."""
        segment = self._geometry.number(position)
        self._unwritten.setdefault(segment, Marks()).note(local, kind, number, position)

    def write(self, head: SegmentHead) -> None:
        """Write the marks of a segment that is sealed. On a full disk there are none beside it."""
        known = self._unwritten.get(head.number, Marks())
        self._files.write_index(head.number, marks.encode(known, head))
        self._keep(head.number, known)
        self._unwritten.pop(head.number, None)

    def _keep(self, segment: int, known: Marks) -> None:
        with self._lock:
            self._at_hand.pop(segment, None)
            self._at_hand[segment] = known
            while len(self._at_hand) > AT_HAND_MAX:
                self._at_hand.pop(next(iter(self._at_hand)))

    def of(self, segment: int) -> Marks:
        """Return the marks of a segment."""
        known = self._unwritten.get(segment) or self._at_hand.get(segment)
        if known is None:
            known = self._read(segment)
            self._keep(segment, known)
        return known

    def _read(self, segment: int) -> Marks:
        head = decode_head(self._files.read_at(segment, 0, HEAD_BYTES))
        if head is None:
            return Marks()  # nothing in it can be read
        data = self._files.read_index(segment)
        found = None if data is None else marks.decode(data, head)
        return self._make(head) if found is None else found

    def _make(self, head: SegmentHead) -> Marks:
        """Make the marks of a sealed segment anew, and write them."""
        found = walk(
            lambda at, length: self._files.read_at(head.number, at, length),
            range(HEAD_BYTES, self._files.size(head.number)),
            self._geometry.first(head.number),
            head.salt,
        )
        made = marks.marked(found)
        self._files.write_index(head.number, marks.encode(made, head))
        self.made += 1
        return made

    def forget(self, segment: int) -> None:
        """Note that a segment was freed."""
        with self._lock:
            self._at_hand.pop(segment, None)
