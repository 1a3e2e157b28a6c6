"""The position of a bridge into a database, and how effects of messages are committed with it.

What failed is tried again, in pieces, until it has taken effect or is given up: `moving` says by
which rules. What the environment refuses waits, and the log is told. Source: spec M38.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from onceq import errors
from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.guarded import said_by
from onceq.model import ops, stream_ops
from onceq.streams.bridge.hands import Given, Hands, IntoContext
from onceq.streams.bridge.moving import Blame, Pieces, blame, hexed, moved
from onceq.streams.bridge.target import Target, code_of, refusals, tell_given_up, tell_undone
from onceq.streams.bridge.trying import AWAY, LOST, Pauses, Tries
from onceq.streams.model.events import Event
from onceq.streams.receiver.ops import Message

Handler: TypeAlias = Callable[[list[Any], IntoContext[Any]], Awaitable[Any] | Any]
HELD_UP: Final = (*AWAY, errors.QueueStopped, errors.QueueFull)
"""What holds up a transaction without a handler: it is tried again."""


def _as_it_is(message: Message) -> Any:
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What messages are for. handler: called with decoded ones, and an `IntoContext`.

    decode: of one message; what it raises counts as raised by the handler. on_event: called with
    each Loss that is passed, at least once.
    """

    handler: Handler
    decode: Callable[[Message], Any] = _as_it_is
    on_event: Callable[[Event], None] | None = None


