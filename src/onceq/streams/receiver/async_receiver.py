"""A receiver for asyncio: an application is shown a stream's messages, in order, one at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from onceq.errors import IllegalState
from onceq.model.ops.async_running import RunsAsync
from onceq.streams.net.asker import Asker
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.driver import CLOSE_S, Driver, ShowIt, Wishes
from onceq.streams.receiver.placing import Registration, Who, enter


class AsyncReceiver:
    """One life of a receiver: all that `run` does. show: called with what comes, and awaited.

    What `show` returns from is acknowledged, as soon as it is stable. It gets messages, and what
    happened to numbers that it does not get, or saw in vain.
    """

    def __init__(
        self,
        who: Who,
        show: ShowIt,
        *,
        wishes: Wishes | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.who = who
        self.wishes = wishes or Wishes()
        self.driver: Driver | None = None
        self._show = show
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
                self.driver = Driver(
                    self.who,
                    registration,
                    self.wishes,
                    asker,
                    show=self._show,
                    certificates=certificates,
                )
                await self.driver.live()
        finally:
            await asker.wait_closed(CLOSE_S)

    def stop(self) -> None:
        """End the life: what is being shown comes to its end first. `show` may call it."""
        self._stopped.set()
        if self.driver is not None:
            self.driver.stop()

    async def _enter(self, asker: Asker) -> Registration | None:
        """Register; None: it was stopped before."""
        patience = self.wishes.patience
        program = enter(
            self.who,
            patience.ask_s,
            patience.rest_s,
            choose=self.wishes.choose,
            check=self.wishes.check,
        )
        entering = asyncio.ensure_future(_Asking(asker).run(program))
        stopping = asyncio.ensure_future(self._stopped.wait())
        both: set[asyncio.Future[Any]] = {entering, stopping}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return None if stopping.done() else entering.result()
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


class _Asking(RunsAsync):
    """Performs the Programs of who is not yet registered."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def perform(self, op: Any) -> Any:
        """See RunsAsync."""
        return await self._asker.perform(op)

    def _leave(self) -> None:
        """See RunsAsync: a Program holds nothing here."""
