"""The front door: `open` and `open_async`, and the queue managers that they return.

What users import from `onceq` comes from here. Stands above all libraries and below the CLI.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from onceq.clerk.clerk import AsyncClerk, Clerk
from onceq.engine.async_connection import AsyncLink
from onceq.engine.connection import Link
from onceq.engine.locate import locate
from onceq.engine.migrate import apply_with
from onceq.engine.waiting import Wakes
from onceq.manager.async_queue_manager import AsyncQueueOperations
from onceq.manager.caller import DEFAULT_REPOSITORY
from onceq.manager.queue_manager import QueueOperations
from onceq.model.names import check_repository

if TYPE_CHECKING:
    from onceq.engine.locate import Located
    from onceq.model.queue import Queue

T = TypeVar("T")
R = TypeVar("R")


class QueueManager(QueueOperations):
    """The operations on a repository, and the clerks of its clients. Not thread-safe."""

    def clerk(
        self, registrant: str, queue: Queue[T, R], *, thread: str = "", window: int = 1
    ) -> Clerk[T, R]:
        """Returns the clerk of a client, on a connection of its own; `with` connects it.

        registrant: the client's lasting name; a second process that uses it fences the first.
        window: how many requests may be outstanding, 1 to 100,000 (C6).
        """
        link = Link(self.located, self.repository, wakes=Wakes())
        return Clerk(link, registrant, queue, thread=thread, window=window)


class AsyncQueueManager(AsyncQueueOperations):
    """`QueueManager`, for asyncio: the same methods, awaited."""

    def clerk(
        self, registrant: str, queue: Queue[T, R], *, thread: str = "", window: int = 1
    ) -> AsyncClerk[T, R]:
        """See QueueManager.clerk; `async with` connects it."""
        link = AsyncLink(self.located, self.repository, wakes=Wakes())
        return AsyncClerk(link, registrant, queue, thread=thread, window=window)


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

    url: `embedded:PATH` (runs PostgreSQL itself, and makes the schema), `postgresql://...` or
    anything libpq takes; None reads ONCEQ_URL, DATABASE_URL, then libpq's variables. Raises
    CannotConnect, SchemaMissing (run `onceq init`), SchemaTooNew, PostgresTooOld, PoolerDetected,
    EmbeddedError: nothing happened.
    """
    opened = QueueManager(_prepare(url, repository), repository)
    try:
        return opened.connect()
    except BaseException:
        opened.located.close()
        raise


class _OpenAsync:
    """What `open_async` returns: awaited, or entered by `async with`."""

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

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()


def open_async(url: str | None = None, *, repository: str = DEFAULT_REPOSITORY) -> _OpenAsync:
    """Opens a repository for asyncio: `async with onceq.open_async(...) as qm`. See `open`."""
    return _OpenAsync(url, repository)
