"""A source as programs for asyncio have it: values are sent by it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from onceq.errors import DeadlineExceeded
from onceq.streams.api.exposing import source_text
from onceq.streams.api.given import Shared, SourceParts
from onceq.streams.api.handlers import OnEvent
from onceq.streams.api.numbers import check_number, check_wait
from onceq.streams.api.statistics import SourceStatistics, source_statistics
from onceq.streams.errors import FlightFull
from onceq.streams.source import async_source
from onceq.streams.topic import Topic

T = TypeVar("T")
REGISTERED_S: Final = 10.0
"""How long entering waits for the stores; then messages are refused until they have answered."""


class AsyncSource(Generic[T]):
    """One life of a source of a topic. `async with` it: that registers, and closes at the end.

    Made by a context. All its tasks are of one loop. Each value gets the next number; what several
    tasks send is in the order of their calls.
    """

    def __init__(
        self,
        topic: Topic[T],
        parts: SourceParts,
        shared: Shared,
        *,
        on_event: OnEvent | None,
        within_s: float | None,
    ) -> None:
        self.topic = topic
        self._parts, self._shared = parts, shared
        self._within_s = check_wait("within_s", within_s)
        self._inner = async_source.AsyncSource(
            parts.core,
            listen=parts.listen,
            certificates=shared.certificates,
            on_event=on_event,
        )

    async def __aenter__(self) -> Self:
        self._shared.refuse_elsewhere()
        await self._inner.start()
        try:
            await self._inner.wait_registered(self._within_s)
        except DeadlineExceeded:
            return self  # `send` says what is lacking, until it is there
        except BaseException:
            await self._inner.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what was taken, and end, in a few seconds at most.

        What is not stable by then may become so, or not: the next life's `next_number` tells.
        Raises what went wrong: in the life, or in `on_event`.
        """
        if not self._shared.is_elsewhere:
            await self._inner.close()

    # messages

    async def send(self, value: T, *, given: Any = None) -> int:
        """Send a value; return its number, the last one if it takes several.

        given: an object of one's own, which comes with each event of the message. While as much is
        in flight as may be, it waits; or, by flight_size_behavior, it does not, and `FlightSize`
        tells. Raises NotRegistered while no stable set of stores is responsive: send it again
        later; SourceSucceeded or NumberConflict for ever; InvalidValue, TooLarge, IllegalState.
        Then nothing was sent.
        """
        self._shared.refuse_elsewhere()
        body = self.topic.encode(value)
        while True:
            try:
                return self._inner.send(body, given)
            except FlightFull:
                await self._inner.wait_room(len(body))

    @property
    def next_number(self) -> int:
        """The number of the next message. Raises NotRegistered before the stores have told it."""
        return self._inner.next_number

    @property
    def address(self) -> str:
        """Where receivers find it; empty: it does not listen."""
        return self._parts.core.life.address

    @property
    def stable_below(self) -> int:
        """All messages below this number are stable."""
        return self._inner.stable_below

    async def wait_registered(self, timeout_s: float | None = None) -> None:
        """Wait until messages can be sent. Raises DeadlineExceeded, or what is wrong for ever."""
        self._shared.refuse_elsewhere()
        await self._inner.wait_registered(check_wait("timeout_s", timeout_s))

    async def wait_stable(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent so far is stable. Raises DeadlineExceeded, or as `send`.

        While no stable set of stores is responsive, it goes on waiting.
        """
        self._shared.refuse_elsewhere()
        await self._inner.wait_stable(check_wait("timeout_s", timeout_s))

    # stores

    async def want(self, stores: str) -> None:
        """Have the list of stores changed, while sending goes on. RegistrationComplete tells steps.

        Raises InvalidValue for what is no list.
        """
        self._shared.refuse_elsewhere()
        self._inner.want(self._parts.relist(self._shared, stores))

    async def give_up(self, number: int) -> None:
        """Give up a number that is not stable: it may then never be, and receivers are told."""
        self._shared.refuse_elsewhere()
        self._inner.give_up(check_number(number))

    def statistics(self) -> SourceStatistics:
        """Return how far it is."""
        return source_statistics(self._parts.core)

    def metrics(self) -> str:
        """Return that as metrics for Prometheus, as text. docs/metrics.md has their names."""
        return source_text(self.statistics())
