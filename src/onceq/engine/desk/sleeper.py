"""How a clerk of a desk waits to be rung: without a connection, and without a file."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from typing import TYPE_CHECKING

from onceq.engine.wake.bell import LISTEN_FROM_S

if TYPE_CHECKING:
    from onceq.engine.wake.desk_bell import DeskBell


class AsyncSleeper:
    """A clerk's, on the loop of its desk."""

    __slots__ = ("_bell", "_future", "_is_rung", "_token")

    def __init__(self, bell: DeskBell) -> None:
        self._bell = bell
        self._future: asyncio.Future[None] | None = None
        self._is_rung = False
        self._token = bell.add(self.ring)

    @property
    def text(self) -> str:
        """Where it is rung, in the database's form: always, if it sleeps or not."""
        return f"!{self._bell.text(self._token.hex())}"

    def ring(self) -> None:
        """Ends its wait, or its next one."""
        self._is_rung = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Waits to be rung, at most this long; returns whether it was."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(timeout_s, _over, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        rung, self._is_rung = self._is_rung, False
        if not rung and timeout_s >= LISTEN_FROM_S:
            self._bell.on_long_wait()
        return rung

    def close(self) -> None:
        """Is never rung again; idempotent."""
        self._bell.remove(self._token)


def _over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Sleeper:
    """A clerk's, in any thread; it is rung by the desk's."""

    __slots__ = ("_bell", "_rings", "_token")

    def __init__(self, bell: DeskBell) -> None:
        self._bell = bell
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._token = bell.add(self.ring)

    @property
    def text(self) -> str:
        """See AsyncSleeper.text."""
        return f"!{self._bell.text(self._token.hex())}"

    def ring(self) -> None:
        """Ends its wait, or its next one."""
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout_s: float) -> bool:
        """See AsyncSleeper.wait."""
        with contextlib.suppress(queue.Empty):
            self._rings.get(timeout=timeout_s)
            return True
        if timeout_s >= LISTEN_FROM_S:
            self._bell.on_long_wait()
        return False

    def close(self) -> None:
        """Is never rung again; idempotent."""
        self._bell.remove(self._token)
