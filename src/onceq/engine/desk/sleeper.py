"""How a clerk of a desk waits to be rung: without a connection, and without a file.

Clerks wait by the thousand: on the event loop a wait is a future in a list, and no more.
"""

from __future__ import annotations

import asyncio
import math
import queue
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from onceq.engine.wake.bell import LISTEN_FROM_S
from onceq.engine.wake.waiting import Series

if TYPE_CHECKING:
    from onceq.engine.wake.desk_bell import DeskBell
    from onceq.model.ops import Wait

TICK_S: Final = 0.001
LONG_TICK_S: Final = 0.02
"""So much later than it should a short wait ends at most, and one of LISTEN_FROM_S or more."""


class Ends:
    """When the waits at a desk are over if nobody rings: those of one tick share a timer.

    on_long_wait: called when a clerk has waited long, and nobody rang.
    """

    def __init__(self, on_long_wait: Callable[[], None]) -> None:
        self._on_long_wait = on_long_wait
        self._waits: dict[tuple[float, int], list[asyncio.Future[bool]]] = {}

    def add(self, wait: asyncio.Future[bool], timeout_s: float) -> None:
        """Ends a wait in so many seconds, or a tick later."""
        loop = wait.get_loop()
        tick_s = LONG_TICK_S if timeout_s >= LISTEN_FROM_S else TICK_S
        tick = tick_s, math.ceil((loop.time() + timeout_s) / tick_s)
        if tick not in self._waits:
            self._waits[tick] = []
            loop.call_at(tick[0] * tick[1], self._end, tick)
        self._waits[tick].append(wait)

    def _end(self, tick: tuple[float, int]) -> None:
        late = [wait for wait in self._waits.pop(tick) if not wait.done()]
        for wait in late:
            wait.set_result(True)
        if late and tick[0] == LONG_TICK_S:
            self._on_long_wait()


class AsyncSleeper(Series):
    """A clerk's, on the loop of its desk; it is called to ring it."""

    __slots__ = ("_bell", "_ends", "_is_rung", "_token", "_wait")

    def __init__(self, bell: DeskBell, ends: Ends) -> None:
        super().__init__()
        self._bell = bell
        self._ends = ends
        self._wait: asyncio.Future[bool] | None = None
        self._is_rung = False
        self._token = bell.add(self)

    @property
    def text(self) -> str:
        """Where it is rung, in the database's form: always, if it sleeps or not."""
        return f"!{self._bell.text(self._token.hex())}"

    def __call__(self) -> None:
        """Ends its wait, or its next one."""
        if self._wait is None or self._wait.done():
            self._is_rung = True
        else:
            self.again()
            self._wait.set_result(True)

    def wait(self, op: Wait) -> Awaitable[bool]:
        """Waits to be rung, as long as is due; False: the time for all of it is over."""
        self._wait = wait = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        delay_s = self.next(op, now, self._bell.pace(op, now))
        if delay_s is None:
            wait.set_result(False)
        elif self._is_rung:
            self._is_rung = False
            self.again()
            wait.set_result(True)
        else:
            self._ends.add(wait, delay_s)
        return wait

    def close(self) -> None:
        """Is never rung again; idempotent."""
        self._bell.remove(self._token)


class Sleeper(Series):
    """A clerk's, in any thread; it is called by the desk's."""

    __slots__ = ("_bell", "_rings", "_token")

    def __init__(self, bell: DeskBell) -> None:
        super().__init__()
        self._bell = bell
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._token = bell.add(self)

    @property
    def text(self) -> str:
        """See AsyncSleeper.text."""
        return f"!{self._bell.text(self._token.hex())}"

    def __call__(self) -> None:
        """Ends its wait, or its next one."""
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, op: Wait) -> bool:
        """See AsyncSleeper.wait."""
        now = time.monotonic()
        delay_s = self.next(op, now, self._bell.pace(op, now))
        if delay_s is None:
            return False
        try:
            self._rings.get(timeout=delay_s)
            self.again()
        except queue.Empty:
            if delay_s >= LISTEN_FROM_S:
                self._bell.on_long_wait()
        return True

    def close(self) -> None:
        """Is never rung again; idempotent."""
        self._bell.remove(self._token)
