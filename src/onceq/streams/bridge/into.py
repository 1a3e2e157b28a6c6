"""The receiving bridge: messages of a stream take effect in a database, each exactly once.

It is a receiver of what is stable. What a handler does by SQL, and the position behind its
messages, are one commit; stores are told of it afterwards, so they never give up what has not
taken effect. A later life under the same name fences this one. Source: spec M23, M38; streams.md 8.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from onceq.model import stream_ops
from onceq.streams.bridge.effects import Application, Effects
from onceq.streams.bridge.hands import hands
from onceq.streams.bridge.moving import refuse_replaced
from onceq.streams.bridge.target import Target, tell_missed
from onceq.streams.bridge.trying import PAUSE_S, Pauses, tell_store
from onceq.streams.errors import DataLost, StreamReplaced
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.low import RecoveryInfo
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.driver import Wishes
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Position, place

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located

BATCH_BYTES_MAX: Final = 8 << 20
"""A batch takes effect when its messages have so many bytes, however few they are."""
NEVER_SENT: Final = frozenset({WhyLost.RECLAIMED, WhyLost.UNFINISHED, WhyLost.SKIPPED})
"""What is no loss: void numbers, and parts of messages of which nobody was told that all is stable.

SKIPPED are the rest of a message whose beginning the position has passed, and told.
"""


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
        self._stopping = asyncio.Event()
        self._effects = Effects(
            target, application, hands(application.handler, *database), self._stopping
        )
        wishes = replace(
            wishes or Wishes(),
            is_stable_only=True,
            choose=self._choose,
            check=self._check,
            joins_late=True,
            finished=lambda: self._at.number,
        )
        self._receiver = AsyncReceiver(
            target.who,
            self._show,
            wishes=wishes,
            certificates=certificates,
            tell=partial(tell_store, target.name, target.topic),
        )
        self._batch: list[Message] = []
        self._bytes = 0
        self._is_new = False

    @property
    def _at(self) -> stream_ops.StreamPosition:
        return self._effects.at

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
            if await self._begin():
                await self._receiver.run()
        finally:
            await self._effects.close()

    async def _begin(self) -> bool:
        """Begin a life; return whether it is to go on."""
        is_open = await self._effects.open()
        self._is_new = self._at.stream is None
        return is_open and not self._stopping.is_set()

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
                self._take_back(first)

    def _take_back(self, first: int) -> None:
        """Forget what was shown from a number on, and is lost, unless it has taken effect."""
        if first < self._at.number:
            raise StreamReplaced(
                f"the stream of topic {self.target.topic!r} has other messages from {first} on"
                f" than {self.target.name!r} was shown: a person accepted a loss, and what had"
                f" taken effect, up to {self._at.number - 1}, is lost too; receive it under another"
                " name, or have the position forgotten"
            )
        self._batch = [one for one in self._batch if one.number < first]
        self._bytes = sum(len(one.body) for one in self._batch)

    @property
    def _is_more(self) -> bool:
        """Whether there is more to be shown, at once, than what is being shown."""
        driver = self._receiver.driver
        return driver is not None and len(driver.outstanding) > 1

    async def _pass_on(self) -> bool:
        """Have the messages so far take effect; return whether all did: not, if it is stopped."""
        batch, self._batch, self._bytes = self._batch, [], 0
        for epoch, messages in itertools.groupby(batch, key=lambda one: one.epoch):
            if not (await self._follows(epoch) and await self._take(list(messages))):
                return False
        return True

    async def _take(self, messages: list[Message]) -> bool:
        if messages[0].first != self._at.number:
            raise AssertionError(f"{messages[0].first} was shown, and {self._at.number} is next")
        self._is_new = False
        return await self._effects.take(messages)

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
            await Pauses(self._stopping).rest(PAUSE_S)
        return False

    def _is_before_all(self, loss: Loss) -> bool:
        """Whether numbers were trimmed before this name began: or are of a message that was so cut.

        The rest of that comes number by number.
        """
        is_rest = self._is_new and loss.first == loss.last
        return loss.why is WhyLost.TRIMMED and (is_rest or self._at.stream is None)

    async def _pass_loss(self, loss: Loss) -> None:
        """Pass numbers that are void; others only as asked for, or before the first message."""
        is_none = loss.why in NEVER_SENT or self._is_before_all(loss)
        if self.target.fail_on_data_loss and not is_none:
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
        if await self._effects.skip(loss.stream, epoch, loss.last + 1):
            tell_missed(self.target, loss)
