"""The receiving bridge: messages of a stream take effect in a database, each exactly once.

It is a receiver of what is stable. What a handler does by SQL, and the position behind its
messages, are one commit; stores are told of it afterwards, so they never give up what has not
taken effect. A later life under the same name fences this one. Source: spec M23, M38; streams.md 8.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from onceq.engine.faultpoints import faultpoint
from onceq.errors import Fenced, OnceqError
from onceq.model import ops, stream_ops
from onceq.streams.bridge.hands import Given, Hands, IntoContext, hands
from onceq.streams.bridge.moving import LOST, Blame, Pieces, blame, hexed, moved, refuse_replaced
from onceq.streams.bridge.target import Target, tell_given_up, tell_missed, tell_undone
from onceq.streams.errors import DataLost, StreamReplaced
from onceq.streams.model.events import Event, Loss, RolledBack, WhyLost
from onceq.streams.model.low import RecoveryInfo
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.driver import Wishes
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Position, place

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located

Handler: TypeAlias = Callable[[list[Any], IntoContext[Any]], Awaitable[None] | None]
BATCH_BYTES_MAX: Final = 8 << 20
"""A batch takes effect when its messages have so many bytes, however few they are."""
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 5.0
"""Between two tries: the first pause, and the longest; each is twice the one before."""


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


class AsyncInto:
    """One life of a bridge: all that `run` does.

    database: where it is, and the repository in it. wishes: the receiver's patience, and how often
    it tells stores.
    """

    def __init__(
        self,
        target: Target,
        application: Application,
        database: tuple[Located, str],
        *,
        wishes: Wishes | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.target = target
        self._application = application
        self._hands: Hands = hands(application.handler, *database)
        self._at = stream_ops.StreamPosition(life=0, stream=None, epoch=0, number=0)
        wishes = replace(
            wishes or Wishes(),
            is_stable_only=True,
            choose=self._choose,
            check=self._check,
            finished=lambda: self._at.number,
        )
        self._receiver = AsyncReceiver(
            target.who, self._show, wishes=wishes, certificates=certificates
        )
        self._batch: list[Message] = []
        self._bytes = 0
        self._tokens = itertools.count(1)
        self._stopping = asyncio.Event()

    @property
    def position(self) -> stream_ops.StreamPosition:
        """Everything below its number has taken effect, as this life knows."""
        return self._at

    async def run(self) -> None:
        """Receive until `stop`. What the handler did is committed, or nothing of it happened.

        Raises DataLost, StreamReplaced (nothing was taken of the other), Fenced (a later life has
        taken over), HandlerMisuse, CannotConnect at the beginning, InvalidValue.
        """
        try:
            await self._hands.connect()
            self._at = await self._hands.perform(self._open(None))
            if not self._stopping.is_set():
                await self._receiver.run()
        finally:
            await self._hands.close()

    def stop(self) -> None:
        """End the life: what takes effect now comes to its end first. A handler may call it."""
        self._stopping.set()
        self._receiver.stop()

    # what comes

    def _check(self, found: Position) -> None:
        """Refuse a stream that is not the one of the position."""
        refuse_replaced(self.target.name, self._at, found)

    def _choose(self, _: RecoveryInfo) -> int:
        """Begin where the database is, whatever stores know of it."""
        return self._at.number

    async def _show(self, shown: Shown) -> None:
        match shown:
            case Message():
                self._batch.append(shown)
                self._bytes += len(shown.body)
                is_full = len(self._batch) >= self.target.batch or self._bytes >= BATCH_BYTES_MAX
                if is_full or not self._is_more:
                    await self._pass_on()
            case Loss(last=last) if last < self._at.number:
                pass  # it has taken effect: stores do not know that yet
            case Loss():
                if await self._pass_on():
                    await self._pass_loss(shown)
            case RolledBack(first=first):
                raise StreamReplaced(
                    f"the stream of topic {self.target.topic!r} has other messages from {first} on"
                    f" than {self.target.name!r} was shown: a person accepted a loss"
                )

    @property
    def _is_more(self) -> bool:
        """Whether there is more to be shown, at once, than what is being shown."""
        driver = self._receiver.driver
        return driver is not None and len(driver.outstanding) > 1

    async def _pass_on(self) -> bool:
        """Have the messages so far take effect; return whether all did: not, if it is stopped."""
        batch, self._batch, self._bytes = self._batch, [], 0
        for epoch, messages in itertools.groupby(batch, key=lambda one: one.epoch):
            if not (await self._follows(epoch) and await self._pass_pieces(list(messages))):
                return False
        return True

    async def _follows(self, epoch: int) -> bool:
        """Refuse a later epoch that has other messages below the position; False: it is stopped.

        A receiver is not told that of numbers that its life was never shown: the stores are asked,
        until enough of them have answered.
        """
        driver = self._receiver.driver
        if driver is None or epoch <= self._at.epoch or self._at.stream is None:
            return True
        while not self._stopping.is_set():
            found = await driver.run(place(driver.who, driver.wishes.patience.ask_s))
            if found is not None and found.epoch >= epoch:
                self._check(found)
                return True
            await self._pause(PAUSE_S)
        return False

    async def _pass_loss(self, loss: Loss) -> None:
        """Pass numbers that are void; others only as asked for, or before the first message."""
        is_first = self._at.stream is None and loss.why is WhyLost.TRIMMED
        is_told = loss.why is WhyLost.RECLAIMED or is_first
        if self.target.fail_on_data_loss and not is_told:
            raise DataLost(
                f"no store has numbers {loss.first} to {loss.last} of topic {self.target.topic!r}"
                f" any more ({loss.why}), and {self.target.name!r} has not had them: to go on"
                " without them, say fail_on_data_loss=False",
                first=loss.first,
                last=loss.last,
                why=loss.why,
            )
        driver = self._receiver.driver
        epoch = 0 if driver is None else driver.core.last_epoch
        if not await self._follows(epoch):
            return
        if self._application.on_event is not None:
            self._application.on_event(loss)
        await self._certainly(partial(self._move, loss.stream, epoch, loss.last + 1), ())
        tell_missed(self.target, loss)

    # effects

    async def _pass_pieces(self, messages: list[Message]) -> bool:
        """Have messages take effect; return whether all did: not, if one fails while it stops."""
        if messages[0].number != self._at.number:
            raise AssertionError(f"{messages[0].number} was shown, and {self._at.number} is next")
        pieces = Pieces(messages, abort_limit=self.target.abort_limit)
        pause_s = PAUSE_S
        while (piece := pieces.first) is not None:
            move = partial(self._move, piece[-1].stream, piece[-1].epoch, piece[-1].number + 1)
            try:
                await self._certainly(move, piece, pieces.aborts + 1)
            except OnceqError as error:
                how = blame(error)
                if how in {Blame.RAISE, Blame.LOST}:
                    raise
                tell_undone(self.target, piece, error)
                if not pieces.failed(how):
                    if self._stopping.is_set():
                        return False
                    if len(piece) == 1 or how is Blame.AGAIN:
                        await self._pause(pause_s)
                        pause_s = min(2 * pause_s, PAUSE_MAX_S)
                    continue
                await self._certainly(move, self._refusal(piece[0], error))
                tell_given_up(self.target, piece[0], error)
            pieces.passed()
            pause_s = PAUSE_S
        return True

    def _refusal(self, message: Message, error: OnceqError) -> ops.Enqueue:
        """Return what puts a message into the error queue, in the transaction that passes it."""
        of = {
            "topic": self.target.topic,
            "session": hexed(self.target.source),
            "stream": hexed(message.stream),
            "epoch": message.epoch,
            "number": message.number,
            "error": str(error),
        }
        return ops.Enqueue(
            queue=self.target.errors,
            body=message.body,
            correlation_id=f"{hexed(message.stream)}:{message.epoch}:{message.number}",
            properties={"onceq_stream": of},
            own_transaction=False,
        )

    def _move(self, stream: int, epoch: int, number: int) -> stream_ops.StreamMove:
        return stream_ops.StreamMove(
            holder=self._holder,
            epoch=self._at.epoch,
            number=self._at.number,
            stream=hexed(stream),
            to_epoch=max(epoch, self._at.epoch),
            to_number=number,
            token=f"{self._at.life}-{next(self._tokens)}",
        )

    @property
    def _holder(self) -> stream_ops.Holder:
        return stream_ops.Holder(
            name=self.target.name,
            topic=self.target.topic,
            session=hexed(self.target.source),
            life=self._at.life,
        )

    def _open(self, life: int | None) -> stream_ops.StreamOpen:
        return stream_ops.StreamOpen(
            name=self.target.name,
            topic=self.target.topic,
            session=hexed(self.target.source),
            life=life,
        )

    async def _certainly(
        self,
        made: Callable[[], stream_ops.StreamMove],
        effects: Sequence[Message] | ops.Enqueue,
        attempt: int = 1,
    ) -> None:
        """Have effects and the move of the position committed, whatever becomes of connections.

        effects: messages for the handler, or what puts one into the error queue.
        """
        while True:
            move = made()
            try:
                await self._hands.run(moved(move, self._effects(effects, attempt)))
            except LOST as error:
                found = await self._position_after(error)
            else:
                found = replace_position(self._at, move)
            if (found.epoch, found.number) == (move.to_epoch, move.to_number):
                self._at = found
                faultpoint("into.moved")
                return
            if found.number != self._at.number:
                raise Fenced(f"the position of {self.target.name!r} was moved by another")

    def _effects(self, effects: Sequence[Message] | ops.Enqueue, attempt: int) -> list[ops.Op[Any]]:
        if isinstance(effects, ops.Enqueue):
            return [effects]
        if not effects:
            return []
        given = Given(
            messages=lambda: [self._application.decode(one) for one in effects],
            name=self.target.name,
            topic=self.target.topic,
            attempt=attempt,
        )
        return [self._hands.act(self._application.handler, given)]

    async def _position_after(self, error: OnceqError) -> stream_ops.StreamPosition:
        """Connect again, however long that takes, and return where the position is.

        It waits for a transaction whose COMMIT may still be on its way. Stopped, it raises.
        """
        pause_s = PAUSE_S
        while not self._stopping.is_set():
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            with contextlib.suppress(*LOST):
                await self._hands.connect()
                return await self._hands.perform(self._open(self._at.life))
        raise error

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until this is stopped."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def replace_position(
    at: stream_ops.StreamPosition, move: stream_ops.StreamMove
) -> stream_ops.StreamPosition:
    """Return the position behind a move."""
    return stream_ops.StreamPosition(
        life=at.life, stream=move.stream, epoch=move.to_epoch, number=move.to_number
    )
