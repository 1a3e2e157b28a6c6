"""What trials of bridges have in common: three stores in memory, a source for each, PostgreSQL.

The stores serve in a thread of this process, and are never struck. All trials share a repository;
each has a topic, a queue, a table and a name of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import onceq
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.schema.migrate import apply_with
from onceq.model.stream_ops import RelayOpen, RelayPlanned, RelayState
from onceq.streams.bridge.moving import hexed
from onceq.streams.model.frames import decode
from onceq.streams.model.quorum import listed
from onceq.streams.net.address import Address
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.options import core_of
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.memory_store import MemoryStore
from proof.harness.ledger import ask
from proof.streams_bridges.processes import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Self

T = TypeVar("T")
STORES: Final = 3
ANSWER_S: Final = 60.0
LOOK_S: Final = 0.02
REPOSITORY: Final = "bridges"
BROKEN: Final = "broken"
"""A repository whose positions are moved wherever they are: its compare-and-set refuses nothing."""


def soon(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until a condition holds; return whether it does in time."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_S)
    return True


class Stores:
    """Three stores, and sources, in a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stop = asyncio.Event()
        self._stores = [MemoryStore() for _ in range(STORES)]
        self._serving: list[asyncio.Future[None]] = []
        self.addresses = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.addresses = " ".join(self.call(self._serve(one)) for one in self._stores)
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, made: Coroutine[Any, Any, T]) -> T:
        """Await something in the loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(ANSWER_S)

    async def _serve(self, store: MemoryStore) -> str:
        ready: asyncio.Future[Address] = self._loop.create_future()
        daemon = Daemon(store, Address(host="127.0.0.1", port=0))
        serving = daemon.run(ready=ready.set_result, stop=self._stop)
        self._serving.append(asyncio.ensure_future(serving))
        return str(await ready)

    async def _end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._serving)

    @contextlib.contextmanager
    def source(self, topic: str, session: int) -> Generator[Callable[[Sequence[bytes]], None]]:
        """Lend a function that sends messages, and returns when they are stable."""
        life = SourceLife(
            life=session, born_s=1, own=listed(self.addresses), topic=topic, session=session
        )
        one = AsyncSource(core_of(life, {}))

        async def send(bodies: Sequence[bytes]) -> None:
            await one.wait_registered(ANSWER_S)
            for body in bodies:
                one.send(body)
            await one.wait_stable(ANSWER_S)

        self.call(one.__aenter__())
        try:
            yield lambda bodies: self.call(send(bodies))
        finally:
            self.call(one.__aexit__(None, None, None))

    def logs(self, topic: str) -> list[list[bytes]]:
        """Return the messages of the stream of a topic that each store has, in order."""

        async def read() -> list[list[bytes]]:
            return [self._log(one, topic) for one in self._stores]

        return self.call(read())

    def _log(self, store: MemoryStore, topic: str) -> list[bytes]:
        found: list[bytes] = []
        for stream, held in list(store.catalogue.streams.items()):
            if held.topic == topic:
                frames = (decode(data) for data in store.read(stream, range(held.end)))
                found += [bytes(body) for frame in frames for body in frame.messages()]
        return found

    def positions(self, topic: str) -> list[int]:
        """Return the greatest position of a receiver of a topic that each store has noted."""

        async def look() -> list[int]:
            return [
                max((below for one in held for below in one.positions.values()), default=0)
                for store in self._stores
                if (held := [o for o in store.catalogue.streams.values() if o.topic == topic])
            ]

        return self.call(look())


class Database:
    """A repository. name: REPOSITORY, or BROKEN."""

    def __init__(self, conninfo: str, name: str) -> None:
        self.conninfo = conninfo
        self.name = name
        apply_with(conninfo, name)
        if name == BROKEN:
            self._break()

    def _break(self) -> None:
        (text,) = ask(
            self.conninfo, f"select pg_get_functiondef('{self.name}.stream_move'::regproc)"
        )[0]
        broken = text.replace("if not found then", "if false then")
        if broken == text:
            raise AssertionError("stream_move has no compare-and-set that could be broken")
        ask(self.conninfo, broken)

    def make_table(self, name: str) -> None:
        """Make the table of effects of a bridge: `at` says in which order they came."""
        columns = "at bigserial, number bigint, body bytea"
        ask(self.conninfo, f"create table {table_of(self.name, name)} ({columns})")

    def effects(self, name: str) -> list[tuple[int, bytes]]:
        """Return the effects of messages, in the order in which they came."""
        query = f"select number, body from {table_of(self.name, name)} order by at"
        return [(number, bytes(body)) for number, body in ask(self.conninfo, query)]

    def position(self, name: str) -> int:
        """Return where a bridge is in its stream."""
        query = f"select number from {self.name}.stream_position where name = '{name}'"
        found = ask(self.conninfo, query)
        return int(found[0][0]) if found else 0

    def queue(self) -> onceq.QueueManager:
        """Open the repository."""
        return onceq.open(self.conninfo, repository=self.name)

    def relay(self, name: str, session: int) -> tuple[RelayState, list[int]]:
        """Return where a relay is, and which numbers are planned and not finished."""
        with contextlib.closing(connect(self.conninfo)) as connection:
            driver = PostgresDriver(connection, self.name)
            opening = RelayOpen(name=name, queue=name, topic=name, session=hexed(session))
            planned = driver.perform(RelayPlanned(name=name))
            return driver.perform(opening), [one.number for one in planned]
