"""What stores have of a stream that is stable, by numbers: Programs. Pure.

Used by who does not follow a stream, but reads some of it: a relay that looks for what it had
planned, and Spark's tasks. It registers nowhere, and keeps nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onceq.model.ops.base import Program
from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, frames
from onceq.streams.model.fragments import CONTINUED, CONTINUES
from onceq.streams.model.frames import FrameKind
from onceq.streams.model.ops import WaitUntil
from onceq.streams.receiver.ops import ReadStore

VOID_PIECE: Final = "reclaimed"
LOST_PIECE: Final = "lost"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers in a row, from `begin` on, of one epoch. bodies: None: they are not messages.

    why: then: VOID_PIECE, if they were given up before they were stable, or LOST_PIECE, if no store
    has them any more. flags: of a frame with these messages alone, as in `fragments`.
    """

    epoch: int
    begin: int
    end: int
    bodies: tuple[bytes, ...] | None
    why: str = ""
    flags: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is read. stores: that may have it. end: exclusive; all below is stable."""

    stream: int
    begin: int
    end: int
    stores: tuple[str, ...]
    within_s: float = 2.0
    rest_s: float = 0.2


def read_stable(asked: Asked) -> Program[list[Piece]]:
    """Return all of some numbers that are stable, in order, without a gap; see `read_some`."""
    pieces: list[Piece] = []
    while asked.begin < asked.end:
        pieces += yield from read_some(asked)
        asked = replace(asked, begin=pieces[-1].end)
    return pieces


def read_some(asked: Asked) -> Program[tuple[Piece, ...]]:
    """Return some of these numbers, from the first on, about 1 MiB, however long that takes.

    What every store says is gone is given as lost: what is below where the log of each begins, or
    one number that is damaged in all. A store that does not answer is waited for: it may have it.
    """
    while not (pieces := (yield from read_once(asked))):
        yield from WaitUntil(within_s=asked.rest_s)
    return pieces


def read_once(asked: Asked) -> Program[tuple[Piece, ...]]:
    """Ask each store once, as `read_some`; nothing: one that may have them has not answered."""
    gone: list[int] = []
    for store in asked.stores:
        ask = asks.Read(stream=asked.stream, epoch=0, begin=asked.begin, end=asked.end)
        given = yield from ReadStore(store=store, ask=ask, within_s=asked.within_s)
        pieces, behind = taken(given, asked.begin, asked.end)
        if pieces:
            return pieces
        if behind > asked.begin:
            gone.append(behind)
    if len(gone) < len(asked.stores):
        return ()
    end = min(*gone, asked.end)
    return (Piece(epoch=0, begin=asked.begin, end=end, bodies=None, why=LOST_PIECE),)


def taken(given: Any, begin: int, end: int) -> tuple[tuple[Piece, ...], int]:
    """Return what a store gave from `begin` to before `end`, and where it says that its goes on.

    The latter is `begin` unless it cannot give that number any more, which nobody can heal.
    """
    if given is None or isinstance(given[0], asks.Noted):
        return (), end if given is not None else begin
    answer, data = given
    if not isinstance(answer, asks.Range):
        return (), begin
    if answer.begin > begin:
        return (), answer.begin
    pieces: list[Piece] = []
    at = begin
    for one in data:
        piece = _piece(one, at, min(end, answer.end))
        if piece is None:
            break
        pieces.append(piece)
        at = piece.end
    is_damaged = answer.missing and answer.end == at
    return tuple(pieces), at + 1 if is_damaged and not pieces else at


def _piece(data: bytes, begin: int, end: int) -> Piece | None:
    """Return what a frame has of these numbers; None: it was harmed on its way, or has nothing."""
    try:
        frame = frames.decode(data)
        bodies = [bytes(one) for one in frame.messages()]
    except FrameRefused:
        return None
    end = min(end, frame.end)
    if frame.number > begin or end <= begin:
        return None
    if frame.kind is FrameKind.VOID:
        return Piece(epoch=frame.epoch, begin=begin, end=end, bodies=None, why=VOID_PIECE)
    own = tuple(bodies[begin - frame.number : end - frame.number])
    goes_on = frame.flags & CONTINUES if begin == frame.number else 0
    is_continued = frame.flags & CONTINUED if end == frame.end else 0
    flags = goes_on | is_continued
    return Piece(epoch=frame.epoch, begin=begin, end=end, bodies=own, flags=flags)
