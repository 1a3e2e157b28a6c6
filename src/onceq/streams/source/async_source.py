"""A source for asyncio: an application sends by it, and waits until what it sent is stable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from onceq.errors import DeadlineExceeded, IllegalState
from onceq.streams.errors import NotRegistered
from onceq.streams.model import events
from onceq.streams.model.quorum import StoreList
from onceq.streams.net.address import Address, address, refuse_unless_safe
from onceq.streams.net.tls import Certificates
from onceq.streams.source import acts
from onceq.streams.source.driver import Driver
from onceq.streams.source.sending import Sending
from onceq.streams.source.telling import refuse_if_over


class AsyncSource:
    """One life of a source, from `start` to `close`; all in one loop. core: made for it alone.

    listen: where receivers connect; None: they read from stores only. on_event: called with what
    happens, also to each message; without it, no events of messages are made. It may call this.
    What it raises changes nothing else: it is reported to the loop's handler of exceptions at once,
    and raised by `close`. Raises InvalidValue for addresses beyond this machine without
    certificates.
    """

    def __init__(
        self,
        core: Sending,
        *,
        listen: Address | None = None,
        certificates: Certificates | None = None,
        on_event: Callable[[events.Event], None] | None = None,
    ) -> None:
        self._has_tls = certificates is not None
        self._check(core.own)
        if listen is not None:
            refuse_unless_safe(listen, has_tls=self._has_tls)
        self._core = core
        core.keeping.is_heard = on_event is not None
        self._listen = listen
        self._on_event = on_event
        self._raised: Exception | None = None
        self._driver = Driver(core, certificates, self._tell)
        self._living: asyncio.Task[None] | None = None
        self._is_closed = False

    def _check(self, stores: StoreList) -> None:
        for store in sorted(stores.stores):
            refuse_unless_safe(address(store), has_tls=self._has_tls)

    # its life

    async def start(self) -> None:
        """Listen for receivers, and begin to recover. Raises OSError if nobody can listen there."""
        if self._living is not None or self._is_closed:
            raise IllegalState("a source is started once; make another one")
        if self._listen is not None:
            bound = await self._driver.receivers.listen(self._listen)
            life = self._core.life
            self._core.life = replace(life, address=life.address or str(bound))
        self._living = asyncio.ensure_future(self._driver.live())

    async def close(self) -> None:
        """Send what was taken, and end: what is not stable by then may become so, or not.

        Raises what went wrong: in the life, or in `on_event`.
        """
        self._is_closed = True
        if self._living is None:
            return
        living, self._living = self._living, None
        if not self._driver.is_ending:
            living.cancel()
        await asyncio.wait([living])
        if not living.cancelled():
            living.result()
        if self._raised is not None:
            raise self._raised

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # its messages

    def heed(self, moved: Callable[[], None]) -> None:
        """Have something called, in the thread of the loop, whenever something may have changed."""
        self._driver.moved = moved

    @property
    def next_number(self) -> int:
        """The number of the next message. Raises NotRegistered before the first epoch has begun."""
        if self._core.begun is None:
            if self._core.rest is not None:
                raise self._core.not_registered()
            raise NotRegistered("the stores have not yet told what comes next: wait_registered")
        return self._core.next

    @property
    def stable_below(self) -> int:
        """All messages below this number are stable."""
        return self._core.stable

    def send(self, message: bytes, given: Any = None) -> int:
        """Send a message; return its number, the last one if it takes several.

        given: an object that comes with each event of the message; `SequenceNumbers` is told before
        this returns. Raises NotRegistered while no stable set of stores is responsive, FlightFull
        while as much as may be has not landed (with flight_size_behavior "notify" it is sent, and
        `FlightSize` tells), TooLarge, and SourceSucceeded or NumberConflict for ever. Then nothing
        was sent.
        """
        if self._living is None or self._living.done():
            self.refuse_if_over()
        first, last = self._driver.send(message, given)
        if self._on_event is not None:
            stream = self._core.keeping.stream
            told = events.SequenceNumbers(stream=stream, first=first, last=last, given=given)
            self._tell(told)
        return last

    def has_room(self, size: int) -> bool:
        """Whether a message of so many bytes has room in flight. Raises as `send`."""
        return self._core.has_room(size)

    def take(
        self, message: bytes, loop: asyncio.AbstractEventLoop, given: Any = None
    ) -> tuple[int, int]:
        """As `send`, in any thread; return the first and the last number, which nobody is told.

        loop: in which this was started.
        """
        if self._living is None or self._living.done():
            self.refuse_if_over()
        return self._driver.take(message, loop, given)

    async def wait_registered(self, timeout_s: float | None = None) -> None:
        """Wait until messages can be sent. Raises DeadlineExceeded, or as `send`."""
        try:
            await self._wait(self.is_registered, timeout_s, "no stable set of stores is responsive")
        except DeadlineExceeded:
            self.refuse_if_short(timeout_s)
            raise

    def is_registered(self) -> bool:
        """Whether messages can be sent. Raises SourceSucceeded or NumberConflict for ever."""
        try:
            self._core.has_room(0)
        except NotRegistered:
            return False
        return True

    async def wait_room(self, size: int = 0, timeout_s: float | None = None) -> None:
        """Wait until a message of so many bytes has room in flight.

        Raises DeadlineExceeded, or as `send`: NotRegistered, too.
        """
        await self._wait(lambda: self._core.has_room(size), timeout_s, "the flight is full")

    async def wait_stable(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent so far is stable. Raises DeadlineExceeded, or as `send`.

        While no stable set of stores is responsive, it goes on waiting.
        """
        end = self._core.next
        await self._wait(lambda: self._core.stable >= end, timeout_s, "not all is stable")

    async def wait_everywhere(self, within_s: float) -> frozenset[str]:
        """Wait until all stores that answer have what was sent so far; at most for so long.

        Returns the stores that have not all of it then, also those that do not answer.
        """
        end, feeding = self._core.next, self._core.feeding
        with contextlib.suppress(DeadlineExceeded):
            await self._wait(lambda: not feeding.lacking(end) & feeding.answering, within_s, "")
        return feeding.lacking(end)

    async def _wait(self, holds: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self.refuse_if_over()
                    await self._driver.changed.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"after {timeout_s} s {what}") from None

    # its list

    def want(self, stores: StoreList) -> None:
        """Have the list of stores changed. `RegistrationComplete` tells each step.

        Raises InvalidValue for addresses beyond this machine without certificates.
        """
        self._check(stores)
        self.refuse_if_over()
        self._driver.step(acts.Wanted(own=stores))

    def give_up(self, number: int) -> None:
        """Give up a number that is not stable: it may then never be, and receivers are told."""
        self.refuse_if_over()
        self._driver.step(acts.GaveUp(number=number))

    def refuse_if_short(self, timeout_s: float | None) -> None:
        """Raise DeadlineExceeded with what is left, if more is lost than the list allows."""
        if self._core.rest is not None:
            text = f"after {timeout_s} s {self._core.not_registered()}"
            raise DeadlineExceeded(text) from None

    def refuse_if_over(self) -> None:
        """Raise why the life is over, if it is."""
        if self._living is None:
            raise IllegalState("the source is closed" if self._is_closed else "start it first")
        refuse_if_over(self._core.ended, self._core.life)
        if self._living.done():
            self._living.result()

    def _tell(self, event: events.Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 # the application's code: `close` raises it
            self._raised = self._raised or error
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"on_event raised for {event!r}", "exception": error}
            )
