"""Frames: the bytes of messages, the same on the wire, in a store's log and to receivers. Pure.

A frame is a header of 44 bytes, little-endian, and a body. Its CRC covers both, so that a bit which
flips anywhere on the way shows. Frames are at most 1 MiB; what is not a frame is refused: whoever
reads from a connection then closes it, for there is no way back to where the next one begins.

Source: UM, spec M11; streams.md 4.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias, cast
from zlib import crc32

import msgspec

from onceq.errors import TooLarge
from onceq.streams.errors import FrameRefused, WhyRefused

HEADER: Final = struct.Struct("<HBBHHIIQQQI")
HEADER_BYTES: Final = HEADER.size
MAGIC: Final = 0x71A5
VERSION: Final = 1
FRAME_BYTES_MAX: Final = 1 << 20
COUNT_MAX: Final = 0xFFFF
_CRC: Final = struct.Struct("<I")
_CRC_AT: Final = HEADER_BYTES - _CRC.size
_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
"""What a message takes beside its body."""
_BEGINNING: Final = struct.Struct("<HBBHHI")
_Beginning: TypeAlias = tuple[int, int, int, int, int, int]


class FrameKind(enum.IntEnum):
    """What a frame is. VOID: numbers that were given up. ASK, ANSWER: its body is msgpack."""

    MESSAGES = 1
    VOID = 2
    ASK = 3
    ANSWER = 4


_KINDS: Final = frozenset(map(int, FrameKind))


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame: count messages of a stream, from `number` on.

    count: 0 if it only tells what is stable. epoch: of the life that sent it; with stream and
    number it is the identity of a message. stable: everything below is stable. flags: see
    `fragments`. body: the messages, each after its length in 4 bytes; empty if they are void.
    """

    kind: FrameKind
    stream: int
    epoch: int
    number: int
    stable: int
    count: int = 0
    flags: int = 0
    body: bytes = b""

    @property
    def end(self) -> int:
        """The number after its last message."""
        return self.number + self.count

    def messages(self) -> Iterator[memoryview]:
        """Yield its messages. Raises FrameRefused if their lengths are not those of the body."""
        body, at = memoryview(self.body), 0
        for _ in range(self.count if self.kind is not FrameKind.VOID else 0):
            begin = at + _LENGTH.size
            if begin > len(body):
                raise FrameRefused("a frame has fewer messages than its header says")
            at = begin + _LENGTH.unpack_from(body, at)[0]
            if at > len(body):
                raise FrameRefused("a message is longer than the frame that it is in")
            yield body[begin:at]
        if at != len(body):
            raise FrameRefused("a frame has more bytes than its messages")


def body_of(messages: Sequence[bytes]) -> bytes:
    """Return the body of a frame with some messages. Raises TooLarge if it cannot be sent."""
    lengths = map(_LENGTH.pack, map(len, messages))
    body = b"".join(chain.from_iterable(zip(lengths, messages, strict=True)))
    if len(body) > FRAME_BYTES_MAX - HEADER_BYTES or len(messages) > COUNT_MAX:
        raise TooLarge(
            f"{len(messages)} messages of {len(body)} bytes do not fit into one frame of at most"
            f" {FRAME_BYTES_MAX} bytes and {COUNT_MAX} messages"
        )
    return body


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame. Raises TooLarge if it is longer than a frame may be."""
    if HEADER_BYTES + len(frame.body) > FRAME_BYTES_MAX:
        raise TooLarge(f"a frame of {len(frame.body)} bytes; at most {FRAME_BYTES_MAX} are sent")
    head = HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        frame.flags,
        frame.count,
        len(frame.body),
        frame.epoch,
        frame.stream,
        frame.number,
        frame.stable,
        0,
    )[:_CRC_AT]
    return b"".join((head, _CRC.pack(crc32(frame.body, crc32(head))), frame.body))


def length_of(header: bytes | memoryview) -> int:
    """Return how long the frame is that begins with this header. Raises FrameRefused.

    header: at least its 44 bytes. What it says is not yet proven: the CRC comes with the body.
    """
    magic, version, _, _, _, length = cast("_Beginning", _BEGINNING.unpack_from(header))
    if magic != MAGIC:
        raise FrameRefused("these bytes are no frame: is something else connected?")
    if version != VERSION:
        raise FrameRefused(
            f"a frame of version {version}; this onceq reads version {VERSION}",
            WhyRefused.OTHER_VERSION,
        )
    if HEADER_BYTES + length > FRAME_BYTES_MAX:
        raise FrameRefused(
            f"a frame of {length} bytes; at most {FRAME_BYTES_MAX} are accepted",
            WhyRefused.OVERSIZE,
        )
    return HEADER_BYTES + length


def decode(data: bytes | memoryview) -> Frame:
    """Return the frame that these bytes are, exactly. Raises FrameRefused."""
    if len(data) < HEADER_BYTES or len(data) != length_of(data):
        raise FrameRefused("a frame is cut short")
    view = memoryview(data)
    _, _, kind, flags, count, _, epoch, stream, number, stable, crc = HEADER.unpack_from(view)
    if crc32(view[HEADER_BYTES:], crc32(view[:_CRC_AT])) != crc:
        raise FrameRefused("a frame was changed on its way: its CRC is another")
    if kind not in _KINDS:
        raise FrameRefused(f"a frame of kind {kind}, which this onceq does not know")
    return Frame(
        kind=FrameKind(kind),
        stream=stream,
        epoch=epoch,
        number=number,
        stable=stable,
        count=count,
        flags=flags,
        body=bytes(view[HEADER_BYTES:]),
    )


class Splitter:
    """Finds the frames in what comes from a connection, in pieces of any size."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes of each frame that is complete, unproven. Raises FrameRefused.

        It never holds more than one frame and the piece that was fed.
        """
        self.add(data)
        yield from self.complete()

    def add(self, data: bytes) -> None:
        """Take a piece."""
        self._held += data

    def complete(self) -> Generator[bytes]:
        """Yield the frames that are complete; closed before its end, it leaves the rest."""
        at = 0
        try:
            while len(self._held) - at >= HEADER_BYTES:
                end = at + length_of(memoryview(self._held)[at : at + HEADER_BYTES].tobytes())
                if end > len(self._held):
                    return
                found, at = bytes(memoryview(self._held)[at:end]), end
                yield found
        finally:
            del self._held[:at]

    def waiting(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return len(self._held)
