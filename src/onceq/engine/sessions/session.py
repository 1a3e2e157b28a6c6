"""What both drivers share around psycopg: session settings, statements, COMMIT's warning.

The engine's own, but for questions about a connection that others ask too. Our connections are in
autocommit, and Ops begin transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import TransactionStatus

from onceq.engine.bind import statement
from onceq.engine.sessions import faults, forking
from onceq.engine.wake.bell import host_key
from onceq.errors import (
    CannotConnect,
    ConnectionLost,
    HandlerMisuse,
    InDoubt,
    OnceqError,
    PoolerDetected,
)
from onceq.model import ops

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

BELL = "onceq_setting.bell"
HOST = "onceq_setting.host"
TIMEOUT_OF_17 = "transaction_timeout"
"""From PostgreSQL 17 on; an older one refuses a session that starts with it."""
ENCODING = "UTF8"
"""The encoding of our sessions, whatever the environment or database says; see `cannot_carry`."""
UNLIMITED = {"statement_timeout": "0", "lock_timeout": "0"}
"""A role's default would end a slow handler's statement, which would then be run again in vain."""
DEAD_LINK = {
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""When a link is silently dead, these end its session and locks in the database after 30 s at most.
None of them bounds a statement; on a Unix socket only the first does anything."""
ISOLATION = "read committed"
"""The default level of our sessions' transactions."""
CLEAN = "discard temp; unlisten *; close all; reset session authorization; reset all"
"""A handler's SET, temporary tables, LISTEN and open cursors would outlive its commit."""


LEAN = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "onceq_setting.lean": "on",
}
"""The settings that the functions of the hot path make for themselves, for the whole session; the
last tells them (`send_one`). Only where nothing else runs: others' statements need other plans."""


SHARED = {**LEAN, "lock_timeout": "20ms"}
"""Of a desk's session: an Op that meets a lock is tried again later, and blocks nobody."""


