"""Reading a log when a store starts: its last segment, which has all that is known.

Each segment begins with a snapshot of all but frames, so that one is enough, however long the log.
One that was begun and has no snapshot that counts holds nothing that anybody was told: it goes.
"""

from __future__ import annotations

import msgspec

from onceq.streams.errors import StoreRefused
from onceq.streams.store.log import opening
from onceq.streams.store.log.entries import HEAD_BYTES, Geometry, SegmentHead, decode_head
from onceq.streams.store.log.segments import Files


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last segment that counts. read: its entries. forgot: its beginning is damaged.

    A store that forgot knows nothing for sure, of any stream.
    """

    number: int
    read: opening.Read
    forgot: bool


def last(files: Files, geometry: Geometry, store: bytes) -> Last | None:
    """Return the last segment of a store's log, and free what was begun after it; None: none is.

    Raises StoreRefused if it is another store's.
    """
    numbers = files.numbers()
    while numbers:
        number = numbers.pop()
        data = files.read(number)
        head = decode_head(data)
        if head is None:
            return Last(number=number, read=_nothing(geometry, number), forgot=True)
        _refuse_another(head, number, store)
        read = opening.read(data, head, geometry.first(number))
        if read.has_snapshot and not read.unproven:
            return Last(number=number, read=read, forgot=False)
        if read.unproven or read.entries or not numbers:
            return Last(number=number, read=read, forgot=True)
        files.unlink(number)  # begun, and nothing in it was ever synced
    return None


def _refuse_another(head: SegmentHead, number: int, store: bytes) -> None:
    if head.store != store or head.number != number:
        raise StoreRefused(
            f"segment {number} is of the store {head.store.hex()}, number {head.number}: files of"
            f" another store were put beside those of {store.hex()}"
        )


def _nothing(geometry: Geometry, number: int) -> opening.Read:
    end = geometry.first(number) + HEAD_BYTES
    return opening.Read(entries=(), end=end, synced=0, unproven=True)
