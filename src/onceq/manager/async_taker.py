"""Dequeues in callers' own transactions: claimed by a life of the queue manager, taken there.

Used by AsyncQueueManager. The claim is made on a connection of the queue manager's own, and lasts
for as long as that lives; the caller's transaction takes the element, and its commit checks that
it is still claimed. What such a transaction left, by a rollback or an end, is counted as an
abort at the next dequeue, when this is closed, or by a watch: a task that looks once a second while
anything is held. Source: BHM90 4.2; spec Q3, G12.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.async_links import CLOSED
from onceq.engine.embedded.locate import Located
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.sessions import silence
from onceq.engine.wake.waiting import Pause
from onceq.errors import CannotConnect, OnceqError, OperatingError
from onceq.manager import taking
from onceq.manager.closing import (
    AsyncClosed,
    AsyncWatching,
    async_wait_closed,
    async_watch_on,
)
from onceq.model import ops
from onceq.model.element import Element
from onceq.model.ops import RunsAsync


class AsyncTaker:
    """The life of a queue manager that claims for its callers; for any number of tasks."""

    def __init__(self, located: Located, repository: str) -> None:
        self.link = AsyncLink(located, repository)
        self.held = taking.Held()
        self.closed = AsyncClosed()
        self.watching: AsyncWatching | None = None  # changed by whoever has the turn
        self._turn = asyncio.Lock()

    @property
    def life(self) -> ops.Incarnation | None:
        """The life that claims; None: nothing was dequeued in a transaction since this opened."""
        return self.held.life

    async def dequeue(
        self, on: AsyncPostgresDriver, op: ops.Dequeue, timeout_s: float | None
    ) -> Element | None:
        """Dequeues in the transaction of `on`; None when nothing came in time."""
        on_both = AsyncOnBoth(self, on, silence.waiting(timeout_s))
        return await on_both.run(taking.dequeue(op, timeout_s))

    async def look(
        self, on: AsyncPostgresDriver, op: ops.Dequeue, patience: silence.Patience | None
    ) -> Element | None:
        """Claims and takes what is there now. CannotConnect: this was closed."""
        async with self._turn:
            try:
                return await self._take(on, op, patience)
            finally:
                self._begin_watch()

    async def _take(
        self, on: AsyncPostgresDriver, op: ops.Dequeue, patience: silence.Patience | None
    ) -> Element | None:
        if self.closed.is_set():
            raise CannotConnect(CLOSED)
        with self.link.bounded(patience):
            await self.link.reconnect()
            session = self.link.connection.info.backend_pid
            return await AsyncOnBoth(self, on).run(taking.take(self.held, session, op))

    async def wait(self, pause: Pause, op: ops.Wait) -> bool:
        """Waits a little, or until this is closed; False when the deadline has passed."""
        return await async_wait_closed(self.closed, pause, op)

    def _begin_watch(self) -> None:
        is_watched = self.watching is not None and not self.watching.is_over()
        if not (is_watched or self.held.is_empty):
            self.watching = AsyncWatching(self._watch)

    async def _watch(self) -> None:
        """Looks after what is held, until nothing is, or this is closed."""
        while await async_watch_on(self.closed):
            async with self._turn:
                if self.closed.is_set() or not await self._attend():
                    self.watching = None
                    return

    async def _attend(self) -> bool:
        """Gives back what can be; returns whether to look again. A lost connection is left lost.

        It ended the life, and whoever looks for the missing takes over what that had claimed.
        """
        try:
            with self.link.bounded(silence.waiting(0.0)):
                return await self.link.run(taking.attend(self.held))
        except OnceqError:
            return self.link.is_open

    async def close(self) -> None:
        """Ends the waits; gives back what was dequeued in transactions that rolled back."""
        self.closed.set()
        async with self._turn:
            with contextlib.suppress(OperatingError):  # a lost connection ended the life
                if self.held.life is not None:
                    await self.link.run(taking.end(self.held))
            await self.link.close()
        watching, self.watching = self.watching, None
        if watching is not None:
            await watching.end()


class AsyncOnBoth(RunsAsync):
    """Performs each Op where it belongs: the taking in the caller's transaction, all else here."""

    def __init__(
        self, taker: AsyncTaker, on: AsyncPostgresDriver, patience: silence.Patience | None = None
    ) -> None:
        self._taker = taker
        self._on = on
        self._patience = patience
        self._pause = Pause()

    async def perform(self, op: ops.Op[Any]) -> Any:
        """Performs one Op; a dequeue is a look of the taker's."""
        match op:
            case ops.Dequeue():
                return await self._taker.look(self._on, op, self._patience)
            case ops.Wait():
                return await self._taker.wait(self._pause, op)
            case ops.BeginTagged() | ops.Take() | ops.TakeTagged():
                return await self._on.perform(op)
            case _:
                return await self._taker.link.perform(op)

    def _leave(self) -> None:
        """Does nothing: no Program holds anything here."""
