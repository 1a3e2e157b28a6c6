"""What is found when a log is opened: what counts, what is cut, and what was damaged. Pure.

The end of the last segment may be torn: what was written and not synced when the machine stopped.
Each entry says how far the log was synced when it was made. So bytes that are no entry, and that
no later entry says were synced, are a torn tail: nobody was told of them, and they are cut. If one
says so, they had been acknowledged: that is damage, and nothing is cut.

Damage whose header is whole is proven to be a frame, and the store can fetch it from others.
What is not proven may have been a promise: the store then counts as one that forgot.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onceq.streams.store.log.entries import (
    HEAD_BYTES,
    Entry,
    EntryKind,
    SegmentHead,
    Unproven,
    scan,
)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What the last segment has.

    entries: that count, in order; those with a damaged frame too. end: where they end, and what is
    cut begins. synced: as far as some entry says; what lies above was written and perhaps never
    synced. unproven: whether something was acknowledged of which nobody knows what it was.
    """

    entries: tuple[Entry, ...]
    end: int
    synced: int
    unproven: bool

    @property
    def unsynced(self) -> tuple[Entry, ...]:
        """The entries that count only once they are written again, and synced."""
        return tuple(one for one in self.entries if one.end > self.synced)

    @property
    def has_snapshot(self) -> bool:
        """Whether it begins with all that is known but for frames."""
        return bool(self.entries) and self.entries[0].kind is EntryKind.SNAPSHOT


def read(data: bytes, head: SegmentHead, first: int) -> Read:
    """Read a segment to which may have been written when the machine stopped.

    first: the position of its first byte.
    """
    found = tuple(scan(memoryview(data), HEAD_BYTES, first + HEAD_BYTES, head.salt))
    synced = max((one.synced for one in found if isinstance(one, Entry)), default=0)
    counted: list[Entry] = []
    unproven = False
    end = first + HEAD_BYTES
    for one in found:
        is_torn = one.end > synced if isinstance(one, Entry) else one.position >= synced
        if is_torn and not (isinstance(one, Entry) and one.is_whole):
            break  # nobody was told of it, nor of what follows
        if isinstance(one, Unproven):
            unproven = True
        else:
            counted.append(one)
        end = min(one.end, max(synced, one.position)) if isinstance(one, Unproven) else one.end
    return Read(entries=tuple(counted), end=end, synced=synced, unproven=unproven)


def damaged_in(data: bytes, head: SegmentHead, first: int, end: int) -> Sequence[Entry | Unproven]:
    """Return what is damaged in a segment of which everything up to a position was synced."""
    found = scan(memoryview(data)[: end - first], HEAD_BYTES, first + HEAD_BYTES, head.salt)
    return [
        one
        for one in found
        if (isinstance(one, Unproven) and one.position < end)
        or (isinstance(one, Entry) and not one.is_whole)
    ]
