"""The front door: `open` and `open_async`, and the queue managers that they return.

Users import these from `onceq`. This module is above clerks, servers and managers; history, files,
Spark, testing and the CLI are above it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar, Unpack, overload

from onceq.clerk.async_clerk import AsyncClerk, AsyncLedgerClerk
from onceq.clerk.clerk import Clerk, LedgerClerk
from onceq.clerk.desk import AsyncClerks, Clerks
from onceq.clerk.ledger import Ledger
from onceq.clerk.ledger.async_runner import AsyncLedgerLink
from onceq.clerk.ledger.kind import check_ledger
from onceq.clerk.ledger.runner import LedgerLink
from onceq.clerk.session import ClerkOptions
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.schema.migrate import apply_with
from onceq.engine.sessions.session import LEAN
from onceq.engine.wake.waiting import Wakes
from onceq.manager.async_queue_manager import AsyncQueueOperations
from onceq.manager.caller import DEFAULT_REPOSITORY
from onceq.manager.queue_manager import QueueOperations
from onceq.model.names import check_repository, whose
from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")


class QueueManager(QueueOperations):
    """The operations on a repository, and the clerks of its clients.

    Safe for several threads: each call uses its own connection, up to 8 at once, and each clerk
    has a connection that no one else uses.
    """

    @overload
    def clerk(
        self, registrant: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> Clerk[T, R]: ...
    @overload
    def clerk(
        self, registrant: str, queue: Queue[T, R], *, thread: str = "", ledger: Ledger[C, Any]
    ) -> LedgerClerk[T, R, C]: ...
    def clerk(
        self,
        registrant: str,
        queue: Queue[T, R],
        *,
        ledger: Ledger[C, Any] | None = None,
        **options: Unpack[ClerkOptions],
    ) -> Clerk[T, R]:
        """Returns the clerk of a client, on a connection of its own; `with` connects it.

        registrant: the client's lasting name; a second process that uses it fences the first.
        options: thread, window and keep, described in ClerkOptions. ledger: the client's own
        record; with it the client has one request at a time (C4), and no window and keep.
        """
        name = whose(registrant)
        link = Link(self.located, self.repository, wakes=Wakes(), whose=name, also=LEAN)
        if ledger is None:
            return Clerk(link, registrant, queue, **options)
        check_ledger(name, ledger)
        with_ledger = LedgerLink(link, ledger)
        made: LedgerClerk[T, R, C] = LedgerClerk(with_ledger, registrant, queue, **options)
        return made

    def clerks(self, *, connections: int = 2) -> Clerks:
        """Returns a desk, whose clerks share so many connections: for a web application.

        `with qm.clerks() as clerks:` connects it, and `clerks.clerk(...)` is then as `clerk` here.
        """
        return Clerks(self.located, self.repository, connections)


class AsyncQueueManager(AsyncQueueOperations):
    """`QueueManager` for asyncio: the same methods, awaited; any tasks of one loop may share it."""

    @overload
    def clerk(
        self, registrant: str, queue: Queue[T, R], **options: Unpack[ClerkOptions]
    ) -> AsyncClerk[T, R]: ...
    @overload
    def clerk(
        self, registrant: str, queue: Queue[T, R], *, thread: str = "", ledger: Ledger[Any, C]
    ) -> AsyncLedgerClerk[T, R, C]: ...
    def clerk(
        self,
        registrant: str,
        queue: Queue[T, R],
        *,
        ledger: Ledger[Any, C] | None = None,
        **options: Unpack[ClerkOptions],
    ) -> AsyncClerk[T, R]:
        """See QueueManager.clerk; `async with` connects it."""
        name = whose(registrant)
        link = AsyncLink(self.located, self.repository, wakes=Wakes(), whose=name, also=LEAN)
        if ledger is None:
            return AsyncClerk(link, registrant, queue, **options)
        check_ledger(name, ledger)
        with_ledger = AsyncLedgerLink(link, ledger)
        made: AsyncLedgerClerk[T, R, C] = AsyncLedgerClerk(
            with_ledger, registrant, queue, **options
        )
        return made

    def clerks(self, *, connections: int = 2) -> AsyncClerks:
        """See QueueManager.clerks; `async with` connects it."""
        return AsyncClerks(self.located, self.repository, connections)


def _prepare(url: str | None, repository: str) -> Located:
    check_repository(repository)
    located = locate(url)
    try:
        if located.embedded is not None:
            apply_with(located.conninfo, repository)
    except BaseException:
        located.close()
        raise
    return located


def open(  # noqa: A001 # called as onceq.open
    url: str | None = None, *, repository: str = DEFAULT_REPOSITORY
) -> QueueManager:
    """Opens a repository; use it in a `with` block.

    url: `embedded:PATH` (onceq runs PostgreSQL itself and makes the schema), `postgresql://...` or
    anything libpq accepts; None reads ONCEQ_URL, then DATABASE_URL, then libpq's variables. Raises
    InvalidValue (no URL, or not one), InvalidName, CannotConnect, SchemaMissing (run `onceq init`),
    SchemaMismatch, SchemaTooNew, PostgresTooOld, PoolerDetected, EmbeddedError, or StatementRefused
    (a right is missing): nothing happened.
    """
    opened = QueueManager(_prepare(url, repository), repository)
    try:
        return opened.connect()
    except BaseException:
        opened.located.close()
        raise


class _OpenAsync:
    """What `open_async` returns: await it, or enter it by `async with`, which also closes it."""

    def __init__(self, url: str | None, repository: str) -> None:
        self._url = url
        self._repository = repository
        self._opened: AsyncQueueManager | None = None

    async def __aenter__(self) -> AsyncQueueManager:
        located = await asyncio.to_thread(_prepare, self._url, self._repository)
        opened = AsyncQueueManager(located, self._repository)
        try:
            await opened.connect()
        except BaseException:
            located.close()
            raise
        self._opened = opened
        return opened

    def __await__(self) -> Generator[Any, None, AsyncQueueManager]:
        return self.__aenter__().__await__()

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()


def open_async(url: str | None = None, *, repository: str = DEFAULT_REPOSITORY) -> _OpenAsync:
    """Opens a repository for asyncio: `async with onceq.open_async(...) as qm`. See `open`.

    With `qm = await onceq.open_async(...)` it stays open until `await qm.close()`.
    """
    return _OpenAsync(url, repository)
