"""A context for asyncio: what its sources and receivers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from onceq.errors import IllegalState
from onceq.streams.api import ending, given, handlers
from onceq.streams.api.async_receiver import AsyncReceiver
from onceq.streams.api.async_source import REGISTERED_S, AsyncSource
from onceq.streams.api.given import Deliver, ReceiverOptions, Shared, SourceOptions
from onceq.streams.api.handlers import OnEvent
from onceq.streams.net.alone import PROCESS
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.message import Message
from onceq.streams.topic import Topic, check_topic

T = TypeVar("T")


class AsyncStreamContext:
    """Makes sources and receivers, any number, which share a session and certificates.

    `async with` it. Sources are closed, and receivers stopped, by whoever runs them.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._shared.refuse_elsewhere()
        PROCESS.open_context()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        PROCESS.close_context()

    def source(
        self,
        topic: Topic[T],
        *,
        stores: str,
        listen: str | None = None,
        session_id: int | None = None,
        on_event: OnEvent | None = None,
        within_s: float | None = REGISTERED_S,
        **options: Unpack[SourceOptions],
    ) -> AsyncSource[T]:
        """Return a source of a topic; `async with` it.

        stores: addresses, separated by spaces, and ";" between groups. listen: where receivers find
        it; port 0: any; None: they read from stores alone. session_id: its own, instead of the
        context's. on_event: likewise: called with what happens. within_s: how long entering waits
        for the stores. Raises InvalidValue, InvalidName.
        """
        self._check(topic)
        parts = given.source_parts(
            self._shared,
            topic,
            stores=stores,
            listen=listen,
            session_id=session_id,
            given=options,
        )
        return AsyncSource(
            topic, parts, self._shared, on_event=self._shared.handler(on_event), within_s=within_s
        )

    def receiver(
        self,
        topic: Topic[T],
        show: Callable[[Message[T]], Awaitable[None] | None],
        *,
        at: str,
        deliver: Deliver = "stable",
        session_id: int | None = None,
        on_event: OnEvent | None = None,
        **options: Unpack[ReceiverOptions],
    ) -> AsyncReceiver[T]:
        """Return a receiver of a topic; `await` its `run`.

        show: called with each message, in order; it may be `async def`. at: the address of the
        source, or of any store that has the stream: the rest is learned there. deliver: "stable":
        only what is stable; "live": all, and RolledBack if some was not to be. on_event: its own,
        instead of the context's: also called with numbers that are lost, in their place; without
        both they are logged. Raises InvalidValue, InvalidName; HandlerMisuse for a `show` that
        yields.
        """
        self._check(topic)
        handlers.check_show(show, is_awaited=True)
        parts = given.receiver_parts(
            self._shared, topic, at=at, deliver=deliver, session_id=session_id, given=options
        )
        return AsyncReceiver(
            topic, show, parts, self._shared, on_event=self._shared.handler(on_event)
        )

    async def deregister(
        self,
        topic: Topic[Any],
        *,
        stores: str,
        session_id: int | None = None,
        timeout_s: float = ending.TIMEOUT_S,
    ) -> frozenset[str]:
        """Delete a stream for ever: what was sent in it, and its receivers' positions.

        Return the stores that must be asked again, by the same call: they did not answer, or could
        not note it. What they have counts for nothing as soon as a stable set of stores has done
        it; the next life of the source begins a new stream, from number 0. stores: of the stream's
        list; the others are learned. session_id: of its source, instead of the context's.
        timeout_s: how long a store is waited for. If a former call was not done everywhere, this
        finishes it, and what was sent since stays. Raises RegistrationInUse while a life of the
        source is live, NotRegistered if too few stores answer: then nothing has happened; and
        InvalidValue, InvalidName. A receiver that lives ends with StreamReplaced.
        """
        self._check(topic)
        return await ending.deregister(
            self._shared, topic, stores=stores, session_id=session_id, timeout_s=timeout_s
        )

    def _check(self, topic: object) -> None:
        check_topic(topic)
        self._shared.refuse_elsewhere()
        if self._is_closed:
            raise IllegalState("the context is closed: open another one")


def open_async(
    *,
    session_id: int | None = None,
    certificates: Certificates | None = None,
    on_event: OnEvent | None = None,
) -> AsyncStreamContext:
    """Opens a context for asyncio: `async with streams.open_async(...) as context`. See `open`.

    What `open` raises in a process with a store, entering raises.
    """
    return AsyncStreamContext(given.shared(session_id, certificates, on_event))
