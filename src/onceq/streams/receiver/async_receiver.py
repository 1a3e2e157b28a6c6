"""A receiver for asyncio: an application is shown a stream's messages, in order, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onceq.errors import IllegalState
from onceq.model.ops.async_running import RunsAsync
from onceq.model.ops.base import Program
from onceq.streams.model import asks, events
from onceq.streams.model.ops import AskStore, AskStores
from onceq.streams.net.address import address, refuse_unless_safe
from onceq.streams.net.asker import Asker
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.driver import CLOSE_S, Application, Driver, ShowIt, Tell, Wishes
from onceq.streams.receiver.lacking import Lacking
from onceq.streams.receiver.ops import Shown
from onceq.streams.receiver.placing import Registration, Who, enter
from onceq.streams.receiver.seeking import seek, source_registration
from onceq.streams.receiver.tokens import Token


def _unheard(_: events.Event) -> None:
    """Nobody wants to know."""


class AsyncReceiver:
    """One life of a receiver: all that `run` does. show: called with what comes, and awaited.

    What `show` returns from is acknowledged, as soon as it is stable, unless it was retained. It
    gets messages, and what happened to numbers that it does not get, or saw in vain. tell: called
    with what happens beside. at: an address where the source and its stores are learned; empty:
    `who` has them.
    """

    def __init__(
        self,
        who: Who,
        show: ShowIt,
        *,
        wishes: Wishes | None = None,
        certificates: Certificates | None = None,
        tell: Tell = _unheard,
        at: str = "",
    ) -> None:
        self.who = who
        self.wishes = wishes or Wishes()
        self.driver: Driver | None = None
        self._application = Application(show=show, tell=tell)
        self._at = at
        self._certificates = certificates
        self._is_used = False
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Find where the life begins, and live until `stop`.

        Raises what `show` raises, which ends the life: what it was shown then is not acknowledged.
        At the end, also when it is cancelled, stores are told how far it has come. Raises
        InvalidValue if the source is beyond this machine, and there are no certificates; or what
        `wishes.check` raises: then no store has noted anything.
        """
        if self._is_used:
            raise IllegalState("a receiver is run once; make another one")
        self._is_used = True
        certificates = self._certificates
        asker = Asker(None if certificates is None else certificates.connecting())
        try:
            registration = await self._enter(asker)
            if registration is not None:
                self._tell_registered(registration)
                self.driver = Driver(
                    self.who,
                    registration,
                    self.wishes,
                    asker,
                    application=self._application,
                    certificates=certificates,
                )
                await self.driver.live()
        finally:
            await asker.wait_closed(CLOSE_S)

    def retain(self, one: Shown) -> Token:
        """Have the return of `show` not acknowledge what it is shown now; the token does.

        Raises IllegalState when it has returned.
        """
        if self.driver is None:
            raise IllegalState("nothing is shown: the receiver does not run")
        return self.driver.tokens.retain(one)

    def stop(self) -> None:
        """End the life: what is being shown comes to its end first. `show` may call it."""
        self._stopped.set()
        if self.driver is not None:
            self.driver.stop()

    async def _enter(self, asker: Asker) -> Registration | None:
        """Register; None: it was stopped before."""
        asking = _Asking(asker, self._application.tell)
        entering = asyncio.ensure_future(asking.run(self._entering()))
        stopping = asyncio.ensure_future(self._stopped.wait())
        both: set[asyncio.Future[Any]] = {entering, stopping}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return None
            registration = entering.result()
            lists = (self.who.known, *registration.position.lists)
            asker.keep({store for one in lists for store in one.stores})  # `at` may be none of them
            return registration
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    def _entering(self) -> Program[Registration]:
        patience = self.wishes.patience
        if self._at:
            ask = asks.Learn(topic=self.who.topic, session=self.who.source)
            known = yield from seek(self._at, ask, within_s=patience.ask_s, rest_s=patience.rest_s)
            for store in sorted(known.lists[-1].stores):
                refuse_unless_safe(address(store), has_tls=self._certificates is not None)
            self.who = replace(self.who, source=known.session, known=known.lists[-1])
        if self.wishes.named is not None:
            its = yield from source_registration(
                self.who, within_s=patience.ask_s, rest_s=patience.rest_s
            )
            called = self.wishes.named(its)
            self.who = replace(self.who, regid=called.regid, key=called.key)
        return (
            yield from enter(
                self.who,
                patience.ask_s,
                patience.rest_s,
                choose=self.wishes.choose,
                check=self.wishes.check,
                joins_late=self.wishes.joins_late,
            )
        )

    def _tell_registered(self, registration: Registration) -> None:
        """Tell what stores answered, and where the life begins."""
        position, tell = registration.position, self._application.tell
        for store, answer in sorted(registration.answers.items()):
            tell(
                events.StoreRegistered(
                    stream=position.stream,
                    store=store,
                    regid=answer.regid,
                    old=answer.old,
                    last=answer.below - 1,
                )
            )
        tell(
            events.RegistrationComplete(
                stream=position.stream,
                next_number=registration.begin,
                reported=position.shown.high,
                epoch=position.epoch,
            )
        )


class _Asking(RunsAsync):
    """Performs the Programs of who is not yet registered. tell: called with what stores lack."""

    def __init__(self, asker: Asker, tell: Tell) -> None:
        self._asker = asker
        self._tell = tell
        self._lacking = Lacking()

    async def perform(self, op: Any) -> Any:
        """See RunsAsync."""
        answer = await self._asker.perform(op)
        match op:
            case AskStore(store=store, ask=ask):
                self._look({store: ask}, {store: answer})
            case AskStores(asked=asked):
                self._look(asked, answer)
            case _:
                pass
        return answer

    def _look(
        self, asked: Mapping[str, asks.Ask], answers: Mapping[str, asks.Answer | None]
    ) -> None:
        for event in self._lacking.look(asked, answers):
            self._tell(event)

    def _leave(self) -> None:
        """See RunsAsync: a Program holds nothing here."""
