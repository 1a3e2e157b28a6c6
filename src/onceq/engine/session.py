"""What both drivers do alike around psycopg: session settings, statements, COMMIT's verdict.

Private to the engine. A connection of ours is in autocommit, and transactions are begun by Ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.pq import TransactionStatus

from onceq.engine import binding, faults
from onceq.errors import (
    CannotConnect,
    ConnectionLost,
    HandlerMisuse,
    InDoubt,
    OnceqError,
    PoolerDetected,
)

if TYPE_CHECKING:
    import psycopg

    from onceq.model import ops

SETTINGS = (
    "set synchronous_commit = on; set default_transaction_isolation = 'read committed';"
    " set client_connection_check_interval = '5s'"
)
"""Of every session: roles and databases may default to other commits and isolation levels."""


def execution_settings(limit_s: int, server_version: int) -> str:
    """Returns the SQL that bounds a stopped or vanished server by its queues' execution limit."""
    limits = ["idle_in_transaction_session_timeout", "idle_session_timeout"]
    if server_version >= 170000:
        limits.append("transaction_timeout")
    return "; ".join(f"set {name} = '{limit_s}s'" for name in limits)


def commit_text(limit_s: int | None, server_version: int) -> bytes:
    """Returns the SQL that commits an execution and leaves the session as the next must find it.

    A handler's SET, temporary tables, LISTEN and open cursors outlive its commit; a rollback undoes
    them by itself. limit_s: None where no handlers run.
    """
    if limit_s is None:
        return b"commit"
    clean = "discard temp; unlisten *; close all; reset session authorization; reset all"
    return f"commit; {clean}; {SETTINGS}; {execution_settings(limit_s, server_version)}".encode()


def cannot_connect(error: psycopg.Error) -> CannotConnect:
    """Returns the error for a connection that could not be made."""
    return CannotConnect(
        f"cannot connect to PostgreSQL: {str(error).strip()}; "
        "check the URL and that the server is running (`onceq doctor` tells more)"
    )


def is_pooled(connection: psycopg.BaseConnection[Any], backend_pid: int) -> bool:
    """Returns whether the backend that answered is another than the one that was connected to.

    A pooler gives its clients keys of its own, so the process ids differ.
    """
    return connection.info.backend_pid != backend_pid


def refuse_pooler(first_pid: int, second_pid: int) -> None:
    """Raises PoolerDetected when two open connections were served by one backend."""
    if first_pid == second_pid:
        raise PoolerDetected(
            "a transaction pooler stands between: the locks that tell a dead server from a live "
            "one need a session of their own; connect to PostgreSQL directly, or in session mode"
        )


class Statements:
    """The statements of one repository, rendered once from the binding table."""

    __slots__ = ("_table",)

    def __init__(self, repository: str, table: dict[type[Any], binding.Binding]) -> None:
        self._table = {kind: (row, row.text(repository).encode()) for kind, row in table.items()}

    def of(self, op: ops.Op[Any]) -> tuple[binding.Binding, bytes]:
        """Returns the binding of an Op and its SQL."""
        return self._table[type(op)]


def begin_text(op: ops.Begin, repository: str) -> bytes:
    """Returns the SQL that begins the handler's transaction: one round trip.

    The started marker goes with it: a sequence, so that it survives rollback and kill -9.
    """
    return (
        f"begin isolation level {op.isolation};"
        f" select setval('{repository}.started_{op.slot}', {op.seq}),"
        f" set_config('onceq_setting.token', '{op.token}', true)"
    ).encode()


class Verdict:
    """Listens for the WARNING that makes a COMMIT's success a doubt.

    Only while one is under way, as a `with` block: a handler's own RAISE WARNING has the same
    SQLSTATE, and a caller's connection must not collect listeners.
    """

    __slots__ = ("_connection", "cut_short")

    def __init__(self, connection: psycopg.BaseConnection[Any]) -> None:
        self._connection = connection
        self.cut_short: str | None = None

    def __enter__(self) -> None:
        self.cut_short = None
        self._connection.add_notice_handler(self._notice)

    def __exit__(self, *_: object) -> None:
        self._connection.remove_notice_handler(self._notice)

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        warning = diagnostic.severity_nonlocalized == "WARNING"
        if warning and diagnostic.sqlstate == faults.DURABILITY_CUT_SHORT:
            self.cut_short = diagnostic.message_primary or "durability was cut short"

    def check(self) -> None:
        """Raises InDoubt when the commit just made may not survive a failover."""
        if self.cut_short is not None:
            text, self.cut_short = self.cut_short, None
            raise InDoubt(f"committed here, but perhaps not on the standbys: {text}")


def is_broken(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether the session is gone."""
    return connection.closed or connection.pgconn.transaction_status == TransactionStatus.UNKNOWN


def commits_at_once(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether a statement will be a transaction of its own."""
    return connection.autocommit and not in_transaction(connection)


def in_transaction(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether a transaction is open, sound or failed."""
    return connection.pgconn.transaction_status != TransactionStatus.IDLE


def failure(
    error: psycopg.Error, connection: psycopg.BaseConnection[Any], *, committing: bool
) -> OnceqError:
    """Returns what an error of psycopg means. committing: a COMMIT may have been under way."""
    if is_broken(connection):
        return faults.lost(error, commit_was_sent=committing)
    return faults.translate(error)


def handler_failure(
    error: psycopg.Error | OnceqError, connection: psycopg.BaseConnection[Any]
) -> OnceqError:
    """Returns what an error out of a handler means; a lost session explains whatever it raised."""
    if is_broken(connection):
        return ConnectionLost(f"the connection was lost while the handler ran: {error}")
    if not in_transaction(connection):
        return HandlerMisuse(
            f"the handler ended the transaction that it was given, then raised: {error}; what it "
            "committed stays, so it is not run again"
        )
    return error if isinstance(error, OnceqError) else faults.translate_handlers(error)
