"""The waits of a queue manager that ends them when it is closed, one for each kind of caller."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TypeAlias

from onceq.engine.perform.stop import Stop
from onceq.engine.wake.waiting import Pause
from onceq.model.ops import Wait

Closed: TypeAlias = Stop
AsyncClosed: TypeAlias = asyncio.Event
"""That a queue manager is closed."""


def wait_closed(closed: Closed, pause: Pause, op: Wait) -> bool:
    """Waits a little, or until `closed` is set; returns False when the deadline has passed."""
    delay_s = pause.next(op, time.monotonic())
    if delay_s is not None:
        closed.wait(delay_s)
    return delay_s is not None


async def async_wait_closed(closed: AsyncClosed, pause: Pause, op: Wait) -> bool:
    """The same for a task."""
    delay_s = pause.next(op, time.monotonic())
    if delay_s is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closed.wait(), delay_s)
    return delay_s is not None
