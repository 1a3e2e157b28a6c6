"""Connections to a client's ledger in PostgreSQL: its own, or the repository's link.

Used by `onceq.clerk.ledger`. They run statements, and translate their errors.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import psycopg

from onceq.engine.embedded.locate import locate
from onceq.engine.perform import async_driver, driver
from onceq.engine.sessions import session
from onceq.engine.sessions.faults import translated
from onceq.errors import IllegalState, OnceqError

if TYPE_CHECKING:
    from datetime import datetime

    from onceq.engine.connect.async_connection import AsyncLink
    from onceq.engine.connect.connection import Link
    from onceq.engine.embedded.locate import Located
    from onceq.model.ledger_ops import Statement

Connection: TypeAlias = psycopg.Connection[Any]
AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]
Rows: TypeAlias = list[tuple[Any, ...]]

IN_DOUBT = (
    "select p.gid, p.prepared, l.owner from pg_prepared_xacts p left join onceq_ledger l"
    " on split_part(p.gid, ':', 3) = l.registrant_id::text"
    " and position(split_part(p.gid, ':', 2) in replace(l.owner, '-', '')) > 0"
    " where p.database = current_database() and p.gid ^@ 'onceq:' order by p.prepared"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubtTransaction:
    """A transaction prepared in a ledger's database whose client has died or is waiting.

    owner: the client and its repository, as JSON; None if it belongs to no ledger here.
    """

    gid: str
    prepared_at: datetime
    owner: str | None


def in_doubt(url: str) -> list[InDoubtTransaction]:
    """Returns the transactions prepared in a ledger's database, the oldest first. CannotConnect."""
    with contextlib.closing(OwnExecutor(url)) as own, translated():
        if own.connection.execute("select to_regclass('onceq_ledger')").fetchone() == (None,):
            return []
        rows = own.connection.execute(IN_DOUBT).fetchall()
    return [InDoubtTransaction(gid=row[0], prepared_at=row[1], owner=row[2]) for row in rows]


def _refuse_ended(connection: psycopg.BaseConnection[Any], op: Statement) -> None:
    if op.joins and not session.in_transaction(connection):
        raise IllegalState("the block of `transaction` ended its transaction by itself")


def _failed(
    error: psycopg.Error, connection: psycopg.BaseConnection[Any], op: Statement
) -> OnceqError:
    return session.failure(error, connection, committing=op.commits)


class _Executes(abc.ABC):
    """Runs statements on a connection."""

    @property
    @abc.abstractmethod
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, also for the client's own work."""

    def execute(self, op: Statement) -> Rows:
        """Runs a statement and returns its rows."""
        connection = self.connection
        if op.text == "rollback" and session.is_broken(connection):
            return []
        _refuse_ended(connection, op)
        try:
            cursor = connection.execute(op.text.encode(), op.parameters or None)
            return [] if cursor.description is None else cursor.fetchall()
        except psycopg.Error as error:
            raise _failed(error, connection, op) from error


class _ExecutesAsync(abc.ABC):
    """`_Executes`, awaited."""

    @property
    @abc.abstractmethod
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection, also for the client's own work."""

    async def execute(self, op: Statement) -> Rows:
        """Runs a statement and returns its rows."""
        connection = self.connection
        if op.text == "rollback" and session.is_broken(connection):
            return []
        _refuse_ended(connection, op)
        try:
            cursor = await connection.execute(op.text.encode(), op.parameters or None)
            return [] if cursor.description is None else await cursor.fetchall()
        except psycopg.Error as error:
            raise _failed(error, connection, op) from error


class LinkExecutor(_Executes):
    """On the repository's own connection, in its transaction."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The link's connection, as it is now."""
        return self._link.connection

    def close(self) -> None:
        """Does nothing: the link is closed elsewhere."""


class AsyncLinkExecutor(_ExecutesAsync):
    """`LinkExecutor`, awaited."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The link's connection, as it is now."""
        return self._link.connection

    async def close(self) -> None:
        """Does nothing: the link is closed elsewhere."""


class OwnExecutor(_Executes):
    """On a connection of its own to another database. CannotConnect."""

    def __init__(self, url: str) -> None:
        self._located = locate(url)
        try:
            self._connection = driver.connect(self._located.conninfo)
        except BaseException:
            self._located.close()
            raise

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection."""
        return self._connection

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._connection.close()
        self._located.close()


class AsyncOwnExecutor(_ExecutesAsync):
    """`OwnExecutor`, awaited."""

    def __init__(self, located: Located, connection: psycopg.AsyncConnection[Any]) -> None:
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
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection."""
        return self._connection

    async def close(self) -> None:
        """Closes the connection; idempotent."""
        await self._connection.close()
        self._located.close()
