"""Appending to a log, and syncing what was appended: by one thread each.

Whoever appends gets a position at once; `commit`, in another thread, writes all that came meanwhile
and syncs it, once. Nothing is acknowledged before `synced` has passed its position. A segment is
synced as a whole before the next one begins, so that a segment that is there proves that all before
it is on the disk. After an error of the disk nothing more is written: the process must end, since
nobody knows what the disk has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from onceq.streams.errors import StoreFull
from onceq.streams.store.log import entries
from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    Entry,
    EntryKind,
    Geometry,
    SegmentHead,
    size_of,
)
from onceq.streams.store.log.segments import Files

RESERVED: Final = 2
"""Spare segments that are kept for everything but new frames: a full store frees and fences."""
_KEPT_FROM: Final = {EntryKind.FRAME: RESERVED, EntryKind.COPY: RESERVED, EntryKind.RELOCATED: 1}
"""How many spare segments an entry must leave: what is copied forward frees more than it takes."""
SPARES: Final = RESERVED + 1


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What waits to be written: the bytes of an entry, in a segment."""

    segment: int
    offset: int
    data: bytes


class Log:
    """The end of a log. snapshot: returns what each segment begins with; salt: a number, anew.

    number: of the first segment that it will make. Appends come from one thread, commits from one.
    sealed: called by the latter with the head of a segment to which nothing more is written.
    """

    def __init__(
        self,
        files: Files,
        geometry: Geometry,
        *,
        store: bytes,
        number: int,
        salt: Callable[[], int],
        snapshot: Callable[[], bytes],
    ) -> None:
        self.files = files
        self.geometry = geometry
        self.synced = geometry.first(number)
        self.end = geometry.first(number)
        self.failed: OSError | None = None
        self.sealed: Callable[[SegmentHead], None] = _untold
        self._store = store
        self._salt = salt
        self._snapshot = snapshot
        self._heads: dict[int, SegmentHead] = {}
        self._current = SegmentHead(number=number, salt=0, store=store)
        self._next = number
        self._room_end = self.end
        self._spares = len(files.spares())
        self._pending: list[Written] = []
        self._lock = threading.Lock()
        self._open: tuple[SegmentHead, int] | None = None
        self._used = 0

    def has_room(self, size: int, kind: EntryKind) -> bool:
        """Whether an entry with a payload of this size can be appended now."""
        if self.end + entries.HEADER_BYTES + size <= self._room_end:
            return True
        return self._spares > _KEPT_FROM.get(kind, 0)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for the next segment of frames."""
        return self._spares <= RESERVED

    def append(self, kind: EntryKind, stream: int, payload: bytes) -> int:
        """Append an entry; return the position after it, which `synced` must pass.

        Raises StoreFull, and then nothing was appended.
        """
        if not self.has_room(len(payload), kind):
            raise StoreFull(
                "the store has no room: free space on its disk, or deregister who never comes back"
            )
        return self._append(kind, stream, payload)

    def append_again(self, kind: EntryKind, stream: int, payload: bytes) -> int:
        """Append what was in the log before it was opened, also if that needs the room reserved.

        Raises StoreFull if there is not even that.
        """
        if not self.has_room(len(payload), EntryKind.SNAPSHOT):
            raise StoreFull("the store has no room to open its log: free space on its disk")
        return self._append(kind, stream, payload)

    def _append(self, kind: EntryKind, stream: int, payload: bytes) -> int:
        if self.end + size_of(payload) > self._room_end:
            self._roll()
        return self._add(kind, stream, payload)

    def renew(self) -> None:
        """Go on in a new segment, whose snapshot replaces what is damaged in this one.

        Raises StoreFull if there is none.
        """
        if self._spares == 0:
            raise StoreFull("the store has no room for a segment: free space on its disk")
        self._roll()

    @property
    def segment(self) -> int:
        """The number of the segment to which it appends; -1 before the first."""
        return self._next - 1

    def _roll(self) -> None:
        """Go on in a new segment, which begins with a snapshot."""
        number = self._next
        self._next += 1
        with self._lock:
            self._spares -= 1
        self._current = SegmentHead(number=number, salt=self._salt(), store=self._store)
        self._heads[number] = self._current
        first = self.geometry.first(number)
        self.end = first + HEAD_BYTES
        self._room_end = first + self.geometry.segment_bytes
        self._add(EntryKind.SNAPSHOT, 0, self._snapshot())

    def _add(self, kind: EntryKind, stream: int, payload: bytes) -> int:
        made = Entry(
            kind=kind, stream=stream, position=self.end, synced=self.synced, payload=payload
        )
        if made.end > self._room_end:
            raise StoreFull(f"an entry of {len(payload)} bytes does not fit into a segment")
        data = entries.encode(made, self._current.salt)
        with self._lock:
            offset = self.geometry.offset(self.end)
            self._pending.append(Written(segment=self._current.number, offset=offset, data=data))
            self.end = made.end
        return made.end

    def has_pending(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._pending)

    def commit(self) -> int:
        """Write and sync all that was appended; return the position up to which that is done.

        Raises OSError if the disk fails: what was appended then counts as never written, and every
        later commit raises too.
        """
        if self.failed is not None:
            raise self.failed
        with self._lock:
            taken, self._pending = self._pending, []
            end = self.end
        try:
            self._write(taken)
        except OSError as error:
            self.failed = error
            raise
        if taken:
            self.synced = end
        return self.synced

    def _write(self, taken: list[Written]) -> None:
        at = 0
        while at < len(taken):
            number = taken[at].segment
            until = at
            while until < len(taken) and taken[until].segment == number:
                until += 1
            handle = self._handle(number)
            self.files.write(handle, [one.data for one in taken[at:until]], taken[at].offset)
            self.files.sync(handle)
            self._used = taken[until - 1].offset + len(taken[until - 1].data)
            at = until

    def _handle(self, number: int) -> int:
        if self._open is not None and self._open[0].number != number:
            before, handle = self._open
            self.files.close(handle)
            self.files.cut(before.number, self._used)
            self._open = None
            self.sealed(before)
        if self._open is None:
            head = self._heads.pop(number)
            self._open = (head, self.files.begin(head))
        return self._open[1]

    def prepare(self) -> bool:
        """Reserve spare segments, if there are too few; return whether there are enough now."""
        while self._spares < SPARES:
            if not self.files.make_spare(self.geometry.segment_bytes):
                return False
            with self._lock:
                self._spares += 1
        return True

    def close(self) -> None:
        """Close the file; what was not committed is given up."""
        if self._open is not None:
            self.files.close(self._open[1])
            self._open = None


def _untold(_: SegmentHead) -> None:
    """Do nothing: nobody wants to know what is sealed."""
