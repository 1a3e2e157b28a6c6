"""How a driver asks: the statements of its Ops, on its connection, and the answers as rows.

Private to the drivers. On a connection of ours a statement goes by libpq itself (`prepared`), and a
COMMIT goes with a finish; on a caller's, and with rare values, it goes by a cursor of psycopg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators

from onceq.engine.bind.cursors import UNREADABLE, AsyncOwnCursor, leniently
from onceq.engine.perform.one_way import OneWay
from onceq.engine.perform.prepared import packed, prepared_on
from onceq.engine.sessions.silence import AsyncOwnConnection
from onceq.errors import HandlerMisuse, IllegalState

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from onceq.engine.bind.decoding import Row
    from onceq.engine.bind.statement import Binding
    from onceq.model import ops


SEED = b"select 1"
"""Prepared by psycopg: it looks out for what deallocates everything only if it has anything."""
DEALLOCATED = "the handler deallocated what its session had prepared"


class AsyncAsking:
    """The statements on one connection. serves: handlers run on it.

    is_committing: a COMMIT was sent, and its answer is not read.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], *, serves: bool) -> None:
        self._connection = connection
        self._cursor = AsyncOwnCursor(connection)
        self._own = connection if isinstance(connection, AsyncOwnConnection) else None
        self._prepared = prepared_on(self._cursor)
        self._serves = serves
        self._one_way: OneWay | None = None
        self.is_committing = False

    async def rows(self, row: Binding, text: bytes, op: ops.Op[Any]) -> list[Row]:
        """Executes a statement. psycopg.Error."""
        arguments = row.arguments(op)
        values = None if self._prepared is None else packed(row, arguments)
        await self._look_for_what_is_gone()
        if self._prepared is not None and values is not None:
            async with self._connection.lock:
                return await self._connection.wait(self._prepared.ask(text, values))
        await self._cursor.execute(text, arguments, prepare=True)
        try:
            return await self._cursor.fetchall()
        except UNREADABLE:  # it was claimed or dequeued: it must not be lost
            return leniently(self._cursor.pgresult, self._connection)

    async def rows_and_commit(self, row: Binding, text: bytes, op: ops.Op[Any]) -> list[Row]:
        """The same; if it can, it sends COMMIT with it, and `commit` then reads its answer.

        Raises HandlerMisuse if the handler has deallocated it unseen: nobody can say then whether
        the transaction is still the one that it was given.
        """
        values = None if self._prepared is None else packed(row, row.arguments(op))
        if self._prepared is None or values is None:
            return await self.rows(row, text, op)
        await self._look_for_what_is_gone()
        try:
            async with self._connection.lock:
                rows = await self._connection.wait(self._prepared.ask_and_commit(text, values))
        except psycopg.errors.InvalidSqlStatementName as error:
            raise HandlerMisuse(DEALLOCATED) from error
        self.is_committing = True
        return rows

    async def _look_for_what_is_gone(self) -> None:
        """Forgets what a handler had psycopg deallocate; lets psycopg look out for the next."""
        if self._own is None or self._prepared is None:
            return
        if self._own.has_forgotten:
            self._own.has_forgotten = False
            self._prepared.forget()
        if self._serves and self._prepared.lacks_seed:
            await self._cursor.execute(SEED, prepare=True)
            self._prepared.lacks_seed = False

    async def commit(self, text: bytes) -> list[PGresult]:
        """Commits by this text, unless that was sent; returns the results of its statements."""
        async with self._connection.lock:
            if self.is_committing and self._prepared is not None:
                self.is_committing = False
                return await self._connection.wait(self._prepared.committed())
            self._connection.pgconn.send_query(text)
            return await self._connection.wait(generators.execute(self._connection.pgconn))

    @property
    def commits_along(self) -> bool:
        """Whether a COMMIT may go with a finish."""
        return self._prepared is not None

    @property
    def is_posting(self) -> bool:
        """Whether the answer of a one-way send is still to be read."""
        return self._one_way is not None

    async def post(self, row: Binding, text: bytes, op: ops.Op[Any]) -> None:
        """Sends a statement whose answer is read later. psycopg.Error."""
        async with self._connection.lock:
            one_way = OneWay(self._connection, row, text, op)
            await self._connection.wait(one_way.flushed())
        self._one_way = one_way

    async def posted(self) -> tuple[Binding, list[Row]]:
        """Returns the binding of the statement that was posted, and its rows.

        psycopg.Error, InDoubt; IllegalState: none was posted.
        """
        one_way, self._one_way = self._one_way, None
        if one_way is None:
            raise IllegalState("no one-way send is under way")
        async with self._connection.lock:
            fetched = generators.fetch_many(self._connection.pgconn)
            results = await self._connection.wait(fetched)
        return one_way.row, one_way.rows(results)
