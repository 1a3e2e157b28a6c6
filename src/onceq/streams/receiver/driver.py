"""A life of a receiver over asyncio: it performs what its Programs and its core want done.

Five things go on side by side: it shows the application what came, reads from stores what it lacks,
hears the source, tells stores how far it is, and the source that it lives. When one of them ends,
so do the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from onceq.errors import InvalidValue
from onceq.model.ops.async_running import RunsAsync
from onceq.streams.model import asks, events, low
from onceq.streams.model.events import Loss, WhyLost
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.uses import beat_s
from onceq.streams.net.asker import Asker
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.acknowledging import Acknowledging, acknowledge, acknowledge_all
from onceq.streams.receiver.catching_up import Patience, follow
from onceq.streams.receiver.confirming import Confirming, registered_as
from onceq.streams.receiver.counting import Counting
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.following import Following
from onceq.streams.receiver.joining import Joining
from onceq.streams.receiver.ops import ReadStore, Show, Shown
from onceq.streams.receiver.outstanding import Outstanding
from onceq.streams.receiver.placing import Position, Registration, Who
from onceq.streams.receiver.seeking import Id, SourceRegistration
from onceq.streams.receiver.tokens import Tokens

ShowIt: TypeAlias = Callable[[Shown], Awaitable[None] | None]
Tell: TypeAlias = Callable[[events.Event], None]
AT_ONCE: Final = 100
"""After so many that were shown without a wait, what else goes on has its turn."""
CLOSE_S: Final = 1.0
NEVER_S: Final = 3_600.0
"""So seldom a receiver looks whether its source should be told something, unless more is wished."""


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """What of an application is called. show: with what comes; tell: with what happens beside."""

    show: ShowIt
    tell: Tell


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """How a life is to be. is_stable_only: what is not yet stable is not shown.

    ack_batching_interval_ms and what follows: see the table of options. choose: the
    call-back that may have the life begin with another number than it would. check: called with
    what was found of the stream, before the life is registered; it may raise. finished: for an
    application that goes on with messages after it was shown them: below which number it has come
    to their end. joins_late: whatever the source says of late join, it begins where it was.
    named: called with what its source is called at stores: what the receiver is to be called.
    """

    is_stable_only: bool = True
    ack_batching_interval_ms: int = 100
    application_outstanding_maximum: int = 0
    explicit_ack_only: bool = False
    allow_confirmed_delivery: bool = True
    receiver_liveness_interval_ms: int = 0
    patience: Patience = Patience()
    choose: Callable[[low.RecoveryInfo], int | None] | None = None
    check: Callable[[Position], None] | None = None
    finished: Callable[[], int] | None = None
    joins_late: bool = False
    named: Callable[[SourceRegistration], Id] | None = None

    def __post_init__(self) -> None:
        least = min(self.application_outstanding_maximum, self.receiver_liveness_interval_ms)
        if self.ack_batching_interval_ms < 1 or least < 0:
            raise InvalidValue(
                "ack_batching_interval_ms is at least 1, application_outstanding_maximum and"
                " receiver_liveness_interval_ms at least 0"
            )


class Driver(RunsAsync):
    """What performs the life of a receiver that is registered, for an application."""

    def __init__(
        self,
        who: Who,
        registration: Registration,
        wishes: Wishes,
        asker: Asker,
        *,
        application: Application,
        certificates: Certificates | None,
    ) -> None:
        position = registration.position
        self.who = who
        self.wishes = wishes
        self.core = Delivering(
            position.stream,
            registration.begin,
            position.lists,
            is_stable_only=wishes.is_stable_only,
            acknowledged=position.acknowledged,
        )
        self.outstanding = Outstanding(
            registration.begin, messages_max=wishes.application_outstanding_maximum
        )
        self.outstanding.add(skipped(registration))
        self.tokens = Tokens(
            self.outstanding,
            registration.begin,
            is_explicit=wishes.explicit_ack_only,
            moved=self._moved,
        )
        self.acknowledging = Acknowledging(who, registration)
        self.counting = Counting()
        self._following = Following(position.stream, position.lists[-1])
        self._confirming = Confirming(
            position.stream,
            registered_as(who.session, registration.regids),
            wishes.receiver_liveness_interval_ms / 1_000,
        )
        self._confirms: asyncio.Handle | None = None
        self.is_stopped = False
        self._show, self._tell = application.show, application.tell
        self._asker = asker
        tls = None if certificates is None else certificates.connecting()
        self._joining = Joining(asks.Learn(topic=who.topic, session=who.source), self._heard, tls)
        self._added = asyncio.Event()
        self._room = asyncio.Event()
        self._lacking = asyncio.Event()
        self._acknowledged = asyncio.Event()

    async def live(self) -> None:
        """Live until `stop`, or until the application raises, which this does then, too.

        At the end, also when it is cancelled, stores are told how far it has come.
        """
        try:
            await first_of(
                self._show_all(),
                self._follow(),
                self._hear(),
                self._tell_stores(),
                self._tell_source(),
            )
        finally:
            self.tokens.close()
            if self._confirms is not None:
                self._confirms.cancel()
            below = self._ended_below(self.core.sure)
            read_s = self.wishes.patience.read_s
            await self.run(acknowledge_all(self.acknowledging, self.core, below, read_s))

    def stop(self) -> None:
        """End the life behind what is being shown."""
        self.is_stopped = True
        self._added.set()

    # the Programs

    async def _follow(self) -> None:
        await self.run(follow(self.core, self.who, self.wishes.patience))

    async def perform(self, op: Any) -> Any:
        """See RunsAsync."""
        self._look_for_source()
        self._tell_changed()
        match op:
            case ReadStore(store=store, ask=ask, within_s=within_s):
                return await self._asker.ask(store, ask, within_s)
            case Show(shown=shown):
                self._add(shown)
                while self.outstanding.is_full:
                    self._room.clear()
                    await self._room.wait()
                return None
            case WaitUntil(within_s=within_s):
                return await self._rest(within_s)
            case _:
                return await self._asker.perform(op)

    def _leave(self) -> None:
        """See RunsAsync: a Program holds nothing here."""

    async def _rest(self, within_s: float) -> None:
        """Wait until the core lacks something that it did not lack before, or for some time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._lacking.wait()
        self._lacking.clear()

    # the source

    @property
    def _source(self) -> str:
        """Where the source is; empty: nobody knows."""
        return "" if self.core.told is None else self.core.told.address

    @property
    def heard_at(self) -> str:
        """Where there is a link to the source; empty: there is none."""
        return self._joining.at

    @property
    def reconnects(self) -> int:
        """How many links to the source there were after the first."""
        return max(0, self._joining.count - 1)

    async def _hear(self) -> None:
        """Hear the source, whenever there is a link to it."""
        patience = self.wishes.patience
        while True:
            if self._source:
                await self._joining.join(self._source, patience.ask_s)
            await asyncio.sleep(patience.rest_s)

    def _look_for_source(self) -> None:
        """Leave a source that has succeeded elsewhere."""
        if self._joining.at not in {"", self._source}:
            self._joining.leave()

    def _tell_changed(self) -> None:
        """Tell that the source has changed its list of stores, if it has."""
        for event in self._following.look(self.core.lists[-1]):
            self._tell(event)

    def _heard(self, data: bytes) -> None:
        was_lacking = self._is_lacking
        self._add(self.core.heard(data))
        self._tell_changed()
        if self._is_lacking and not was_lacking:
            self._lacking.set()
        if self.outstanding.is_full:
            self._joining.hold()
        self._confirm_soon()

    @property
    def _is_lacking(self) -> bool:
        return self.core.is_behind or self.core.lacks

    # the application

    def _add(self, shown: Iterable[Shown]) -> None:
        self.outstanding.add(shown)
        self._added.set()

    async def _show_all(self) -> None:
        """Show one after the other; one that raises has not come to its end."""
        at_once = 0
        while not self.is_stopped:
            one = self.outstanding.first
            if one is None:
                self._added.clear()
                await self._added.wait()
                continue
            self.tokens.begin(one)
            shown = self._show(one)
            if inspect.isawaitable(shown):
                await shown
            self.tokens.returned()
            self.counting.note(one)
            at_once = (at_once + 1) % AT_ONCE
            if at_once == 0:
                await asyncio.sleep(0)

    def _moved(self) -> None:
        """Note that some have ended."""
        if not self.outstanding.is_full:
            self._joining.go_on()
            self._room.set()
        if self.wishes.explicit_ack_only:
            self._acknowledged.set()
        self._confirm_soon()

    def _confirm_soon(self) -> None:
        """Have the source told what has been processed, as soon as the loop is idle."""
        if self._confirms is None and self.wishes.allow_confirmed_delivery:
            self._confirms = asyncio.get_running_loop().call_soon(self._confirm)

    def _confirm(self) -> None:
        self._confirms = None
        joining, now_s = self._joining, asyncio.get_running_loop().time()
        below = self._ended_below(self.core.next)
        said = self._confirming.due(below, epoch=self.core.epoch, link=joining.count, now_s=now_s)
        if said is not None and joining.confirm(said):
            self._confirming.said(said, link=joining.count, now_s=now_s)

    async def _tell_source(self) -> None:
        """Tell the source again what it knows: that the receiver lives."""
        again_s = self.wishes.receiver_liveness_interval_ms / 1_000 or NEVER_S
        while True:
            await asyncio.sleep(again_s)
            self._confirm_soon()

    # the stores

    def _ended_below(self, most: int) -> int:
        """Return below which number all may be acknowledged, at most this one."""
        below = self.outstanding.below(most)
        finished = self.wishes.finished
        return below if finished is None else min(below, finished())

    async def _tell_stores(self) -> None:
        """Tell stores again and again how far the application has come; explicitly: at once.

        Raises RegistrationInUse if another life has come in.
        """
        loop, read_s = asyncio.get_running_loop(), self.wishes.patience.read_s
        interval_s = self.wishes.ack_batching_interval_ms / 1_000
        every_s = beat_s(self.who.activity_ms) or NEVER_S
        beat_at_s = due_s = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(interval_s, every_s)):
                    await self._acknowledged.wait()
            below = 0  # it is only said that the receiver lives
            if self._acknowledged.is_set() or loop.time() >= due_s:
                self._acknowledged.clear()
                below, due_s = self._ended_below(self.core.sure), loop.time() + interval_s
            was_silent = frozenset(self.acknowledging.silent)
            if is_beat := loop.time() >= beat_at_s and bool(self.who.activity_ms):
                beat_at_s = loop.time() + every_s
            await self.run(
                acknowledge(self.acknowledging, self.core, below, read_s, is_beat=is_beat)
            )
            self.acknowledging.refuse_if_replaced(self.core)
            for store in sorted(self.acknowledging.silent - was_silent):
                why = "it does not answer for what was acknowledged"
                self._tell(events.StoreUnresponsive(stream=self.core.stream, store=store, why=why))


def skipped(registration: Registration) -> list[Shown]:
    """Return what is told of the numbers that a life leaves out by choice; nothing: it has none."""
    position, begin = registration.position, registration.begin
    first = position.shown.low
    if begin <= first:
        return []
    return [Loss(stream=position.stream, first=first, last=begin - 1, why=WhyLost.SKIPPED)]


async def first_of(*made: Coroutine[Any, Any, None]) -> None:
    """Do several things side by side until one ends; raise what that raises, and cancel the others.

    Returns when all have ended.
    """
    running = [asyncio.ensure_future(one) for one in made]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for one in running:
            if one.done():
                one.result()
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
