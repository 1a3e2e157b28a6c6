"""What stores have of a stream that is stable, by numbers: Programs. Pure.

Used by who does not follow a stream, but reads some of it: a relay that looks for what it had
planned, and Spark's tasks. It registers nowhere, and keeps nothing. A store that does not know what
was accepted as lost is not believed, nor is a message of another epoch than its number has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onceq.model.ops.base import Program
from onceq.streams.bridge.epochs import Epochs
from onceq.streams.errors import FrameRefused, StreamReplaced
from onceq.streams.model import asks, frames
from onceq.streams.model.fragments import CONTINUED, CONTINUES
from onceq.streams.model.frames import FrameKind
from onceq.streams.model.ops import WaitUntil
from onceq.streams.receiver.ops import ReadStore

_SILENT: Final = "it does not answer"
_WITHOUT: Final = "it does not have it as stable, yet"
_OF_A_LOSS: Final = (
    "it does not know of the loss that was accepted in epoch {}: it was given up, or is behind"
)
_OF_ANOTHER_EPOCH: Final = "it has another message there: it was given up, or is behind"
VOID_PIECE: Final = "reclaimed"
LOST_PIECE: Final = "lost"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers in a row, from `begin` on, of one epoch. bodies: None: they are not messages.

    why: then: VOID_PIECE, if they were given up before they were stable, or LOST_PIECE, if a person
    accepted that they are lost, or no store has them any more: then the epoch is 0. flags: of a
    frame with these messages alone, as in `fragments`.
    """

    epoch: int
    begin: int
    end: int
    bodies: tuple[bytes, ...] | None
    why: str = ""
    flags: int = 0

    @property
    def is_void(self) -> bool:
        """Whether these numbers have no messages, and never will."""
        return self.bodies is None and self.epoch > 0


def cut(piece: Piece, end: int) -> Piece:
    """Return the part of a piece that lies below a number."""
    if piece.end <= end:
        return piece
    bodies = None if piece.bodies is None else piece.bodies[: end - piece.begin]
    return replace(piece, end=end, bodies=bodies, flags=piece.flags & ~CONTINUED)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is read. stores: that may have it. end: exclusive; all below is stable.

    epochs: of the log, as the reader knows it.
    """

    stream: int
    begin: int
    end: int
    stores: tuple[str, ...]
    epochs: Epochs
    within_s: float = 2.0
    rest_s: float = 0.2


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """That a number is not had yet. why: of each store that may have it, in words for people."""

    number: int
    why: Mapping[str, str]


Waits = Callable[[Unread], None]
"""Is told each time that a number was asked for in vain."""


def read_stable(asked: Asked, waits: Waits) -> Program[list[Piece]]:
    """Return all of some numbers that are stable, in order, without a gap; see `read_some`."""
    pieces: list[Piece] = []
    while asked.begin < asked.end:
        pieces += yield from read_some(asked, waits)
        asked = replace(asked, begin=pieces[-1].end)
    return pieces


def read_some(asked: Asked, waits: Waits) -> Program[tuple[Piece, ...]]:
    """Return some of these numbers, from the first on, about 1 MiB, however long that takes.

    What every store says is gone is given as lost: what is below where the log of each begins, or
    one number that is damaged in all. A store that does not answer, or is not believed, is waited
    for: it may have it. Raises StreamReplaced if a loss was accepted that `epochs` do not have.
    """
    while not isinstance(found := (yield from read_once(asked)), tuple):
        if found is None:
            raise StreamReplaced(
                f"stores of stream {asked.stream:016x} know of a loss that was accepted meanwhile:"
                " begin again"
            )
        waits(found)
        yield from WaitUntil(within_s=asked.rest_s)
    return found


def read_once(asked: Asked) -> Program[tuple[Piece, ...] | Unread | None]:
    """Ask each store once, as `read_some`. Unread: one that may have them has not given them.

    None: a store knows of a loss that `epochs` do not have.
    """
    gone: list[int] = []
    why: dict[str, str] = {}
    for store in asked.stores:
        ask = asks.Read(stream=asked.stream, epoch=0, begin=asked.begin, end=asked.end)
        given = yield from ReadStore(store=store, ask=ask, within_s=asked.within_s)
        lost = _lost(given, asked.epochs)
        if lost > asked.epochs.lost:
            return None
        pieces, behind = taken(given, asked.begin, asked.end)
        own = tuple(_of_log(pieces, asked.epochs))
        if lost < asked.epochs.lost:
            why[store] = _OF_A_LOSS.format(asked.epochs.lost)
        elif own:
            return own
        elif pieces:
            why[store] = _OF_ANOTHER_EPOCH
        elif behind > asked.begin:
            gone.append(behind)
        else:
            why[store] = _SILENT if given is None else _WITHOUT
    if why:
        return Unread(number=asked.begin, why=why)
    epochs, begin = asked.epochs, asked.begin
    end = epochs.alike_below(begin, min(*gone, asked.end))
    epoch = epochs.at(begin) if epochs.is_lost(begin) else 0  # void, though it was trimmed since
    return (Piece(epoch=epoch, begin=begin, end=end, bodies=None, why=LOST_PIECE),)


def _lost(given: Any, epochs: Epochs) -> int:
    """Return the last loss of which a store knows, if it says that."""
    answer = None if given is None else given[0]
    return answer.lost if isinstance(answer, asks.Range) else epochs.lost


def _of_log(pieces: tuple[Piece, ...], epochs: Epochs) -> Iterator[Piece]:
    """Yield what is of the epochs of a log; what is void since it was lost, as that."""
    for piece in pieces:
        if piece.epoch != epochs.at(piece.begin):
            return
        own = cut(piece, epochs.alike_below(piece.begin, piece.end))
        is_lost = own.is_void and epochs.is_lost(own.begin)
        yield replace(own, why=LOST_PIECE) if is_lost else own
        if own.end < piece.end:
            return


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
