"""A context for threads: its sources and receivers run in one loop, in a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from onceq.errors import IllegalState
from onceq.streams.api import ending, given, handlers
from onceq.streams.api.async_source import REGISTERED_S
from onceq.streams.api.given import Deliver, ReceiverOptions, Shared, SourceOptions
from onceq.streams.api.handlers import OnEvent
from onceq.streams.api.loop_thread import EventThread, LoopThread
from onceq.streams.api.receiver import Receiver
from onceq.streams.api.source import Source
from onceq.streams.net.alone import PROCESS
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.message import Message
from onceq.streams.topic import Topic, check_topic

T = TypeVar("T")


class StreamContext:
    """Makes sources and receivers, any number, which share a session, certificates and a thread.

    `with` it: at its end sources are closed and receivers stopped, in some seconds at most. Any
    threads may share it.
    """

    def __init__(self, shared: Shared) -> None:
        PROCESS.open_context()
        self._shared = shared
        self._loop = LoopThread()
        self._events = EventThread()
        self._made: list[Source[Any] | Receiver[Any]] = []
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop receivers and close sources, the last one first. Raises what one of them raises.

        In a forked process it does nothing.
        """
        if self._is_closed or self._shared.is_elsewhere:
            return
        self._is_closed = True
        with contextlib.ExitStack() as stack:
            stack.callback(PROCESS.close_context)
            stack.callback(self._events.close)
            stack.callback(self._loop.close)
            for one in self._made:
                stack.callback(one.end)

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
    ) -> Source[T]:
        """Return a source of a topic; `with` it. See AsyncStreamContext.source."""
        self._check(topic)
        parts = given.source_parts(
            self._shared,
            topic,
            stores=stores,
            listen=listen,
            session_id=session_id,
            given=options,
        )
        made = Source(
            topic,
            parts,
            self._shared,
            on_event=self._shared.handler(on_event),
            within_s=within_s,
            threads=(self._loop, self._events),
        )
        self._made.append(made)
        return made

    def receiver(
        self,
        topic: Topic[T],
        show: Callable[[Message[T]], None],
        *,
        at: str,
        deliver: Deliver = "stable",
        session_id: int | None = None,
        on_event: OnEvent | None = None,
        **options: Unpack[ReceiverOptions],
    ) -> Receiver[T]:
        """Return a receiver of a topic; call its `run`. See AsyncStreamContext.receiver.

        Raises HandlerMisuse for a `show` that is `async def`, too: nobody awaits it here.
        """
        self._check(topic)
        handlers.check_show(show, is_awaited=False)
        parts = given.receiver_parts(
            self._shared, topic, at=at, deliver=deliver, session_id=session_id, given=options
        )
        made = Receiver(
            topic,
            show,
            parts,
            self._shared,
            on_event=self._shared.handler(on_event),
            thread=self._loop,
        )
        self._made.append(made)
        return made

    def deregister(
        self,
        topic: Topic[Any],
        *,
        stores: str,
        session_id: int | None = None,
        timeout_s: float = ending.TIMEOUT_S,
    ) -> frozenset[str]:
        """Delete a stream for ever; return the stores to ask again. See AsyncStreamContext."""
        self._check(topic)
        asked = ending.deregister(
            self._shared, topic, stores=stores, session_id=session_id, timeout_s=timeout_s
        )
        return self._loop.call(asked)

    def _check(self, topic: object) -> None:
        check_topic(topic)
        self._shared.refuse_elsewhere()
        if self._is_closed:
            raise IllegalState("the context is closed: open another one")
        self._made = [one for one in self._made if not one.is_over]


def open(  # noqa: A001 # called as streams.open
    *,
    session_id: int | None = None,
    certificates: Certificates | None = None,
    on_event: OnEvent | None = None,
) -> StreamContext:
    """Opens a context; use it in a `with` block.

    session_id: a number of one's own from 1 to 2^64 - 1, the same in each life of the program, and
    no other program's: by it stores know what a source has sent and a receiver has acknowledged.
    Sources and receivers may be given others. certificates: for addresses beyond this machine.
    on_event: called with the events of each source and receiver that is not given one of its own,
    where that would be; so it may be called in several threads at once. `stream` tells whose they
    are. With it, sources make events of each message, and gaps are not logged. Raises
    InvalidValue; IllegalState in a process that runs a store, or has run one.
    """
    return StreamContext(given.shared(session_id, certificates, on_event))
