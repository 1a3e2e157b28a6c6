"""The entries of a log, as bytes: what is written, and what can be read of what is there. Pure.

An entry is a header of 29 bytes and a payload. The header has the entry's position in the log, and
how far the log was synced when it was made. Its CRC begins with the salt of the segment, so that no
payload that holds an old entry is taken for one. It covers the payload too, but for frames: they
have a CRC of their own. So where a header is whole and its frame is not, what is damaged is proven
to be a frame.

Positions begin at a number whose upper bytes stand nowhere by chance: by these the next entry is
found behind one that is damaged. They go through all segments, which have one size, so that a
position tells its segment and offset.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

import msgspec

from onceq.streams.errors import FrameRefused
from onceq.streams.model import frames

HEADER: Final = struct.Struct("<IIBIQQ")
HEADER_BYTES: Final = HEADER.size
POSITION_BASE: Final = 0x5EB1_C0DE_0000_0000
SEGMENT_BYTES: Final = 64 << 20
HEAD: Final = struct.Struct("<8sHHIQ16s")
HEAD_BYTES: Final = 64
"""A segment begins with its head; the first entry is behind it."""
MAGIC: Final = b"onceqlog"
VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 << 26
WINDOW_BYTES: Final = 256 << 10
"""What is in memory of a segment that is walked through, but for larger entries."""
_CRC: Final = struct.Struct("<I")
_POSITION_AT: Final = 13
_UPPER_AT: Final = 3
"""Of the 8 bytes of a position, the last 5 are the same for 16 MiB of log."""


class EntryKind(enum.IntEnum):
    """What an entry is. COPY: a frame fetched from another store, which counts from its ADMIT on.

    RELOCATED: a frame that was copied forward, out of a segment that is freed. MARK: nothing but
    how far the log is synced, and what is stable though no frame says so.
    """

    FRAME = 1
    COPY = 2
    RELOCATED = 3
    PROMISE = 4
    ADMIT = 5
    REGISTER = 6
    ACK = 7
    DEREGISTER = 8
    SNAPSHOT = 9
    MARK = 10
    TRIM = 11
    PASS = 12
    END = 13


_KINDS: Final = frozenset(map(int, EntryKind))
FRAMES: Final = frozenset({EntryKind.FRAME, EntryKind.COPY, EntryKind.RELOCATED})


class SegmentHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says of itself. salt: begins the CRC of each entry. store: whose it is."""

    number: int
    salt: int
    store: bytes


def encode_head(head: SegmentHead) -> bytes:
    """Return the bytes with which a segment begins."""
    made = HEAD.pack(MAGIC, VERSION, 0, head.salt, head.number, head.store)
    return (made + _CRC.pack(crc32(made))).ljust(HEAD_BYTES, b"\0")


def decode_head(data: bytes | memoryview) -> SegmentHead | None:
    """Return what a segment says of itself; None: these bytes begin none of this version."""
    if len(data) < HEAD_BYTES:
        return None
    magic, version, _, salt, number, store = HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, HEAD.size)
    if magic != MAGIC or version != VERSION or crc32(data[: HEAD.size]) != crc:
        return None
    return SegmentHead(number=number, salt=salt, store=store)


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """How positions lie in segments of some size."""

    segment_bytes: int = SEGMENT_BYTES

    def first(self, number: int) -> int:
        """Return the position of the first byte of a segment, its head included."""
        return POSITION_BASE + number * self.segment_bytes

    def number(self, position: int) -> int:
        """Return the segment in which a position lies."""
        return (position - POSITION_BASE) // self.segment_bytes

    def offset(self, position: int) -> int:
        """Return the offset of a position in its segment."""
        return (position - POSITION_BASE) % self.segment_bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was found. stream: the store's own short number of the stream.

    is_whole: False for a frame whose bytes are damaged; the header's are not.
    """

    kind: EntryKind
    stream: int
    position: int
    synced: int
    payload: bytes
    is_whole: bool = True

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + HEADER_BYTES + len(self.payload)


class Unproven(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes in which an entry began, and that are none. end: of them, where the next begins.

    is_last: no entry follows.
    """

    position: int
    end: int
    is_last: bool


