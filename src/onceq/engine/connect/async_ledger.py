"""Connections to a client's ledger in PostgreSQL: its own, or the repository's link.

Used by `onceq.clerk.ledger`. They run statements, and translate their errors.
"""

from __future__ import annotations

import abc
import asyncio
from typing import Any, Self, TypeAlias

import psycopg

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.perform import async_driver
from onceq.engine.sessions import session
from onceq.errors import IllegalState
from onceq.model.ledger_ops import Statement

AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]


class AsyncExecutes(abc.ABC):
    """Runs statements on a connection."""

    @property
    @abc.abstractmethod
    def connection(self) -> AsyncConnection:
        """The connection, also for the client's own work."""

    async def execute(self, op: Statement) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        connection = self.connection
        if op.text == "rollback" and session.is_broken(connection):
            return []
        if op.joins and not session.in_transaction(connection):
            raise IllegalState("the block of `transaction` ended its transaction by itself")
        try:
            cursor = await connection.execute(op.text.encode(), op.parameters or None)
            return [] if cursor.description is None else await cursor.fetchall()
        except psycopg.Error as error:
            raise session.failure(error, connection, committing=op.commits) from error


class AsyncLinkExecutor(AsyncExecutes):
    """On the repository's own connection, in its transaction."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    @property
    def connection(self) -> AsyncConnection:
        """The link's connection, as it is now."""
        return self._link.connection

    async def close(self) -> None:
        """Does nothing: the link is closed elsewhere."""


class AsyncOwnExecutor(AsyncExecutes):
    """On a connection of its own to another database."""

    def __init__(self, located: Located, connection: AsyncConnection) -> None:
        self._located = located
        self._connection = connection

    @classmethod
    async def opened(cls, url: str) -> Self:
        """Connects. CannotConnect."""
        located = await asyncio.to_thread(locate, url)
        try:
            return cls(located, await async_driver.connect(located.conninfo))
        except BaseException:
            located.close()
            raise

    @property
    def connection(self) -> AsyncConnection:
        """The connection."""
        return self._connection

    async def close(self) -> None:
        """Closes the connection; idempotent."""
        await self._connection.close()
        self._located.close()
