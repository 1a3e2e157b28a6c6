"""A batch on a connection: one transaction for many handlers, with nothing between them.

Used by both drivers: this is what they share, without the round trips. After each handler it must
be known whether the transaction is still the one that was begun: a handler may have sent COMMIT as
SQL text. PostgreSQL reports each change of some settings by itself. The batch changes one of them
(`session.MARK`) for its transaction alone, so that it changes back when that ends, and no question
is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.engine.sessions import session
from onceq.errors import HandlerMisuse

if TYPE_CHECKING:
    import psycopg

    from onceq.model import ops

LASTS_S = 0.005
"""After so long a batch calls no further handler: others wait for its replies and its locks."""
SHARE = 4
"""It may last so many times longer than the last finish and its commit took, if that is more.

Else, far from the database or with a slow disk, little would share a commit.
"""
LASTS_AT_MOST_S = 0.1


class Together:
    """The batch on one connection, if there is one. was_committed: by a handler of it."""

    __slots__ = ("_token", "_took_s", "_until", "_xid", "was_committed")

    def __init__(self) -> None:
        self._took_s = 0.0
        self._token: str | None = None
        self._xid: str | None = None
        self._until = 0.0
        self.was_committed = False

    def begin(self, op: ops.Begin, now: float) -> None:
        """Notes what begins now, at this time in seconds: a batch, or one request."""
        self._token = op.token if op.seq < 0 else None
        self._xid = None
        self._until = now + max(LASTS_S, min(SHARE * self._took_s, LASTS_AT_MOST_S))
        self.was_committed = False

    def begun(self, first: bytes | None) -> None:
        """Notes what Begin's SQL returned first: of a batch, the number of its transaction."""
        if self._token is not None and first is not None:
            self._xid = first.decode()

    def ended(self, took_s: float) -> None:
        """Notes how long a finish and its commit took."""
        self._took_s = took_s

    def is_over(self, now: float) -> bool:
        """Returns whether its time is over."""
        return now >= self._until

    def is_doubtful(self, connection: psycopg.BaseConnection[Any]) -> bool:
        """Returns whether a batch was begun, and its transaction may be another by now."""
        if self._token is None or session.is_broken(connection):
            return False
        mark = connection.pgconn.parameter_status(session.MARK.encode())
        return mark != b"on" or not session.in_transaction(connection)

    def question(self, connection: psycopg.BaseConnection[Any]) -> bytes:
        """Returns the SQL that asks whether it is, and marks it again: a handler may unmark it.

        HandlerMisuse: none is open.
        """
        if not session.in_transaction(connection):
            raise misuse()
        return (
            f"select current_setting('onceq_setting.token', true) = '{self._token}',"
            f" set_config('{session.MARK}', 'on', true)"
        ).encode()

    def verdict(self, connection: psycopg.BaseConnection[Any]) -> bytes:
        """Returns the SQL that asks, after a rollback, whether it had been committed.

        Empty if there is nothing to ask: it was no batch, did not begin, or was asked before.
        """
        xid, self._token, self._xid = self._xid, None, None
        if xid is None or session.is_broken(connection):
            return b""
        return f"select pg_xact_status('{xid}') is distinct from 'aborted'".encode()


def misuse() -> HandlerMisuse:
    """Returns the error for a handler that has ended the transaction."""
    return HandlerMisuse("the handler ended the transaction that it was given")