def size_of(payload: bytes) -> int:
    """Return how many bytes an entry with this payload takes."""
    return HEADER_BYTES + len(payload)


def encode(entry: Entry, salt: int) -> bytes:
    """Return the bytes of an entry in the segment of this salt."""
    head = HEADER.pack(
        0, len(entry.payload), entry.kind, entry.stream, entry.position, entry.synced
    )
    return (
        _CRC.pack(_crc(head, entry.kind, entry.payload, salt)) + head[_CRC.size :] + entry.payload
    )


def _crc(head: bytes | memoryview, kind: int, payload: bytes | memoryview, salt: int) -> int:
    begun = crc32(head[_CRC.size :], salt)
    return begun if kind in FRAMES else crc32(payload, begun)


def decode(data: memoryview, at: int, position: int, salt: int) -> Entry | None:
    """Return the entry that begins at an offset of a segment; None: there is none."""
    begin = at + HEADER_BYTES
    if begin > len(data):
        return None
    crc, length, kind, stream, found, synced = HEADER.unpack_from(data, at)
    if found != position or length > PAYLOAD_BYTES_MAX or begin + length > len(data):
        return None
    payload = data[begin : begin + length]
    if kind not in _KINDS or _crc(data[at:begin], kind, payload, salt) != crc:
        return None
    return Entry(
        kind=EntryKind(kind),
        stream=stream,
        position=position,
        synced=synced,
        payload=bytes(payload),
        is_whole=kind not in FRAMES or _is_frame(payload),
    )


def _is_frame(payload: memoryview) -> bool:
    try:
        frames.decode(payload)
    except FrameRefused:
        return False
    return True


def scan(data: memoryview, begin: int, position: int, salt: int) -> Iterator[Entry | Unproven]:
    """Yield the entries of a segment, and what lies between them that is none.

    data: the segment. begin: the offset of the first entry, at this position. What is reserved and
    was never written is zero: then the last thing found is where that begins.
    """
    at = begin
    while True:
        here = position + at - begin
        entry = decode(data, at, here, salt)
        if entry is not None:
            yield entry
            at += HEADER_BYTES + len(entry.payload)
            continue
        following = _next(data, at + 1, position - begin, salt)
        end = len(data) if following is None else following
        yield Unproven(position=here, end=position + end - begin, is_last=following is None)
        if following is None:
            return
        at = following


def _next(data: memoryview, at: int, shift: int, salt: int) -> int | None:
    """Return the offset of the next entry, from an offset on; None: there is none.

    shift: what makes a position of an offset.
    """
    raw = data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)
    while at + HEADER_BYTES <= len(raw):
        upper = (shift + at).to_bytes(8, "little")[_UPPER_AT:]
        changes_at = ((shift + at) // (1 << 24) + 1) * (1 << 24) - shift
        found = raw.find(upper, at + _POSITION_AT + _UPPER_AT, changes_at + _POSITION_AT + 8)
        if found < 0:
            at = changes_at
            continue
        at = found - _POSITION_AT - _UPPER_AT
        if decode(data, at, shift + at, salt) is not None:
            return at
        at += 1
    return None


def walk(
    read: Callable[[int, int], bytes], offsets: range, first: int, salt: int
) -> Iterator[Entry | Unproven]:
    """Yield what `scan` finds in a part of a segment, without having all of it in memory.

    read: returns so many bytes from an offset on. first: the position of the segment's first byte.
    What is read at a time grows where an entry, or damage, is larger.
    """
    at, length = offsets.start, WINDOW_BYTES
    while at < offsets.stop:
        data = read(at, min(length, offsets.stop - at))
        begun, is_rest = at, len(data) < length or at + len(data) >= offsets.stop
        for one in scan(memoryview(data), 0, first + at, salt):
            if isinstance(one, Unproven) and one.is_last and not is_rest:
                break  # an entry may go on behind what is in memory
            if one.position - first >= offsets.stop:
                return
            yield one
            at = one.end - first
        if is_rest:
            return
        length = WINDOW_BYTES if at > begun else 2 * length
