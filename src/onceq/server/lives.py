"""The lives of a server session: connect, serve, and connect again after a loss.

Called by Server, once for each session, on a thread (`live`) or in an event loop of its own
(`live_async`). After a life that ends by a loss another follows, until a stop or an error
that no later attempt mends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from onceq import errors, telemetry
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.engine.connect.opening import Handling
from onceq.engine.embedded.locate import Located
from onceq.engine.perform.differing import async_wait_stop
from onceq.engine.perform.gate import Gate
from onceq.engine.perform.stop import Stop
from onceq.engine.sessions.faults import DatabaseError
from onceq.engine.wake.watch import Watch
from onceq.model.queue import Handled
from onceq.server import handlers
from onceq.server.program import ServerSession, serve

log = logging.getLogger(__name__)
H = TypeVar("H")

RECONNECT_FIRST_S = 0.05
RECONNECT_LONGEST_S = 5.0
GOOD_LIFE_S = 1.0
"""A life shorter than this never went well."""
SUPERVISED_GRACE_S = 10
"""Time for the supervisor to act, before the database ends an execution that hangs."""
LIMIT_LONGEST_S = 2_147_483
"""PostgreSQL's time-outs count milliseconds in 4 bytes."""
UNMENDABLE = (
    errors.SchemaMismatch,
    errors.SchemaMissing,
    errors.SchemaTooNew,
    errors.PostgresTooOld,
    errors.PoolerDetected,
)
"""Errors that no later attempt mends: they end the server."""
LOST = (errors.OperatingError, DatabaseError)
"""Errors that end a life, after which another follows."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a process serves: the database, the repository, its gate, its stop, its watch.

    grace_s: how much longer than its limit the database lets an execution run, for the supervisor.
    """

    located: Located
    repository: str
    gate: Gate
    stop: Stop
    watch: Watch
    grace_s: int = 0


@dataclass(slots=True)
class _Delay:
    """The wait before the next life: each loss doubles it; a life that went well resets it.

    A life went well if it was longer than the wait that would follow it. That a connection is made
    proves little: every statement on it may be refused.
    """

    session: ServerSession
    next_s: float = RECONNECT_FIRST_S
    _began: float | None = None
    _lost: float | None = None
    _losses: int = 0

    def begin(self) -> None:
        """Notes that a life begins: there is a connection."""
        self._began = time.monotonic()
        if self._lost is not None:
            away_s = round(self._began - self._lost, 3)
            former = self.session.incarnation
            event = telemetry.Reconnected(incarnation=former, losses=self._losses, away_s=away_s)
            telemetry.tell(log, event)
        self._lost, self._losses = None, 0

    def after(self, error: BaseException) -> float:
        """Returns how many seconds to wait now."""
        began, self._began = self._began, None
        now = time.monotonic()
        self._lost = self._lost or now
        self._losses += 1
        if began is not None and now - began > max(self.next_s, GOOD_LIFE_S):
            self.next_s = RECONNECT_FIRST_S
        delay = self.next_s
        self.next_s = min(2 * delay, RECONNECT_LONGEST_S)
        event = telemetry.SessionLost(
            incarnation=self.session.incarnation,
            code=type(error).__name__,
            error=str(error),
            delay_s=delay,
        )
        telemetry.tell(log, event)
        return delay


def live(site: Site, session: ServerSession, handled: list[Handled[Any, Any]]) -> None:
    """Lives until the stop, on this thread."""
    calls = {
        one.queue.name: handlers.sync_call(one, DatabaseError, site.repository) for one in handled
    }
    handling = _handling(site, calls, handled)
    link = Link(site.located, site.repository, wakes=session.wakes, handling=handling)
    delay = _Delay(session)
    while not site.stop.is_set():
        try:
            link.reconnect()
            delay.begin()
            link.run(serve(session))
        except UNMENDABLE:
            raise
        except LOST as error:
            site.stop.wait(delay.after(error))
        finally:
            link.close()


async def _live(site: Site, session: ServerSession, handled: list[Handled[Any, Any]]) -> None:
    calls = {
        one.queue.name: handlers.async_call(one, DatabaseError, site.repository) for one in handled
    }
    handling = _handling(site, calls, handled)
    link = AsyncLink(site.located, site.repository, wakes=session.wakes, handling=handling)
    delay = _Delay(session)
    while not site.stop.is_set():
        try:
            await link.reconnect()
            delay.begin()
            await link.run(serve(session))
        except UNMENDABLE:
            raise
        except LOST as error:
            await async_wait_stop(site.stop, delay.after(error))
        finally:
            await link.close()


def live_async(site: Site, session: ServerSession, handled: list[Handled[Any, Any]]) -> None:
    """Lives until the stop, in an event loop on this thread."""
    asyncio.run(_live(site, session, handled))


def limit_s(one: Handled[Any, Any]) -> int:
    """Returns the longest transaction (G12): in a batch, little has passed when the last begins."""
    return min(one.queue.settings.execution_limit_s + (one.batch > 1), LIMIT_LONGEST_S)


def _handling(site: Site, calls: Mapping[str, H], handled: list[Handled[Any, Any]]) -> Handling[H]:
    return Handling(
        calls=calls,
        stop=site.stop,
        gate=site.gate,
        watch=site.watch,
        limit_s=min(max(limit_s(one) for one in handled) + site.grace_s, LIMIT_LONGEST_S),
    )
