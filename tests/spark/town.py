"""Stores and a source in a thread, for tests whose own thread is Spark's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tests.streams.net.clusters import Cluster
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

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

    def _is_known(self) -> bool:
        held = [store.catalogue.of(S) for store in self.stores.stores.values()]
        return all(one.stable == self.source.next_number for one in held)

    def send(self, count: int, begin: int = 0) -> None:
        """Send messages, and wait until they are stable, and stores know it."""
        self.send_these(texts(count, begin))

    def send_these(self, messages: list[bytes]) -> None:
        """The same, of any messages."""

        async def send() -> None:
            await self.source.wait_registered(WITHIN_S)
            await send_all(self.source, messages)
            await self.source.wait_stable(WITHIN_S)
            await soon(self._is_known)

        self.run(send())


@contextlib.contextmanager
def town(**given: Any) -> Generator[Town]:
    """A town, for the time of a block. given: to its source."""
    made: list[Town] = []
    is_there = threading.Event()

    async def live() -> None:
        stores = Cluster(None)  # what Spark leaves open in this process is its own
        await stores.start("abc")
        try:
            async with source(stores.listed(), **given) as one:
                made.append(Town(asyncio.get_running_loop(), stores, one))
                stop.append(asyncio.Event())
                is_there.set()
                await stop[0].wait()
        finally:
            await stores.end("".join(stores.servers))

    stop: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: asyncio.run(live()), name="town")
    thread.start()
    try:
        assert is_there.wait(WITHIN_S)
        yield made[0]
    finally:
        made[0]._loop.call_soon_threadsafe(stop[0].set)
        thread.join()
