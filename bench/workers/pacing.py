"""Sending at a pace on asyncio. Imports no third party.

A loop sleeps for a millisecond at least: what is due then is sent together.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Send(Protocol):
    """Sends one message."""

    def __call__(self, *, is_last: bool) -> Awaitable[None]:
        """Send it. is_last: no other follows."""
        ...


async def paced(send: Send, number: int, per_s: int) -> None:
    """Send so many messages, each not before it is due."""
    began, sent = time.perf_counter(), 0
    while sent < number:
        due = min(number, 1 + int((time.perf_counter() - began) * per_s))
        for one in range(sent, due):
            await send(is_last=one == number - 1)
        sent = due
        await asyncio.sleep(max(0.0, began + sent / per_s - time.perf_counter()))
