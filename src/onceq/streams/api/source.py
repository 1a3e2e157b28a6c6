"""A source for threads: what they send is taken by the core under its lock, and leaves by the loop.

What differs from `AsyncSource` is who waits: here a thread does, for the loop of the context.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from onceq.errors import DeadlineExceeded
from onceq.streams.api.exposing import source_text
from onceq.streams.api.given import Shared, SourceParts
from onceq.streams.api.handlers import OnEvent
from onceq.streams.api.loop_thread import Changes, EventThread, LoopThread
from onceq.streams.api.numbers import check_number, check_wait
from onceq.streams.api.statistics import SourceStatistics, source_statistics
from onceq.streams.errors import FlightFull
from onceq.streams.model import events
from onceq.streams.source import async_source
from onceq.streams.topic import Topic

T = TypeVar("T")


class Source(Generic[T]):
    """One life of a source of a topic. `with` it: that registers, and closes at the end.

    Made by a context; any threads may use it. Each value gets the next number. on_event is called
    in a thread of the context, one event after the other, and may wait; with `SequenceNumbers` in
    the thread that sends.
    """

    def __init__(
        self,
        topic: Topic[T],
        parts: SourceParts,
        shared: Shared,
        *,
        on_event: OnEvent | None,
        within_s: float | None,
        threads: tuple[LoopThread, EventThread],
    ) -> None:
        self.topic = topic
        self._parts, self._shared = parts, shared
        self._loop, self._events = threads
        self._on_event = on_event
        self._within_s = check_wait("within_s", within_s)
        self.is_over = False
        self._raised: Exception | None = None
        self._changes = Changes()
        self._inner = async_source.AsyncSource(
            parts.core,
            listen=parts.listen,
            certificates=shared.certificates,
            on_event=None if on_event is None else self._put,
        )
        self._inner.heed(self._changes.moved)

    def __enter__(self) -> Self:
        self._shared.refuse_elsewhere()
        self._loop.call(self._inner.start())
        try:
            self.wait_registered(self._within_s)
        except DeadlineExceeded:
            return self  # `send` says what is lacking, until it is there
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send what was taken, and end, in a few seconds at most. See AsyncSource.close."""
        if self.is_over or self._shared.is_elsewhere:
            return
        self.is_over = True
        self._loop.call(self._inner.close())
        if self._on_event is not None:
            self._events.flush()
        if self._raised is not None:
            raise self._raised

    def end(self) -> None:
        """As `close`, for its context."""
        self.close()

    # messages

    def send(self, value: T, *, given: Any = None) -> int:
        """Send a value; return its number. See AsyncSource.send: what waits is this thread."""
        self._shared.refuse_elsewhere()
        body = self.topic.encode(value)
        first, last = self._sent(body, given)
        if self._on_event is not None:
            stream = self._parts.core.keeping.stream
            told = events.SequenceNumbers(stream=stream, first=first, last=last, given=given)
            self._on_event(told)
        return last

    def _sent(self, body: bytes, given: Any) -> tuple[int, int]:
        while True:
            try:
                return self._inner.take(body, self._loop.loop, given)
            except FlightFull:
                self._wait(lambda: self._inner.has_room(len(body)), None, "the flight is full")

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

    def wait_registered(self, timeout_s: float | None = None) -> None:
        """Wait until messages can be sent. Raises DeadlineExceeded, or what is wrong for ever."""
        timeout_s = check_wait("timeout_s", timeout_s)
        try:
            self._wait(
                self._inner.is_registered, timeout_s, "no stable set of stores is responsive"
            )
        except DeadlineExceeded:
            self._inner.refuse_if_short(timeout_s)
            raise

    def wait_stable(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent so far is stable. Raises DeadlineExceeded, or as `send`.

        While no stable set of stores is responsive, it goes on waiting.
        """
        timeout_s = check_wait("timeout_s", timeout_s)
        end = self._parts.core.next
        self._wait(lambda: self._inner.stable_below >= end, timeout_s, "not all is stable")

    def _wait(self, holds: Any, timeout_s: float | None, what: str) -> None:
        self._shared.refuse_elsewhere()

        def checked() -> bool:
            held: bool = holds()
            if not held:
                self._inner.refuse_if_over()
            return held

        self._changes.wait(checked, timeout_s, what)

    # stores

    def want(self, stores: str) -> None:
        """Have the list of stores changed, while sending goes on. See AsyncSource.want."""
        self._shared.refuse_elsewhere()
        wanted = self._parts.relist(self._shared, stores)

        async def want() -> None:
            self._inner.want(wanted)

        self._loop.call(want())

    def give_up(self, number: int) -> None:
        """Give up a number that is not stable: it may then never be, and receivers are told."""
        self._shared.refuse_elsewhere()
        checked = check_number(number)

        async def give_up() -> None:
            self._inner.give_up(checked)

        self._loop.call(give_up())

    def statistics(self) -> SourceStatistics:
        """Return how far it is."""
        return source_statistics(self._parts.core)

    def metrics(self) -> str:
        """Return that as metrics for Prometheus, as text. docs/metrics.md has their names."""
        return source_text(self.statistics())

    # events

    def _put(self, event: events.Event) -> None:
        self._events.put(lambda: self._tell(event))

    def _tell(self, event: events.Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 # the application's code: `close` raises it
            self._raised = self._raised or error
            context = {"message": f"on_event raised for {event!r}", "exception": error}
            self._loop.soon(lambda: self._loop.loop.call_exception_handler(context))
