"""Several stores that serve in the loop of a test, each at an address that it keeps."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.streams.model.frames import decode
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.net.address import Address, address
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.noting_store import opened
from tests.streams.net.daemons import LOCAL, WITHIN_S, Server, soon
from tests.streams.store.test_disk_store import chance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from onceq.streams.store.store import Store

SEGMENT_BYTES = 1 << 20


class Cluster:
    """Stores by their names, a, b and c. home: where their directories are; None: in memory.

    noting: those that keep no messages.
    """

    def __init__(self, home: Path | None, noting: str = "") -> None:
        self.home = home
        self.noting = noting
        self.stores: dict[str, Store] = {}
        self.servers: dict[str, Server] = {}
        self.addresses: dict[str, Address] = {}

    def _open(self, name: str) -> Store:
        if self.home is None:
            return self.stores.get(name) or MemoryStore()
        if not (self.home / name).exists():
            keeps = name not in self.noting
            initialize(self.home / name, chance, segment_bytes=SEGMENT_BYTES, keeps=keeps)
        return opened(self.home / name, chance)

    async def start(self, names: str) -> None:
        for name in names:
            self.stores[name] = self._open(name)
            self.addresses[name] = await self._listening(name)

    async def _listening(self, name: str) -> Address:
        """Have a store listen, where it did before: another process may have the port meanwhile."""
        at = self.addresses.get(name, LOCAL)
        async with asyncio.timeout(WITHIN_S):
            while True:
                self.servers[name] = Server(self.stores[name], at=at)
                try:
                    return address(await self.servers[name].address())
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                await asyncio.sleep(0.1)

    async def end(self, names: str) -> None:
        """End the processes of some stores."""
        for name in names:
            await self.servers.pop(name).end()
            store = self.stores[name]
            if isinstance(store, DiskStore):
                store.close()

    def wipe(self, name: str) -> None:
        """Lose the disk of a store that has ended."""
        if self.home is not None:
            shutil.rmtree(self.home / name)

    def listed(self, names: str = "abc") -> StoreList:
        return listed(" ".join(str(self.addresses[name]) for name in names))

    def links(self) -> int:
        """How many are connected to stores."""
        return sum(one.daemon.serving.links for one in self.servers.values())

    def having(self, stream: int, messages: list[bytes]) -> set[str]:
        """The stores that have these messages of a stream, and no others."""
        return {name for name in self.stores if self.log(name, stream) == messages}

    def log(self, name: str, stream: int) -> list[bytes]:
        """The messages that a store has of a stream, in order."""
        store = self.stores[name]
        end = store.catalogue.of(stream).end
        found = (decode(data) for data in store.read(stream, range(end)))
        return [bytes(body) for frame in found for body in frame.messages()]


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextlib.asynccontextmanager
async def running(home: Path | None, names: str = "abc") -> AsyncGenerator[Cluster]:
    """Stores that serve; nothing of this test is left when they have ended."""
    before, open_before = asyncio.all_tasks(), descriptors()
    cluster = Cluster(home)
    await cluster.start(names)
    try:
        yield cluster
    finally:
        await cluster.end("".join(cluster.servers))
    await soon(lambda: asyncio.all_tasks() <= before, within_s=5.0)
    await soon(lambda: descriptors() <= open_before, within_s=5.0)
