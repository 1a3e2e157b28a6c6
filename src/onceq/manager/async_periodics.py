"""The queue manager's periodic requests. A part of `AsyncQueueOperations`. Source: ADR 39."""

from __future__ import annotations

from typing import Any

from onceq.engine.connect.async_links import AsyncLinks
from onceq.manager import ticking
from onceq.model.periodic import Periodic, PeriodicInfo
from onceq.model.periodic_ops import ListPeriodics


class AsyncPeriodicOperations:
    """Operations on periodic requests; `declare` makes one."""

    _link: AsyncLinks

    async def periodics(self) -> list[PeriodicInfo]:
        """Returns all periodic requests, by name."""
        return await self._link.perform(ListPeriodics())

    async def show_periodic(self, name: str) -> PeriodicInfo:
        """Returns a periodic request as it is now. PeriodicNotFound."""
        return await self._link.run(ticking.show(name))

    async def alter_periodic(self, periodic: Periodic[Any]) -> None:
        """Changes the periodic request of this name into this one, with its next tick.

        It stays paused if it was. PeriodicNotFound; and what `declare` raises.
        """
        await self._link.run(ticking.alter(periodic))

    async def pause_periodic(self, name: str) -> bool:
        """Sends nothing of it until it is resumed; False: it was paused. PeriodicNotFound."""
        return await self._link.run(ticking.pause(name, paused=True))

    async def resume_periodic(self, name: str) -> bool:
        """Goes on with the next tick; what came meanwhile is not sent. False: it was not paused.

        PeriodicNotFound.
        """
        return await self._link.run(ticking.pause(name, paused=False))

    async def remove_periodic(self, name: str) -> bool:
        """Removes a periodic request; what it has sent stays. Returns whether there was one."""
        return await self._link.perform(ticking.remove_op(name))

    async def tend(self) -> int:
        """Sends what is due now; returns how many requests that were.

        It also takes a step in removing history that queues keep no longer (`history_days`).
        Servers do so once a second, and whoever waits in `dequeue`: only where there is neither
        must this be called.
        """
        return await self._link.run(ticking.tend())
