"""A link: one connection to a repository, made again when it breaks, with its driver.

Used by clerks, queue managers and servers. A link never retries an operation: it only connects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine.connect.opening import Handling, async_open_verified
from onceq.engine.embedded.locate import Located
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.sessions import forking, session, silence
from onceq.engine.wake import exchange
from onceq.engine.wake.exchange import Wire
from onceq.engine.wake.waiting import Wakes
from onceq.errors import CannotConnect
from onceq.model import ops

if TYPE_CHECKING:
    import psycopg

    from onceq.engine.connect.opening import AsyncHandler

T = TypeVar("T")


class AsyncLink:
    """A connection to a repository, and its driver.

    wakes: of a session that waits on it and is rung; None: none does. handling: what the handlers
    need that run on it; None: none do. also: settings of its session (`session.settings`). whose:
    what an error calls it.
    """

    def __init__(
        self,
        located: Located,
        repository: str,
        *,
        wakes: Wakes | None = None,
        handling: Handling[AsyncHandler] | None = None,
        whose: str = "this link",
        also: Mapping[str, str] | None = None,
    ) -> None:
        self._located = located
        self._repository = repository
        self._wakes = wakes
        self._handling = handling
        self._whose = whose
        self._also = also
        self._patience: silence.Patience | None = None
        self._wire: Wire | None = None
        self._driver: AsyncPostgresDriver | None = None

    @property
    def repository(self) -> str:
        """The name of the repository."""
        return self._repository

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection. CannotConnect: there is none. IllegalState: it is from before a fork."""
        return self._open().connection

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._driver is not None and not self._driver.connection.closed

    async def reconnect(self) -> None:
        """Connects if there is no usable connection. CannotConnect, SchemaMissing.

        Whatever a cut-short call left open is rolled back: no later life commits it.
        """
        if self._driver is not None and self._driver.is_unfit():
            await self.close()
        if self._driver is None:
            await asyncio.to_thread(self._located.ensure_running)
            self._driver = await self._begin(self._located.conninfo)

    async def _begin(self, conninfo: str) -> AsyncPostgresDriver:
        handling = self._handling
        watch, limit_s = (None, None) if handling is None else (handling.watch, handling.limit_s)
        wire = exchange.join(conninfo, self._wakes, watch)
        try:
            connection, again = await async_open_verified(
                conninfo,
                self._repository,
                session.settings(limit_s=limit_s, bell=wire.bell_text, also=self._also),
                self._patience,
            )
        except BaseException:
            await asyncio.shield(asyncio.to_thread(wire.close))
            raise
        self._wire = wire
        if handling is None:
            return AsyncPostgresDriver(connection, self._repository, wire=wire)
        calls, stop, gate = handling.calls, handling.stop, handling.gate
        driver = AsyncPostgresDriver(
            connection, self._repository, wire=wire, calls=calls, stop=stop, gate=gate
        )
        driver.clean_text = session.clean_text(again)
        return driver

    @contextlib.contextmanager
    def bounded(self, patience: silence.Patience | None) -> Generator[None]:
        """A block in which a silent link is given up with this patience; None: never."""
        self._patience = patience
        try:
            yield
        finally:
            self._patience = None

    async def run(self, program: ops.Program[T], patience: silence.Patience | None = None) -> T:
        """Runs a Program on this link. patience: None: that of the block around it."""
        driver = self._open()
        patience = patience or self._patience
        if patience is None:
            return await driver.run(program)
        with silence.bounded(driver.connection, patience):
            return await driver.run(program)

    async def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op on this link."""
        driver = self._open()
        with silence.bounded(driver.connection, self._patience):
            return await driver.perform(op)

    def _open(self) -> AsyncPostgresDriver:
        if self._driver is None:
            raise CannotConnect(f"{self._whose} is not connected: connect() first")
        forking.refuse_left(self._driver.connection)
        return self._driver

    async def close(self) -> None:
        """Closes the connection; idempotent."""
        if self._driver is not None:
            await self._driver.connection.close()
            self._driver = None
        if self._wire is not None:
            wire, self._wire = self._wire, None
            await asyncio.shield(asyncio.to_thread(wire.close))
