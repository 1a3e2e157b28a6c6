"""What a queue manager ends when it is closed, for each kind of caller: waits, and a watch.

A watch is a thread or a task that looks after what is held for callers while there is any.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from onceq.engine.perform.stop import Stop
from onceq.engine.wake.waiting import Pause
from onceq.model.ops import Wait

Closed: TypeAlias = Stop
AsyncClosed: TypeAlias = asyncio.Event
"""That a queue manager is closed."""
WATCH_S: Final = 1.0
"""After how long a watch looks again."""


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


def watch_on(closed: Closed) -> bool:
    """Waits until it is time to look again; False: `closed` is set."""
    return not closed.wait(WATCH_S)


async def async_watch_on(closed: AsyncClosed) -> bool:
    """The same for a task."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(closed.wait(), WATCH_S)
    return not closed.is_set()


class Watching:
    """A watch in a thread, which does not keep the process from ending."""

    def __init__(self, watch: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=watch, name="onceq-taken", daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Returns whether it has ended."""
        return not self._thread.is_alive()

    def end(self) -> None:
        """Waits for its end."""
        self._thread.join()


class AsyncWatching:
    """The same in a task, which ends with its loop at the latest."""

    def __init__(self, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._run = asyncio.create_task(watch(), name="onceq-taken")

    def is_over(self) -> bool:
        """Returns whether it has ended."""
        return self._run.done()

    async def end(self) -> None:
        """Waits for its end."""
        if not self._run.done():
            await asyncio.wait([self._run])
