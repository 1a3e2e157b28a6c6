"""A receiver for threads: its handler runs in the thread that calls `run`, and may wait.

The loop of the context hands over what is to be shown, and is told what has ended. What it hands
over is bounded by what may be outstanding.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeAlias, TypeVar

from onceq.errors import IllegalState
from onceq.streams.api.exposing import receiver_text
from onceq.streams.api.given import ReceiverParts, Shared
from onceq.streams.api.handlers import OnEvent
from onceq.streams.api.loop_thread import CLOSE_S, LoopThread
from onceq.streams.api.reporting import report
from onceq.streams.api.statistics import ReceiverStatistics, receiver_statistics
from onceq.streams.handlers import refuse_idle
from onceq.streams.model import events
from onceq.streams.receiver import async_receiver, ops
from onceq.streams.receiver.message import Message
from onceq.streams.receiver.tokens import Token
from onceq.streams.topic import Topic

T = TypeVar("T")
Handed: TypeAlias = "tuple[ops.Message | events.Event, Token | None]"


class Receiver(Generic[T]):
    """One life of a receiver of a topic. Made by a context; `run` is all of it."""

    def __init__(
        self,
        topic: Topic[T],
        show: Callable[[Message[T]], None],
        parts: ReceiverParts,
        shared: Shared,
        *,
        on_event: OnEvent | None,
        thread: LoopThread,
    ) -> None:
        self.topic = topic
        self._show = show
        self._tell = on_event or report
        self._loop = thread
        self._shared = shared
        self._is_explicit = parts.wishes.explicit_ack_only
        self._is_stopped = False
        self._shown: ops.Message | None = None
        self._token: Token | None = None
        self._is_kept = False
        self._handed: queue.SimpleQueue[Handed | None] = queue.SimpleQueue()
        self._running: Future[None] | None = None
        self._inner = async_receiver.AsyncReceiver(
            parts.who,
            self._hand,
            wishes=parts.wishes,
            certificates=shared.certificates,
            tell=lambda event: self._handed.put((event, None)),
            at=parts.at,
        )

    def run(self) -> None:
        """Show the handler one message after the other until `stop`, or until it raises.

        See AsyncReceiver.run. Ctrl-C ends it too: what was being shown then is not acknowledged. At
        the end stores are told how far it has come, for a few seconds at most.
        """
        self._shared.refuse_elsewhere()
        if self._running is not None:
            raise IllegalState("a receiver is run once; make another one")
        self._running = self._loop.begin(self._inner.run())
        self._running.add_done_callback(lambda _: self._handed.put(None))
        try:
            while not self._is_stopped and (handed := self._handed.get()) is not None:
                self._show_one(*handed)
        finally:
            self._is_stopped = True
            self._loop.soon(self._inner.stop)
            wait([self._running])
        self._running.result()

    def stop(self) -> None:
        """End the life behind what is being shown. The handler may call it, and any thread."""
        self._is_stopped = True
        self._handed.put(None)

    @property
    def is_over(self) -> bool:
        """Whether it has run."""
        return self._running is not None and self._running.done()

    def end(self) -> None:
        """Stop, and wait until `run` has ended, for a while: its context is closed."""
        self.stop()
        if self._running is not None:
            wait([self._running], CLOSE_S)

    def statistics(self) -> ReceiverStatistics:
        """Return how far it is."""
        return receiver_statistics(self._inner)

    def metrics(self) -> str:
        """Return that as metrics for Prometheus, as text. docs/metrics.md has their names."""
        return receiver_text(self.statistics())

    def _hand(self, one: ops.Shown) -> None:
        """Hand over what is to be shown; in the thread of the loop."""
        self._handed.put((one, self._inner.retain(one)))

    # in the thread that calls `run`

    def _show_one(self, one: ops.Message | events.Event, token: Token | None) -> None:
        if not isinstance(one, ops.Message):
            self._tell(one)
            if token is not None:
                token.end()
            return
        self._shown, self._token, self._is_kept = one, token, self._is_explicit
        returned: Any = self._show(Message(self.topic, one, self._keep))
        refuse_idle("show", returned, "process the message in it, or use streams.open_async")
        self._shown = None
        if token is not None and not self._is_kept:
            token.end()

    def _keep(self, one: ops.Message) -> Token:
        if self._shown is not one or self._token is None:
            raise IllegalState("its handler has returned, and so it is acknowledged: retain before")
        self._is_kept = True
        return self._token
