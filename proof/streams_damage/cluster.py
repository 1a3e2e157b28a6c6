"""Three stores that serve in one loop, a source that fills them, and receivers that catch up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from onceq.streams.errors import FlightFull
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.model.window import Flight
from onceq.streams.net.address import Address
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.sending import Sending
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.directory import Chance, initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.segments import Files
from onceq.streams.store.records import key_of

TOPIC: Final = "bars"
SESSION: Final = 9
NAMES: Final = "abc"
SEGMENT_BYTES: Final = 512 << 10
WITHIN_S: Final = 120.0


class Cluster:
    """Stores by their names. places: their directories. files: what they do to their disks."""

    def __init__(self, home: Path, chance: Chance, files: Callable[[Path], Files]) -> None:
        self.places = {name: home / name for name in NAMES}
        self.stores: dict[str, DiskStore] = {}
        self.daemons: dict[str, Daemon] = {}
        self.addresses: dict[str, Address] = {}
        self._chance = chance
        self._files = files
        self._stops: list[asyncio.Event] = []
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin all stores, each in an empty directory."""
        for name, place in self.places.items():
            initialize(place, self._chance, segment_bytes=SEGMENT_BYTES)
            store = self.stores[name] = DiskStore(place, self._chance, files=self._files(place))
            stop = asyncio.Event()
            bound: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
            daemon = self.daemons[name] = Daemon(store, Address(host="127.0.0.1", port=0))
            running = asyncio.ensure_future(daemon.run(ready=bound.set_result, stop=stop))
            self._stops.append(stop)
            self._running.append(running)
            async with asyncio.timeout(WITHIN_S):
                self.addresses[name] = await bound

    async def end(self) -> None:
        """End all stores. Raises what went wrong in one."""
        for stop in self._stops:
            stop.set()
        await asyncio.gather(*self._running)
        for store in self.stores.values():
            store.close()

    @property
    def own(self) -> StoreList:
        """The list of them."""
        return listed(" ".join(str(one) for one in self.addresses.values()))


@contextlib.asynccontextmanager
async def serving(
    home: Path, chance: Chance, files: Callable[[Path], Files] = Files
) -> AsyncGenerator[Cluster]:
    """Serve for the time of a block."""
    cluster = Cluster(home, chance, files)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.end()


async def fill(own: StoreList, messages: list[bytes]) -> int:
    """Send messages until all of them are stable; return the stream."""
    life = SourceLife(life=1, born_s=1, own=own, topic=TOPIC, session=SESSION)
    core = Sending(life, Flight(messages_max=2_000))
    async with AsyncSource(core) as source:
        await source.wait_registered(WITHIN_S)
        for message in messages:
            while True:
                try:
                    source.send(message)
                    break
                except FlightFull:
                    await source.wait_room(len(message), WITHIN_S)
        await source.wait_stable(WITHIN_S)
        if core.begun is None:
            raise AssertionError("a source sent, and no epoch had begun")
        return core.begun.stream


async def catch_up(own: StoreList, session: int, count: int) -> list[Shown]:
    """Read everything as a receiver that was never there; return what it was shown."""
    shown: list[Shown] = []
    who = Who(topic=TOPIC, source=SESSION, session=session, key=key_of(0, session), known=own)

    def show(one: Shown) -> None:
        shown.append(one)
        if not isinstance(one, Message) or one.number + 1 == count:
            receiver.stop()

    receiver = AsyncReceiver(who, show)
    async with asyncio.timeout(WITHIN_S):
        await receiver.run()
    return shown


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Raises TimeoutError, which says what never did."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 # what is waited for happens in the daemons
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise TimeoutError(f"in {WITHIN_S} s {what} did not come to be") from None
