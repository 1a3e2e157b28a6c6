"""Messages that take several numbers, for whoever reads a stream by numbers: each once, and whole.

Of two that read one range after another, a message belongs to who has its first number, and who
reads on behind the range to its end. A message that is not yet whole is left to who reads later.
Pure. Source: spec M11, M38.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from onceq.model.ops.base import Program
from onceq.streams.bridge.reading import Asked, Piece, Unread, Waits, cut, read_once
from onceq.streams.model.fragments import (
    ABANDONS,
    CONTINUED,
    CONTINUES,
    MESSAGE_BYTES_MAX,
    Joined,
    Parts,
    part_of,
)


class Wholes:
    """Makes whole messages of the pieces of a range. end: no message that begins there is its own.

    Pieces come in order, without a gap; behind the range too, as long as one `is_open`.
    """

    def __init__(self, end: int) -> None:
        self._end = end
        self._parts = Parts()

    @property
    def is_open(self) -> bool:
        """Whether a message of this range goes on behind what came."""
        return self._parts.first is not None

    def take(self, piece: Piece) -> Iterator[Piece]:
        """Yield what a piece completes; a message that took several numbers under its last one.

        What goes on a message that was not begun here is left out, and so is what is kept of one
        that is not gone on with: nobody was told that it is stable.
        """
        if piece.bodies is None:
            self._parts.drop()
            return
        if not piece.flags:
            self._parts.drop()
            if piece.begin < self._end:
                yield cut(piece, self._end)
            return
        for index, body in enumerate(piece.bodies):
            yield from self._part(piece, index, body)

    def _part(self, piece: Piece, index: int, body: bytes) -> Iterator[Piece]:
        number, part = piece.begin + index, part_of(piece.flags, index, len(piece.bodies or ()))
        if part in ABANDONS or self._parts.size + len(body) > MESSAGE_BYTES_MAX:
            self._parts.drop()
        if part in ABANDONS and number >= self._end:
            return
        made = self._parts.take(number, body, part, retransmitted=True)
        if isinstance(made, Joined):
            yield Piece(epoch=piece.epoch, begin=number, end=number + 1, bodies=(made.body,))


class Tail(NamedTuple):
    """Below `whole`, each message that begins is whole, or never will be, of what is below `end`.

    `whole` is the first number of a message that goes on at `end`; or `end` itself.
    """

    whole: int
    end: int


def tail_of(asked: Asked, known: Tail, waits: Waits) -> Program[Tail | None]:
    """Find the message that goes on behind a range; None: the stores that were asked say nothing.

    known: what was found of the same stream before, so that nothing is read twice.
    """
    number = asked.end
    flags = CONTINUES
    while flags & CONTINUES and number > asked.begin:
        if number <= known.end and number < asked.end:
            return Tail(min(number, known.whole), asked.end)
        pieces = yield from read_once(replace(asked, begin=number - 1, end=number))
        if isinstance(pieces, Unread):
            waits(pieces)
        if not isinstance(pieces, tuple):
            return None
        flags = pieces[-1].flags
        if not flags & CONTINUED:
            return Tail(number, asked.end)
        number -= 1
    return Tail(number, asked.end)
