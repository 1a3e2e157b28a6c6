"""Messages that take several numbers, since they are larger than a fragment may be. Pure.

Each fragment is alone in its frame, whose flags say whether it goes on what the number before has,
and whether the next number goes on with it. A receiver is shown the message when all of it is
there, under its last number. If a part is missing, all of it is: the parts that are there are left
out, and told. Source: spec M11.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from onceq.errors import TooLarge
from onceq.streams.model.frames import FRAME_BYTES_MAX, HEADER_BYTES, LENGTH_BYTES

CONTINUES: Final = 1
"""Flag of a frame: its first message goes on what the number before has."""
CONTINUED: Final = 2
"""Flag of a frame: the number behind its last message goes on with that."""
FRAGMENT_BYTES_MAX: Final = FRAME_BYTES_MAX - HEADER_BYTES - LENGTH_BYTES
"""What fits into one frame."""
MESSAGE_BYTES_MAX: Final = 16 << 20


class Part(enum.Enum):
    """What a number has of a message."""

    WHOLE = "all of it"
    FIRST = "its beginning"
    MIDDLE = "neither its beginning nor its end"
    LAST = "its end"


class Deed(enum.Enum):
    """What is done with a part that comes."""

    SHOW = "show it"
    KEEP = "keep it until the rest has come"
    JOIN = "show what is kept and this as one message"
    LEAVE = "leave it out: what it goes on was not shown"


DEEDS: Final[dict[tuple[bool, Part], Deed]] = {
    (False, Part.WHOLE): Deed.SHOW,
    (False, Part.FIRST): Deed.KEEP,
    (False, Part.MIDDLE): Deed.LEAVE,
    (False, Part.LAST): Deed.LEAVE,
    (True, Part.WHOLE): Deed.SHOW,
    (True, Part.FIRST): Deed.KEEP,
    (True, Part.MIDDLE): Deed.KEEP,
    (True, Part.LAST): Deed.JOIN,
}
"""What is done with a part, by whether a beginning is kept."""
ABANDONS: Final = frozenset({Part.WHOLE, Part.FIRST})
"""Before these, what is kept is left out: the rest of it never came."""


def part_of(flags: int, index: int, count: int) -> Part:
    """Return what a message is that has a place in a frame of `count` messages with these flags."""
    goes_on = bool(flags & CONTINUES) and index == 0
    is_continued = bool(flags & CONTINUED) and index == count - 1
    if goes_on:
        return Part.MIDDLE if is_continued else Part.LAST
    return Part.FIRST if is_continued else Part.WHOLE


def parts_of(message_bytes: int, size: int) -> int:
    """Return how many numbers a message takes. size: of a fragment. Raises TooLarge."""
    if message_bytes > MESSAGE_BYTES_MAX:
        raise TooLarge(
            f"a message of {message_bytes} bytes; at most {MESSAGE_BYTES_MAX} are sent as one"
        )
    return -(-message_bytes // size) or 1


def split(message: bytes, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the fragments of a message, each with the flags of its frame. size: of one, at most.

    A message that is not larger is one with no flags.
    """
    for begin in range(0, len(message) or 1, size):
        is_last = begin + size >= len(message)
        flags = (CONTINUES if begin else 0) | (0 if is_last else CONTINUED)
        yield message[begin : begin + size], flags


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A message of which all is there. first, last: its numbers. retransmitted: some part was."""

    first: int
    last: int
    body: bytes
    retransmitted: bool


class Parts:
    """Joins parts that come in ascending numbers. first: of the parts that are kept; None: none.

    size: their bytes.
    """

    __slots__ = ("_bodies", "_retransmitted", "first", "size")

    def __init__(self) -> None:
        self.first: int | None = None
        self.size = 0
        self._bodies: list[bytes] = []
        self._retransmitted = False

    def drop(self) -> int | None:
        """Leave out what is kept; return its first number, if there was anything."""
        first, self.first = self.first, None
        self.size, self._bodies, self._retransmitted = 0, [], False
        return first

    def take(self, number: int, body: bytes, part: Part, *, retransmitted: bool) -> Joined | Deed:
        """Take what comes next; return the message that it completes, or KEEP or LEAVE.

        What is kept must have been dropped before a part that begins another message.
        """
        deed = DEEDS[self.first is not None, part]
        if deed is Deed.LEAVE:
            return deed
        self.first = number if self.first is None else self.first
        self._bodies.append(body)
        self.size += len(body)
        self._retransmitted = self._retransmitted or retransmitted
        if deed is Deed.KEEP:
            return deed
        joined = Joined(
            first=self.first,
            last=number,
            body=b"".join(self._bodies),
            retransmitted=self._retransmitted,
        )
        self.drop()
        return joined
