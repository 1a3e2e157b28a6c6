"""Stores and a source in a thread, for tests whose own thread is Spark's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tests.streams.net.clusters import running
from tests.streams.source.running import WITHIN_S, send_all, source, texts

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from tests.streams.net.clusters import Cluster

T = TypeVar("T")


class Town:
    """Three stores, and a source that sends when it is told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stores: Cluster, one: Any) -> None:
        self._loop = loop
        self.stores = stores
        self.source = one

    def run(self, made: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop of the stores."""
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(4 * WITHIN_S)

    @property
    def addresses(self) -> str:
        return " ".join(sorted(self.stores.listed().stores))

    def send(self, count: int, begin: int = 0) -> None:
        """Send messages, and wait until they are stable."""

        async def send() -> None:
            await self.source.wait_registered(WITHIN_S)
            await send_all(self.source, texts(count, begin))
            await self.source.wait_stable(WITHIN_S)

        self.run(send())


@contextlib.contextmanager
def town() -> Generator[Town]:
    """A town, for the time of a block."""
    made: list[Town] = []
    is_there = threading.Event()

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            made.append(Town(asyncio.get_running_loop(), stores, one))
            stop.append(asyncio.Event())
            is_there.set()
            await stop[0].wait()

    stop: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: asyncio.run(live()), name="town")
    thread.start()
    try:
        assert is_there.wait(WITHIN_S)
        yield made[0]
    finally:
        made[0]._loop.call_soon_threadsafe(stop[0].set)
        thread.join()
