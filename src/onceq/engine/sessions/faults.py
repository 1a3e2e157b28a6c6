"""What each error of PostgreSQL means here: one table, from SQLSTATE to error.

Used by the drivers around every statement. It says nothing of COMMIT: only the code that sent one
knows whether its answer was lost (`lost`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import psycopg

from onceq import errors

DatabaseError = psycopg.Error
"""Errors of the database raised through a handler, for code that may not name psycopg."""

OWN: dict[str, type[errors.OnceqError]] = {
    "OQ001": errors.Fenced,
    "OQ002": errors.ClaimLost,
    "OQ003": errors.QueueNotFound,
    "OQ004": errors.QueueStopped,
    "OQ005": errors.TooLarge,
    "OQ006": errors.RidReused,
    "OQ007": errors.IllegalState,
    "OQ008": errors.QueueNotEmpty,
    "OQ011": errors.IllegalState,
    "OQ012": errors.HandlerMisuse,
    "OQ013": errors.FileMismatch,
    "OQ014": errors.EnvironmentFault,
    "OQ015": errors.SchemaMismatch,
    "3B001": errors.HandlerMisuse,
    "55P03": errors.DeadlineExceeded,
    "3F000": errors.SchemaMissing,
    "42P01": errors.SchemaMissing,
    "42883": errors.SchemaMissing,
    "23514": errors.InvalidValue,
    "22003": errors.InvalidValue,
    "22008": errors.InvalidValue,
    "22021": errors.InvalidValue,
    "22P02": errors.InvalidValue,
    "22P05": errors.InvalidValue,
}
"""Codes that the SQL functions raise, and those of PostgreSQL with a meaning of their own."""

FULL = "OQ017"
"""A queue is at its limits; the detail says in how many seconds to try again."""

ENVIRONMENT = ("08", "40", "53", "57", "58", "25006", "25P03", "25P04", "42P05")
"""SQLSTATEs, by prefix, that are nobody's fault: not charged, up to the queue's retry limit (G7).

25006: the database is read-only for now, such as a standby not promoted yet. 42P05: an earlier
handler left a prepared statement of this name, which the abort removes.
"""

ROWS_DIFFER = "42804"
ROWS_DIFFER_IN = ("attmap.c", "execSRF.c")
"""Where PostgreSQL notices that the rows of a function got a column while it was being called.

Of what we call that means an upgrade. The same code from elsewhere is a mistake in a statement.
"""

MISSING_RIGHT = "42501"
"""The role may not do this."""

DURABILITY_CUT_SHORT = "01000"
"""The WARNING at COMMIT when synchronous replication was cancelled: it looks like success."""


def is_lost(error: psycopg.Error) -> bool:
    """Returns whether this is libpq's own word on the connection: a result without an SQLSTATE.

    A server that goes down in a crash says so by a warning, and closes. A write after that
    fails, and libpq makes a result of it while it does not yet call the connection bad.
    """
    return error.sqlstate is None and error.pgresult is not None


def is_environment(error: psycopg.Error) -> bool:
    """Returns whether the environment is to blame, and not the statement."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError) or is_lost(error)
    return error.sqlstate.startswith(ENVIRONMENT)


OVERTAKEN = (
    "the repository was upgraded while this was called: nothing happened, call it again, in a new "
    "transaction"
)


def is_overtaken(error: psycopg.Error) -> bool:
    """Returns whether an Op met an upgrade that gave its rows a column."""
    file = error.diag.source_file or ""
    return error.sqlstate == ROWS_DIFFER and file.endswith(ROWS_DIFFER_IN)


def text_of(error: psycopg.Error) -> str:
    """Returns PostgreSQL's message, with its hint."""
    primary = error.diag.message_primary or str(error).strip() or type(error).__name__
    return f"{primary}: {error.diag.message_hint}" if error.diag.message_hint else primary


def translate(error: psycopg.Error, role: str | None = None) -> errors.OnceqError:
    """Returns the onceq error for one of psycopg's, in a session that is still alive.

    role: of the session, if it is known.
    """
    text = text_of(error)
    own = OWN.get(error.sqlstate or "")
    if own is not None:
        return own(text)
    if error.sqlstate == FULL:
        return errors.QueueFull(text, retry_after_s=float(error.diag.message_detail or 0))
    if is_overtaken(error):
        return errors.EnvironmentFault(OVERTAKEN, error.sqlstate)
    if is_environment(error):
        return errors.EnvironmentFault(text, error.sqlstate)
    said = f"{text} (SQLSTATE {error.sqlstate})"
    if error.sqlstate == MISSING_RIGHT:
        whom = "this role" if role is None else f"role {role!r}"
        said += f"; grant {whom} what docs/deploy.md#roles lists, or run as the owner"
    return errors.StatementRefused(said, error.sqlstate)


def translate_handlers(error: psycopg.Error) -> errors.OnceqError:
    """Returns the error for one from a handler's own SQL.

    Only onceq's codes and the environment's keep their meaning; any other is StatementRefused.
    """
    if (error.sqlstate or "").startswith("OQ") or is_environment(error):
        return translate(error)
    return errors.StatementRefused(f"{text_of(error)} (SQLSTATE {error.sqlstate})", error.sqlstate)


def lost(error: psycopg.Error, *, commit_was_sent: bool) -> errors.OnceqError:
    """Returns the error for a session that is gone."""
    if commit_was_sent:
        return errors.InDoubt(
            f"the connection was lost before the answer to COMMIT: {text_of(error)}; "
            "whether it took effect is unknown: connect again to learn it"
        )
    return errors.ConnectionLost(
        f"the connection was lost and nothing happened: {text_of(error)}; connect again"
    )


@contextlib.contextmanager
def translated(connection: psycopg.Connection[Any] | None = None) -> Generator[None]:
    """Raises onceq's error in place of psycopg's. connection: whose role the error names."""
    try:
        yield
    except psycopg.Error as error:
        role = None if connection is None or connection.closed else connection.info.user
        raise translate(error, role) from error
