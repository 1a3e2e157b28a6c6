"""A receiver as programs for asyncio have it: a handler is shown messages."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from onceq.streams.api.exposing import receiver_text
from onceq.streams.api.given import ReceiverParts, Shared
from onceq.streams.api.handlers import OnEvent
from onceq.streams.api.reporting import report
from onceq.streams.api.statistics import ReceiverStatistics, receiver_statistics
from onceq.streams.handlers import refuse_idle
from onceq.streams.receiver import async_receiver, ops
from onceq.streams.receiver.message import Message
from onceq.streams.receiver.tokens import Token
from onceq.streams.topic import Topic

T = TypeVar("T")
ADVICE: Final = "await it in `show`"


class AsyncReceiver(Generic[T]):
    """One life of a receiver of a topic. Made by a context; `run` is all of it."""

    def __init__(
        self,
        topic: Topic[T],
        show: Callable[[Message[T]], Awaitable[None] | None],
        parts: ReceiverParts,
        shared: Shared,
        *,
        on_event: OnEvent | None,
    ) -> None:
        self.topic = topic
        self._show = show
        self._shared = shared
        self._tell = on_event or report
        self._inner = async_receiver.AsyncReceiver(
            parts.who,
            self._shown,
            wishes=parts.wishes,
            certificates=shared.certificates,
            tell=self._tell,
            at=parts.at,
        )

    async def run(self) -> None:
        """Show the handler one message after the other until `stop`, or until it raises.

        It waits for the source or the store at `at`, as long as that takes. What the handler
        returned from is acknowledged when it is stable, unless it was retained; what it raises ends
        the life, is raised here, and its message comes again to the next one. So does what
        `on_event` raises. Raises IllegalState when it is called again, InvalidValue if there is
        another stream at `at`; HandlerMisuse if the handler returned what nobody awaits, or
        iterates over: it is not acknowledged.
        """
        self._shared.refuse_elsewhere()
        await self._inner.run()

    def stop(self) -> None:
        """End the life behind what is being shown. The handler may call it."""
        self._inner.stop()

    def statistics(self) -> ReceiverStatistics:
        """Return how far it is."""
        return receiver_statistics(self._inner)

    def metrics(self) -> str:
        """Return that as metrics for Prometheus, as text. docs/metrics.md has their names."""
        return receiver_text(self.statistics())

    def _shown(self, one: ops.Shown) -> Awaitable[None] | None:
        if isinstance(one, ops.Message):
            returned = self._show(Message(self.topic, one, self._keep))
            if inspect.isawaitable(returned):
                return _awaited(returned)
            refuse_idle("show", returned, ADVICE)
            return None
        self._tell(one)
        return None

    def _keep(self, one: ops.Message) -> Token:
        return self._inner.retain(one)


async def _awaited(returned: Awaitable[Any]) -> None:
    """Await what a handler returned; refuse what that returns, if nobody awaits it."""
    refuse_idle("show", await returned, ADVICE)