class Effects:
    """What one life of a bridge has done to its database. stopping: it is to end.

    at: everything below its number has taken effect, as this life knows.
    """

    def __init__(
        self, target: Target, application: Application, hands: Hands, stopping: asyncio.Event
    ) -> None:
        self.target = target
        self.at = stream_ops.StreamPosition(life=0, stream=None, epoch=0, number=0)
        self._application = application
        self._hands = hands
        self._stopping = stopping
        self._tokens = itertools.count(1)
        self._was_called = False
        self._said: tuple[str, str] | None = None

    async def open(self) -> bool:
        """Begin a life, which fences the former ones; return whether it has: not, if stopped.

        Raises CannotConnect, SchemaMissing, InvalidValue.
        """
        await self._hands.connect()
        found = await self._found(None)
        if found is None:
            return False
        self.at = found
        return True

    async def close(self) -> None:
        """Close the connection."""
        await self._hands.close()

    # what takes effect

    async def take(self, messages: Sequence[Message]) -> bool:
        """Have messages take effect; return whether all did: not, if one fails while it stops."""
        pieces = Pieces(messages, abort_limit=self.target.abort_limit)
        pauses = Pauses(self._stopping)
        while (piece := pieces.first) is not None:
            try:
                await self._once(self._behind(piece[-1]), self._handled(piece, pieces.aborts + 1))
            except errors.OnceqError as error:
                if not await self._failed(pieces, piece, error, pauses):
                    return False
            else:
                pieces.passed()
                pauses.over()
        return True

    async def _failed(
        self, pieces: Pieces, piece: Sequence[Message], error: errors.OnceqError, pauses: Pauses
    ) -> bool:
        """Wait for the next try, or give a message up; return whether to go on: not, if stopped."""
        how = self._blame(error)
        said = code_of(error), said_by(error)
        tell_undone(self.target, piece, error, is_known=said == self._said)
        self._said = said
        if pieces.failed(how):
            if not await self._give_up(piece[0], error):
                return False
            pieces.passed()
            pauses.over()
            return True
        if not self._stopping.is_set():
            is_halved = how in {Blame.CHARGE, Blame.REJECT} and len(piece) > 1
            await _rest(pauses, error, is_halved=is_halved)
        return not self._stopping.is_set()

    def _blame(self, error: errors.OnceqError) -> Blame:
        """Return what an error means; raises one that nobody can go on with.

        A connection that was lost before the handler was called is not the handler's.
        """
        how = blame(error)
        if how is Blame.RAISE:
            raise error
        if how is Blame.LOST:
            return Blame.AGAIN if self._was_called else Blame.WAIT
        return how

    async def _give_up(self, message: Message, error: errors.OnceqError) -> bool:
        """Put a message into the error queue, and pass it; return whether that is done."""
        refused = refusals(self.target, message, error)
        if not await self._surely(partial(self._behind, message), refused):
            return False
        tell_given_up(self.target, message, error)
        return True

    async def skip(self, stream: int, epoch: int, number: int) -> bool:
        """Pass what lies below a number, without effects; return whether that is done."""
        return await self._surely(partial(self._move, stream, epoch, number), ())

    def _handled(self, messages: Sequence[Message], attempt: int) -> list[ops.Op[Any]]:
        given = Given(
            messages=partial(self._decoded, messages),
            name=self.target.name,
            topic=self.target.topic,
            attempt=attempt,
        )
        return [self._hands.act(self._application.handler, given)]

    def _decoded(self, messages: Sequence[Message]) -> list[Any]:
        self._was_called = True
        return [self._application.decode(one) for one in messages]

    # how the position moves

    def _behind(self, message: Message) -> stream_ops.StreamMove:
        return self._move(message.stream, message.epoch, message.number + 1)

    def _move(self, stream: int, epoch: int, number: int) -> stream_ops.StreamMove:
        return stream_ops.StreamMove(
            holder=self._holder,
            epoch=self.at.epoch,
            number=self.at.number,
            stream=hexed(stream),
            to_epoch=max(epoch, self.at.epoch),
            to_number=number,
            token=f"{self.at.life}-{next(self._tokens)}",
        )

    @property
    def _holder(self) -> stream_ops.Holder:
        return stream_ops.Holder(
            name=self.target.name,
            topic=self.target.topic,
            session=hexed(self.target.source),
            life=self.at.life,
        )

    async def _surely(
        self, made: Callable[[], stream_ops.StreamMove], effects: Sequence[ops.Op[Any]]
    ) -> bool:
        """Have effects that are no handler's committed, however long that takes.

        Returns whether that is done: not, if it is stopped meanwhile.
        """
        tries = Tries(self.target.name, self._stopping)
        while True:
            try:
                await self._once(made(), effects)
            except HELD_UP as error:
                await tries.failed(error)
                if self._stopping.is_set():
                    return False
            else:
                tries.succeeded()
                return True

    async def _once(self, move: stream_ops.StreamMove, effects: Sequence[ops.Op[Any]]) -> None:
        """Have effects and the move committed, or raise why nothing of both happened.

        After a lost connection the position says which. Stopped before it does, this raises, too:
        the next life finds out.
        """
        self._was_called = False
        try:
            await self._hands.run(moved(move, effects))
        except LOST:
            found = await self._found(self.at.life)
            if found is None or (found.epoch, found.number) == (self.at.epoch, self.at.number):
                raise
            if (found.epoch, found.number) != (move.to_epoch, move.to_number):
                name = self.target.name
                raise errors.Fenced(f"the position of {name!r} was moved by another") from None
            self.at = found
        else:
            self.at = behind(self.at, move)
        faultpoint("into.moved")

    async def _found(self, life: int | None) -> stream_ops.StreamPosition | None:
        """Connect, however long that takes, and return where the position is; None: it is stopped.

        It waits for a transaction whose COMMIT may still be on its way. life: None: a new one.
        """
        opening = stream_ops.StreamOpen(
            name=self.target.name,
            topic=self.target.topic,
            session=hexed(self.target.source),
            life=life,
        )
        tries = Tries(self.target.name, self._stopping)
        while True:
            try:
                await self._hands.connect()
                found = await self._hands.perform(opening)
            except AWAY as error:
                await tries.failed(error)
                if self._stopping.is_set():
                    return None
            else:
                tries.succeeded()
                return found


async def _rest(pauses: Pauses, error: errors.OnceqError, *, is_halved: bool) -> None:
    """Wait before the next try: as long as the handler said, or longer each time.

    is_halved: the next try is with less, and needs no wait.
    """
    if isinstance(error, errors.Retry) and error.after_s is not None:
        await pauses.rest(error.after_s)
    elif not is_halved:
        await pauses.rest()


def behind(at: stream_ops.StreamPosition, move: stream_ops.StreamMove) -> stream_ops.StreamPosition:
    """Return the position behind a move."""
    return stream_ops.StreamPosition(
        life=at.life, stream=move.stream, epoch=move.to_epoch, number=move.to_number
    )
