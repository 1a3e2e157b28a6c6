"""How a bridge tries again what its database or the environment refused, and what its log is told.

Nothing here has a limit: who calls it ends it, by a stop or by being cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from onceq import errors, telemetry
from onceq.streams import logged
from onceq.streams.model.events import (
    Event,
    LossAccepted,
    RegistrationError,
    StoresForgot,
    StoreUnresponsive,
)

log = logging.getLogger(__name__)
LOST: Final = (errors.CannotConnect, errors.ConnectionLost, errors.InDoubt)
"""After these, the position says what happened."""
AWAY: Final = (*LOST, errors.EnvironmentFault, errors.DeadlineExceeded)
"""What passes, and is tried again: nothing happened, or the database says what did."""
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 5.0
"""Between two tries: the first pause, and the longest; each is twice the one before."""


class Pauses:
    """The pauses between tries: each is twice the one before. stopping: ends one that is on."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self.next_s = PAUSE_S

    def over(self) -> None:
        """Begin with the first pause again."""
        self.next_s = PAUSE_S

    async def rest(self, seconds: float | None = None) -> None:
        """Wait so long, or, with None, for the next pause; or until this is stopped."""
        if seconds is None:
            seconds, self.next_s = self.next_s, min(2 * self.next_s, PAUSE_MAX_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


class Tries:
    """Tries of one thing, until it succeeds. bridge: its name, for the log."""

    def __init__(self, bridge: str, stopping: asyncio.Event) -> None:
        self._bridge = bridge
        self._pauses = Pauses(stopping)
        self._count = 0
        self._since_s: float | None = None

    async def failed(self, error: errors.OnceqError) -> None:
        """Tell that a try failed, and wait before the next one."""
        self._count += 1
        self._since_s = self._since_s or _now_s()
        event = logged.BridgeWaits(
            bridge=self._bridge,
            code=type(error).__name__,
            error=str(error),
            delay_s=self._pauses.next_s,
        )
        telemetry.tell(log, event)
        await self._pauses.rest()

    def succeeded(self) -> None:
        """Tell that it goes on, if a try had failed."""
        if self._since_s is not None:
            away_s = round(_now_s() - self._since_s, 3)
            event = logged.BridgeGoesOn(bridge=self._bridge, tries=self._count, away_s=away_s)
            telemetry.tell(log, event)
        self._count, self._since_s = 0, None


def tell_store(bridge: str, topic: str, event: Event) -> None:
    """Log what an event says of stores: that one is away, or refused, or that much is lost."""
    told = _of_stores(bridge, topic, event)
    if told is not None:
        telemetry.tell(log, told)


def _of_stores(bridge: str, topic: str, event: Event) -> telemetry.Event | None:
    """Return what is logged of an event; None: it says nothing of stores."""
    match event:
        case StoreUnresponsive(store=store, why=why) | RegistrationError(store=store, why=why):
            return logged.BridgeLacksStore(bridge=bridge, topic=topic, store=store, why=why)
        case StoresForgot():
            return logged.StoresForgot(
                bridge=bridge,
                topic=topic,
                forgot=" ".join(event.forgot),
                silent=" ".join(event.silent),
                end=event.end,
                accept_loss=event.accept_loss,
            )
        case LossAccepted(first=first, last=last):
            return logged.LossAccepted(bridge=bridge, topic=topic, first=first, last=last)
        case _:
            return None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
