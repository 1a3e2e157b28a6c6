"""A ledger in a local SQLite file, for clients that have no database (BN09 4.3, CSEP 9.2).

Written before the send and after the receive, each write durable before what follows. What the
client's own work writes into the same file commits with it. One file, one client.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from onceq.clerk.ledger.kind import Answers, Ledger, Rows, owner_text
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.errors import EnvironmentFault, IllegalState, LedgerRefused
from onceq.model import ledger_ops
from onceq.model.ledger import Entry, Joint, encode_entry
from onceq.model.ledger_ops import Statement
from onceq.model.ops import Program

T = TypeVar("T")

BUSY_S: Final = 10.0
VERSION: Final = 1
TABLE: Final = (
    "create table if not exists onceq_ledger (only_row integer primary key check (only_row = 1),"
    " version integer not null, owner text not null, life text not null, entry text not null,"
    " digest text not null)"
)
_NOT_A_LEDGER: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_BROKEN: Final = "put it aside, and start the client with a new one: nothing is lost, the \
repository's session has the last request too"


class SqliteLedger(Ledger[sqlite3.Connection, sqlite3.Connection]):
    """A ledger in a SQLite file, which is made if it does not exist.

    path: on a local disk; it may be a file with the client's own tables. Connect raises
    LedgerRefused if it is torn, corrupt, not a SQLite file, or another client's;
    EnvironmentFault if it cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def joint(self) -> Joint:
        """See Ledger.joint."""
        return Joint.ORDERED

    def answers(self) -> SqliteAnswers:
        """See Ledger.answers."""
        return SqliteAnswers(f"ledger {str(self.path)!r}")

    def open(self, link: Link) -> SqliteExecutor:
        """See Ledger.open."""
        del link
        return SqliteExecutor(self.path)

    async def open_async(self, link: AsyncLink) -> AsyncSqliteExecutor:
        """See Ledger.open."""
        del link
        opening = asyncio.ensure_future(asyncio.to_thread(SqliteExecutor, self.path))
        try:
            return AsyncSqliteExecutor(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise


class SqliteAnswers(Answers):
    """Answers for a ledger in SQLite."""

    begins = ledger_ops.Statement(text="begin immediate")
    rolls_back = ledger_ops.Statement(text="rollback")

    def _take(self, op: ledger_ops.TakeLedger) -> Program[Entry]:
        text, digest = encode_entry(Entry())
        yield from self.begins
        yield from ledger_ops.Statement(text=TABLE)
        yield from ledger_ops.Statement(
            text="insert into onceq_ledger values (1, ?, ?, '', ?, ?) on conflict do nothing",
            parameters=(VERSION, owner_text(op), text, digest),
        )
        ((version, owner, text, digest),) = yield from ledger_ops.Statement(
            text="select version, owner, entry, digest from onceq_ledger"
        )
        if version != VERSION:
            raise LedgerRefused(f"{self._where} was made by a newer onceq: upgrade this one")
        entry = self._entry(owner, text, digest, op)
        yield from ledger_ops.Statement(
            text="update onceq_ledger set life = ?", parameters=(op.life,)
        )
        yield from ledger_ops.Statement(text="commit")
        self._taken(op)
        return entry

    def _write(self, op: ledger_ops.WriteLedger) -> Program[None]:
        text, digest = encode_entry(op.entry)
        written = yield from ledger_ops.Statement(
            text="update onceq_ledger set entry = ?, digest = ? where life = ? returning 1",
            parameters=(text, digest, self._life.life),
            joins=self._is_open,
        )
        self._fence(written)

    def _commit(self, _: ledger_ops.CommitLedger) -> Program[None]:
        self._is_open = False
        yield from ledger_ops.Statement(text="commit", joins=True)


class SqliteExecutor:
    """A connection to the file, in which transactions are begun by statements only."""

    def __init__(self, path: Path) -> None:
        self._where = f"ledger {str(path)!r}"
        with self._translated():
            self.connection = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self) -> None:
        """Checks the file, and makes sure that every commit is on disk when it returns."""
        if self.connection.execute("select count(*) from sqlite_schema").fetchone() == (0,):
            self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = extra")
        verdict = self.connection.execute("pragma quick_check(1)").fetchone()
        if verdict != ("ok",):
            raise LedgerRefused(f"{self._where} is torn or corrupt ({verdict}): {_BROKEN}")

    def execute(self, op: Statement) -> Rows:
        """See Executor.execute."""
        if op.joins and not self.connection.in_transaction:
            raise IllegalState("the block of `transaction` ended its transaction by itself")
        if op.text == "rollback" and not self.connection.in_transaction:
            return []
        with self._translated():
            return self.connection.execute(op.text, op.parameters).fetchall()

    def close(self) -> None:
        """See Executor.close."""
        self.connection.close()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _NOT_A_LEDGER:
                raise LedgerRefused(
                    f"{self._where} is torn, corrupt or no ledger ({error}): {_BROKEN}"
                ) from error
            raise EnvironmentFault(
                f"{self._where} cannot be read or written ({error}): look at its directory, its "
                "rights and the disk, then connect again"
            ) from error


class AsyncSqliteExecutor:
    """`SqliteExecutor` in a thread: a write waits for the disk.

    A cancelled call goes on in its thread, so each call waits for the one before: SQLite may
    crash the process if a connection is closed in the middle of a statement.
    """

    def __init__(self, inner: SqliteExecutor) -> None:
        self._inner = inner
        self._turn = threading.Lock()
        self.connection = inner.connection

    async def execute(self, op: Statement) -> Rows:
        """See Executor.execute."""
        return await asyncio.to_thread(self._in_turn, self._inner.execute, op)

    async def close(self) -> None:
        """See Executor.close. Cancelled, it is done all the same: an open transaction is a lock."""
        await asyncio.shield(asyncio.to_thread(self._in_turn, self._inner.close))

    def _in_turn(self, call: Callable[..., T], *arguments: Any) -> T:
        with self._turn:
            return call(*arguments)


def _close_unwanted(opening: asyncio.Future[SqliteExecutor]) -> None:
    """Closes what was opened for a task that has been cancelled meanwhile."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