def settings(
    *,
    limit_s: int | None = None,
    bell: str | None = None,
    also: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the settings of a session of ours, by name.

    Roles and databases may have other defaults for commits and isolation levels. limit_s: the
    longest execution, which bounds a stopped or vanished server; None if no handlers run. bell:
    where this session is rung when it sleeps; all sessions say which host they are on. also: LEAN
    if only the Ops of clerks run there, and SHARED if it is a desk's.
    """
    limits = ("idle_in_transaction_session_timeout", "idle_session_timeout", TIMEOUT_OF_17)
    return {
        "synchronous_commit": "on",
        "default_transaction_isolation": ISOLATION,
        **UNLIMITED,
        **DEAD_LINK,
        HOST: host_key(),
        **(also or {}),
        **({} if bell is None else {BELL: bell}),
        **({} if limit_s is None else dict.fromkeys(limits, f"{limit_s}s")),
    }


def offers(conninfo: str, wanted: Mapping[str, str]) -> list[str]:
    """Returns the connection strings to try in turn, until one is not refused (`is_refused`).

    Settings given as startup options override the defaults of roles and databases, and RESET ALL
    returns to what was given. The last offer has none, for a pooler that refuses them, or a server
    that does not know one: they are set later, or fail then.
    """
    given = _given_options(conninfo)
    wanted = {
        name: v for name, v in wanted.items() if UNLIMITED.get(name) != v or name not in given
    }
    older = {name: value for name, value in wanted.items() if name != TIMEOUT_OF_17}
    tried = [wanted] if len(older) == len(wanted) else [wanted, older]
    plain = make_conninfo(conninfo, client_encoding=ENCODING)
    return [*(make_conninfo(plain, options=_options(given, one)) for one in tried), plain]


def _options(given: str, wanted: Mapping[str, str]) -> str:
    pairs = (f"-c {name}={value.replace(' ', _SPACE)}" for name, value in wanted.items())
    return " ".join([given, *pairs]).strip()


_SPACE = "\\ "


def _given_options(conninfo: str) -> str:
    """Returns the options that libpq would send: from the string, its service, or the environment.

    libpq itself says so: this begins a connection to where nobody listens.
    """
    nowhere = make_conninfo(conninfo, host="/", hostaddr="", port="1")
    probe = pq.PGconn.connect_start(nowhere.encode())
    try:
        found = {one.keyword: one.val for one in probe.info}
    finally:
        probe.finish()
    return (found.get(b"options") or b"").decode()


def is_refused(error: psycopg.Error) -> bool:
    """Returns whether a connection failed for its startup options. No language translates these."""
    text = str(error)
    return any(word in text for word in ("options", "startup parameter", TIMEOUT_OF_17))


BEGIN_WORK = b"begin isolation level read committed"
"""Begins a client's own transaction: tagged operations accept no other level."""

WHO = "select pg_backend_pid(), current_setting('onceq_setting.host', true)"
"""The first query of every session: whose it is, and whether its startup options arrived."""


def who_text(repository: str | None) -> bytes:
    """Returns what a session asks first: WHO, and the stamp of its repository, if it has one."""
    also = "" if repository is None else f"; select to_jsonb(r) from {repository}.repository r"
    return f"{WHO}{also}".encode()


def set_text(wanted: Mapping[str, str], server_version: int) -> str:
    """Returns the SQL that sets these settings if a pooler has dropped the options."""
    known = {n: v for n, v in wanted.items() if n != TIMEOUT_OF_17 or server_version >= 170000}
    return "; ".join(f"set {name} = '{value}'" for name, value in known.items())


def clean_text(again: str) -> bytes:
    """Returns the SQL that resets the session after the commit of an execution, for the next one.

    again: what RESET ALL does not restore by itself. A rollback needs nothing of the kind.
    """
    return f"{CLEAN}; {again}{'; ' if again else ''}".encode()


UNKNOWN_HOST = ("failed to resolve host", "could not translate host name")
"""What psycopg and libpq say of a host that has no address."""

DOCTOR_TELLS = " (`onceq doctor` tells more)"
"""The part of an error that everybody but the doctor is told."""


def cannot_connect(error: psycopg.Error) -> CannotConnect:
    """Returns the error for a connection that could not be made."""
    said = "; ".join(line.strip() for line in str(error).strip().splitlines())
    unknown = any(one in said for one in UNKNOWN_HOST)
    advice = (
        "check the host in the URL" if unknown else "check the URL and that the server is running"
    )
    return CannotConnect(f"cannot connect to PostgreSQL: {said}; {advice}{DOCTOR_TELLS}")


def cannot_open(error: psycopg.Error, connection: psycopg.BaseConnection[Any]) -> OnceqError:
    """Returns the error for a session that was made, but whose first query failed.

    A connection that was given up is closed, and says nothing of its role any more.
    """
    if error.sqlstate == faults.MISSING_RIGHT:
        return faults.translate(error, connection.info.user)
    return cannot_connect(error)


def is_rejecting(conninfo: str) -> bool:
    """Returns whether PostgreSQL is there but takes no connections yet, or takes them no longer."""
    return pq.PGconn.ping(conninfo.encode()) == pq.Ping.REJECT


def is_pooled(connection: psycopg.BaseConnection[Any], backend_pid: int) -> bool:
    """Returns whether the backend that answered is not the one that was connected to.

    A pooler gives its clients keys of its own, so the process ids differ.
    """
    return connection.info.backend_pid != backend_pid


def refuse_pooler(first_pid: int, second_pid: int) -> None:
    """Raises PoolerDetected if one backend served two open connections."""
    if first_pid == second_pid:
        raise PoolerDetected(
            "a transaction pooler stands between: the locks that tell a dead server from a live "
            "one need a session of their own; connect to PostgreSQL directly, or in session mode"
        )


class Statements:
    """The statements of one repository, rendered once from the binding table."""

    __slots__ = ("_plain", "_table")

    def __init__(self, repository: str, table: dict[type[Any], statement.Binding]) -> None:
        self._table = {kind: (row, row.text(repository).encode()) for kind, row in table.items()}
        self._plain = {
            kind: (row.plain, row.plain.text(repository).encode())
            for kind, row in table.items()
            if row.plain is not None
        }

    def of(self, op: ops.Op[Any]) -> tuple[statement.Binding, bytes]:
        """Returns the binding of an Op and its SQL."""
        found = self._table[type(op)]
        return self._plain[type(op)] if found[0].is_plain(op) else found


def begin_text(op: ops.Begin, repository: str) -> bytes:
    """Returns the SQL that begins the handler's transaction: one round trip.

    The started marker goes with it: a sequence, so that it survives rollback and kill -9.
    """
    hasty = "" if op.effects else " set local synchronous_commit = off;"
    return (
        f"begin isolation level {op.isolation};{hasty}"
        f" select {'pg_current_xact_id(), ' if op.seq < 0 else ''}"
        f"setval('{repository}.started_{op.slot}', {op.seq}),"
        f" set_config('onceq_setting.token', '{op.token}', true)"
        f"{BATCH_TEXT if op.seq < 0 else ''}"
    ).encode()


LOCK_WAIT_MS = 5
"""How long a statement of a batch waits for a lock: at most this, at least half.

That is short compared with a batch. The length varies, so that of two batches that wait for each
other, one gives up first. A longer wait does no work, and past a second there is a deadlock.
"""


MARK = "default_transaction_read_only"
"""Set in the transaction of a batch: it says nothing of the present one, and is reported."""


BATCH_TEXT = (
    f", set_config('{MARK}', 'on', true)"
    f", set_config('lock_timeout', round({LOCK_WAIT_MS} * (0.5 + random() / 2)) || 'ms', true)"
)
"""What a batch sets too. The finish takes the short patience back."""


def check_commit(results: Sequence[PGresult], connection: psycopg.BaseConnection[Any]) -> None:
    """Raises what the results of a commit's statements tell.

    InDoubt also when the commit was made but what follows it failed, as when a cancel came while it
    waited for the disk. Going on would forget what was claimed with it.
    """
    failed = [one for one in results if one.status == pq.ExecStatus.FATAL_ERROR]
    if results and not failed:
        return
    if not results:
        raise InDoubt("there is no answer to COMMIT: whether it took effect is unknown")
    error = error_from_result(failed[0])
    if results[0] is not failed[0] and not is_broken(connection):
        raise InDoubt(NOT_LIKE_NEW + str(error)) from error
    raise failure(error, connection, committing=True) from error


def not_like_new(error: OnceqError, connection: psycopg.BaseConnection[Any]) -> OnceqError:
    """Returns the error for a session that was to be made like new, and then to begin.

    That is the error itself if the session is gone, or if the transaction has begun: then what came
    after that failed.
    """
    if is_broken(connection) or in_transaction(connection):
        return error
    return InDoubt(NOT_LIKE_NEW + str(error))


NOT_LIKE_NEW = "committed, but the session cannot be made like new: "


class CommitWarning:
    """Listens for the WARNING that makes a COMMIT's success a doubt.

    Only while one is under way, as a `with` block, also inside another: a handler's own RAISE
    WARNING may have the same SQLSTATE, and a caller's connection must not collect listeners.
    """

    __slots__ = ("_connection", "_depth", "cut_short")

    def __init__(self, connection: psycopg.BaseConnection[Any]) -> None:
        self._connection = connection
        self._depth = 0
        self.cut_short: str | None = None

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self.cut_short = None
            self._connection.add_notice_handler(self._notice)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._connection.remove_notice_handler(self._notice)

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        warning = diagnostic.severity_nonlocalized == "WARNING"
        if warning and diagnostic.sqlstate == faults.DURABILITY_CUT_SHORT:
            self.cut_short = diagnostic.message_primary or "durability was cut short"

    def check(self) -> None:
        """Raises InDoubt if the commit just made may not survive a failover."""
        if self.cut_short is not None:
            text, self.cut_short = self.cut_short, None
            raise InDoubt(f"committed here, but perhaps not on the standbys: {text}")


def cannot_carry(connection: psycopg.BaseConnection[Any]) -> str | None:
    """Returns the encoding of a session in which some text cannot travel; None: all can."""
    encoding = connection.pgconn.parameter_status(b"client_encoding") or b""
    return None if encoding == ENCODING.encode() else encoding.decode("ascii", "replace")


def is_broken(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether the session is gone."""
    return connection.closed or connection.pgconn.transaction_status == TransactionStatus.UNKNOWN


def commits_at_once(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether a statement will be a transaction of its own."""
    return connection.autocommit and not in_transaction(connection)


def in_transaction(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether a transaction is open, sound or failed."""
    return connection.pgconn.transaction_status != TransactionStatus.IDLE


def is_unfit(connection: psycopg.BaseConnection[Any], *, is_posting: bool) -> bool:
    """Returns whether no new life may begin here: it is broken, or was cut short in its work.

    is_posting: the answer of a one-way send is still to be read, and will be.
    """
    fit = TransactionStatus.ACTIVE if is_posting else TransactionStatus.IDLE
    status = connection.pgconn.transaction_status
    is_ours = not (is_broken(connection) or forking.is_left(connection))
    return not is_ours or status not in {TransactionStatus.IDLE, fit}


def has_failed(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether a statement of the open transaction failed, so that it can only roll back."""
    return connection.pgconn.transaction_status == TransactionStatus.INERROR


def failure(
    error: psycopg.Error, connection: psycopg.BaseConnection[Any], *, committing: bool
) -> OnceqError:
    """Returns what an error of psycopg means. committing: a COMMIT may have been under way."""
    if is_broken(connection) or faults.is_lost(error):
        return faults.lost(error, commit_was_sent=committing)
    return faults.translate(error, connection.info.user)


def handler_failure(
    error: psycopg.Error | OnceqError, connection: psycopg.BaseConnection[Any]
) -> OnceqError:
    """Returns what an error from a handler means; a lost session explains whatever it raised."""
    if is_broken(connection) or (isinstance(error, psycopg.Error) and faults.is_lost(error)):
        return ConnectionLost(f"the connection was lost while the handler ran: {error}")
    if not in_transaction(connection):
        return HandlerMisuse(
            f"the handler ended the transaction that it was given, then raised: {error}; what it "
            "committed stays, so it is not run again"
        )
    return error if isinstance(error, OnceqError) else faults.translate_handlers(error)
