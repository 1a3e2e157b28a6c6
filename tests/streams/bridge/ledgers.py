"""What tests of bridges have in a database, and bridges that write there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from onceq.engine.embedded.locate import Located
from onceq.streams.bridge.effects import Application, Handler
from onceq.streams.bridge.hands import IntoContext
from onceq.streams.bridge.into import AsyncInto
from onceq.streams.bridge.target import Target
from onceq.streams.model.events import Event
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.catching_up import Patience
from onceq.streams.receiver.driver import Wishes
from onceq.streams.receiver.ops import Message
from tests.parts import plain, rows
from tests.streams.source.running import SESSION, TOPIC, WITHIN_S

PATIENCE = Patience(read_s=0.5, ask_s=1.0, rest_s=0.05)
WISHES = Wishes(patience=PATIENCE, ack_batching_interval_ms=20)


class Mine(Exception):
    """A handler's own error."""


class Booking:
    """Handlers that have the effect of each message: a row, without a key."""

    def __init__(self, table: str) -> None:
        self.table = table

    @property
    def insert(self) -> bytes:
        return f"insert into {self.table} values (%s, %s)".encode()

    def book(self, messages: list[Message], context: IntoContext[Any]) -> None:
        """A handler."""
        for one in messages:
            context.connection.execute(self.insert, (one.number, one.body))

    async def book_async(self, messages: list[Message], context: IntoContext[Any]) -> None:
        """The same, in the loop."""
        for one in messages:
            await context.connection.execute(self.insert, (one.number, one.body))


class Ledger(Booking):
    """The effects of messages: what took effect twice is there twice."""

    def __init__(self, conninfo: str, repository: str) -> None:
        super().__init__(f"{repository}.effects")
        self.conninfo = conninfo
        self.repository = repository
        with plain(conninfo) as connection:
            connection.execute(f"create table {self.table} (number bigint, body bytea)".encode())

    def effects(self) -> list[bytes]:
        """The bodies whose effects are there, by number."""
        return [body for (body,) in self.ask("select body from {effects} order by number")]

    def numbers(self) -> list[int]:
        """The numbers whose effects are there, each as often as it took effect."""
        return [one for (one,) in self.ask("select number from {effects} order by number")]

    def position(self) -> int:
        """Below which number everything has taken effect, as the database says."""
        found = self.ask("select number from {r}.stream_position where name = 'ledger'")
        return int(found[0][0]) if found else 0

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds."""
        return rows(self.conninfo, query.format(effects=self.table, r=self.repository))

    def into(
        self,
        at: StoreList,
        handler: Handler | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        conninfo: str = "",
        **given: Any,
    ) -> AsyncInto:
        """A bridge that is not yet run. conninfo: instead of the ledger's."""
        target = Target(name="ledger", topic=TOPIC, source=SESSION, at=at, **given)
        application = Application(handler=handler or self.book, on_event=on_event)
        database = (Located(conninfo or self.conninfo, None), self.repository)
        return AsyncInto(target, application, database, wishes=WISHES)


async def run(one: AsyncInto) -> None:
    """Run a bridge, not for ever."""
    async with asyncio.timeout(3 * WITHIN_S):
        await one.run()


@contextlib.asynccontextmanager
async def living(one: AsyncInto) -> AsyncGenerator[asyncio.Task[None]]:
    """A bridge that runs while the block does, and ends well."""
    task = asyncio.ensure_future(run(one))
    try:
        yield task
    finally:
        one.stop()
        await task
