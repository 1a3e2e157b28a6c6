"""Links that a test gives to a clerk with a ledger, and that strike at an Op of its choice."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import onceq
from onceq.clerk.ledger.async_runner import AsyncLedgerLink
from onceq.clerk.ledger.runner import LedgerLink
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.engine.wake.waiting import Wakes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from onceq.clerk.ledger import Ledger
    from onceq.model.ops import Op

RAW = onceq.Queue("raw", bytes, bytes)


class StruckLink(LedgerLink):
    """A link and a ledger. strike: performs an Op by the function that it is given, or does not."""

    strike: Callable[[Callable[[Op[Any]], Any], Op[Any]], Any] | None = None

    def perform(self, op: Op[Any]) -> Any:
        return super().perform(op) if self.strike is None else self.strike(super().perform, op)


class AsyncStruckLink(AsyncLedgerLink):
    """`StruckLink`, awaited."""

    strike: Callable[[Callable[[Op[Any]], Awaitable[Any]], Op[Any]], Awaitable[Any]] | None = None

    async def perform(self, op: Op[Any]) -> Any:
        if self.strike is None:
            return await super().perform(op)
        return await self.strike(super().perform, op)


@contextlib.contextmanager
def struck_by(link: StruckLink | AsyncStruckLink, strike: Callable[..., Any]) -> Generator[None]:
    """A block in which each Op on a link meets this."""
    link.strike = strike
    try:
        yield
    finally:
        link.strike = None


def struck(
    qm: onceq.QueueManager, ledger: Ledger[Any, Any], name: str = "ann"
) -> tuple[onceq.LedgerClerk[bytes, bytes, Any], StruckLink]:
    """Returns a clerk that is not connected, and its link."""
    link = StruckLink(Link(qm.located, qm.repository, wakes=Wakes()), ledger)
    return onceq.LedgerClerk(link, name, RAW), link


def async_struck(
    qm: onceq.AsyncQueueManager, ledger: Ledger[Any, Any], name: str = "ann"
) -> tuple[onceq.AsyncLedgerClerk[bytes, bytes, Any], AsyncStruckLink]:
    """`struck`, for asyncio."""
    link = AsyncStruckLink(AsyncLink(qm.located, qm.repository, wakes=Wakes()), ledger)
    return onceq.AsyncLedgerClerk(link, name, RAW), link
