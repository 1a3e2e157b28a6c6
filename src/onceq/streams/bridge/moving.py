"""How a batch of messages takes effect: its transactions as a Program, and its pieces. Pure.

Effects and position are one transaction, whose last statement is a compare-and-set of the position.
A batch that raises is halved, until a message that raises is alone. Source: spec M23, M38.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from onceq import errors
from onceq.model import ops
from onceq.model.stream_ops import StreamHold, StreamMove, StreamPosition
from onceq.streams.errors import StreamReplaced
from onceq.streams.model.log import epoch_at
from onceq.streams.receiver.ops import Message
from onceq.streams.receiver.placing import Position


def hexed(number: int) -> str:
    """Return the id of a stream or a session as the database has it."""
    return f"{number:016x}"


def moved(move: StreamMove, effects: Sequence[ops.Op[Any]]) -> ops.Program[None]:
    """Have effects, and move the position, in one transaction. Raises what the effects do.

    Raises Fenced, nothing happened; or InDoubt: the position says.
    """
    yield from ops.BeginWork()
    try:
        yield from StreamHold(
            holder=move.holder, epoch=move.epoch, number=move.number, token=move.token
        )
        for effect in effects:
            yield from effect
        yield from move
        yield from ops.Commit()
    except errors.OnceqError:
        yield from ops.Rollback()
        raise


class Blame(enum.Enum):
    """What an error of a transaction with effects means."""

    RAISE = "nobody can go on: raise it"
    LOST = "the connection was lost: look at the position"
    AGAIN = "the environment failed: try again, up to a bound"
    WAIT = "the environment is not ready: try again, nobody is charged"
    REJECT = "the handler gives the message up"
    CHARGE = "the handler failed"


_BLAMES: tuple[tuple[type[errors.OnceqError], Blame], ...] = (
    (errors.CannotConnect, Blame.LOST),
    (errors.ConnectionLost, Blame.LOST),
    (errors.InDoubt, Blame.LOST),
    (errors.QueueStopped, Blame.WAIT),
    (errors.QueueFull, Blame.WAIT),
    (errors.EnvironmentFault, Blame.AGAIN),
    (errors.DeadlineExceeded, Blame.AGAIN),
    (errors.Retry, Blame.AGAIN),
    (errors.Reject, Blame.REJECT),
    (errors.HandlerMisuse, Blame.RAISE),
    (errors.OperatingError, Blame.RAISE),
)


def blame(error: errors.OnceqError) -> Blame:
    """Return what an error means; what is not in the table is the handler's."""
    return next((one for kind, one in _BLAMES if isinstance(error, kind)), Blame.CHARGE)


class Pieces:
    """A batch in pieces, in order. aborts: how often the first one raised, if it is one message.

    abort_limit: a message that raised so often, alone, is given up. faults_max: so often the
    environment is believed to be at fault, for the batch, and again for a message that is alone:
    what comes beyond that counts as the handler's, so that it is found what brings it about.
    """

    def __init__(
        self, messages: Sequence[Message], *, abort_limit: int, faults_max: int = 10
    ) -> None:
        self._pieces: deque[list[Message]] = deque([list(messages)] if messages else [])
        self._abort_limit = abort_limit
        self._faults_max = faults_max
        self._faults = 0
        self._faults_alone = 0
        self.aborts = 0

    @property
    def first(self) -> list[Message] | None:
        """The messages that take effect together next; None: all have."""
        return self._pieces[0] if self._pieces else None

    def passed(self) -> None:
        """Note that the first piece has taken effect, or was given up."""
        self._pieces.popleft()
        self.aborts = self._faults_alone = 0

    def failed(self, how: Blame) -> bool:
        """Note that the first piece raised; return whether its one message is to be given up."""
        piece = self._pieces[0]
        if how is Blame.WAIT or (how is Blame.AGAIN and self._is_excused(piece)):
            return False
        if len(piece) > 1:
            half = len(piece) // 2
            self._pieces[0] = piece[half:]
            self._pieces.appendleft(piece[:half])
            return False
        self.aborts += 1
        return how is Blame.REJECT or self.aborts >= self._abort_limit

    def _is_excused(self, piece: Sequence[Message]) -> bool:
        """Count a fault; return whether the environment is still believed to be at fault."""
        if len(piece) > 1:
            self._faults += 1
            return self._faults <= self._faults_max
        self._faults_alone += 1
        return self._faults_alone <= self._faults_max


_FORMER: Final = (
    "a former one: they were given up when a loss was accepted, or are behind. Nothing was taken:"
    " give the list of stores that the stream has now, or start those"
)
_REPLACED: Final = (
    "with other messages there. Nothing was taken: receive it under another name (a query: with"
    " another checkpoint), or have the position forgotten"
)


def refuse_replaced(name: str, at: StreamPosition, found: Position) -> None:
    """Raise StreamReplaced unless the stream that was found has what the position passed.

    The message before it was of the position's epoch, or of one before. A stream that was lost and
    begun anew, or of which a part was given up, has a later one there, or ends below. Stores that
    are in a former epoch than the position's show what may be lost since: they were given up, or
    are behind, and others have the stream.
    """
    if at.stream is None:
        return
    end = found.shown.high + 1
    is_same = at.stream == hexed(found.stream) and at.number <= end and at.epoch <= found.epoch
    if is_same and (at.number == 0 or epoch_at(found.firsts, at.number - 1) <= at.epoch):
        return
    raise StreamReplaced(
        f"{name!r} is at number {at.number} of epoch {at.epoch} in stream {at.stream}, and the"
        f" stores have stream {hexed(found.stream)}, up to {end}, in epoch {found.epoch},"
        f" {_FORMER if at.epoch > found.epoch else _REPLACED}"
    )
