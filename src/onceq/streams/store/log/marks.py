"""Where to begin to read in a segment: of each stream, a frame in 64 KiB. Pure.

They are beside a sealed segment, in a file that says whose it is and whose CRC shows any damage.
They can always be made anew from the segment itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from onceq.streams.model import frames
from onceq.streams.store.log.entries import FRAMES, Entry, EntryKind, SegmentHead, Unproven
from onceq.streams.store.log.index import Run

MARK_BYTES: Final = 64 << 10
MAGIC: Final = b"onceqidx"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHHIQ16sI")
_CRC: Final = struct.Struct("<I")
_BODY_AT: Final = _HEAD.size + _CRC.size

Mark: TypeAlias = tuple[int, int]
"""The first number of a frame, and the position of its entry."""
Listed: TypeAlias = list[tuple[int, EntryKind, list[Mark]]]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Listed)


class Marks:
    """The marks of one segment, by the short numbers of streams and the kinds of entries."""

    def __init__(self, listed: Listed | None = None) -> None:
        self._of = {(local, kind): marks for local, kind, marks in listed or []}

    def note(self, local: int, kind: EntryKind, number: int, position: int) -> None:
        """Note a frame of the segment; they come in the order of their positions."""
        marks = self._of.setdefault((local, kind), [])
        if not marks or position - marks[-1][1] >= MARK_BYTES:
            marks.append((number, position))

    def before(self, local: int, run: Run, number: int) -> int:
        """Return the position from which to read for a number of a run.

        What was written again is not in the order of its numbers: there only a mark of the run
        itself is of use.
        """
        least = run.begin if run.kind is EntryKind.RELOCATED else 0
        known = self._of.get((local, run.kind), [])
        within = (at for one, at in known if least <= one <= number and at < run.stop)
        return max((at for at in within if at > run.position), default=run.position)

    def listed(self) -> Listed:
        """Return all of them."""
        return [(local, kind, marks) for (local, kind), marks in self._of.items()]


def marked(found: Iterable[Entry | Unproven]) -> Marks:
    """Return the marks of a segment in which this was found."""
    made = Marks()
    for one in found:
        if isinstance(one, Entry) and one.kind in FRAMES and one.is_whole:
            number = frames.decode(one.payload).number
            made.note(one.stream, one.kind, number, one.position)
    return made


def encode(marks: Marks, head: SegmentHead) -> bytes:
    """Return the bytes of the marks of the segment with this head."""
    body = _ENCODER.encode(marks.listed())
    made = _HEAD.pack(MAGIC, VERSION, 0, head.salt, head.number, head.store, len(body))
    return b"".join((made, _CRC.pack(crc32(body, crc32(made))), body))


def decode(data: bytes, head: SegmentHead) -> Marks | None:
    """Return the marks that these bytes are; None: they are damaged, or another segment's."""
    body = data[_BODY_AT:]
    made = _HEAD.pack(MAGIC, VERSION, 0, head.salt, head.number, head.store, len(body))
    if data[:_BODY_AT] != made + _CRC.pack(crc32(body, crc32(made))):
        return None
    return Marks(_DECODER.decode(body))
