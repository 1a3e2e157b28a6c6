"""The parts of a batch's transaction: one for each request, in a savepoint of its own.

Used by both drivers: this is what they share, without the round trips. A part may be put off
until its handler first uses the connection: most of the cost of a part is its round trip. But once
the marker names a request, the next is not put off: a death would be charged to the previous one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.engine.sessions import session
from onceq.errors import (
    ClaimLost,
    ConnectionLost,
    DeadlineExceeded,
    HandlerMisuse,
    OnceqError,
    StatementRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from onceq.model import ops

_UNDO = b"rollback to savepoint onceq_part; release savepoint onceq_part"
LOCK_WAIT_MS = 5
"""How long a part waits for a lock, once its batch holds locks: at most this, at least half.

That is short compared with a batch. The length varies, so that of two batches that wait for each
other, one gives up first. A longer wait does no work, and past a second there is a deadlock.
"""
_LIMIT = (
    f"select set_config('lock_timeout', round({LOCK_WAIT_MS} * (0.5 + random() / 2)) || 'ms', true)"
    " where current_setting('lock_timeout')::interval"
    f" not between '1 ms' and '{LOCK_WAIT_MS} ms'; "
)
_OF_THE_FENCE = (ClaimLost, DeadlineExceeded)


class Parts:
    """The parts on one connection. failure: why the present part could not be started."""

    __slots__ = ("_due", "_holds", "_is_started", "_repository", "_stands", "failure", "is_named")

    def __init__(self, repository: str) -> None:
        self._repository = repository
        self.begin()

    def begin(self) -> None:
        """Notes that a transaction begins, in which no request is named yet."""
        self.is_named = False
        self._stands = self._holds = False
        self.next(None)

    def next(self, op: ops.Start | None) -> None:
        """Notes that this is the next part; None: there are no more."""
        self._due = op
        self._is_started = False
        self.failure: OnceqError | None = None

    @property
    def is_due(self) -> bool:
        """Whether the present part is put off."""
        return self._due is not None

    def start_text(self) -> bytes:
        """Returns the SQL that starts the part that is due, in one round trip; it is then started.

        It also keeps what the previous part did.
        """
        op, self._due = self._due, None
        if op is None:
            return b""
        former = "release savepoint onceq_part; " if self._stands else ""
        former += _LIMIT if self._holds else ""
        self.is_named = self._is_started = self._stands = True
        return (
            f"{former}savepoint onceq_part;"
            f" select setval('{self._repository}.started_{op.slot}', {op.seq}),"
            f" {self._repository}.fence({op.seq}, {op.incarnation})"
        ).encode()

    def keep(self, connection: psycopg.BaseConnection[Any]) -> bool:
        """Ends the present part successfully; returns whether it had been started."""
        self._due = None
        if not session.in_transaction(connection):
            raise HandlerMisuse("the handler ended the transaction that it was given")
        if session.has_failed(connection):
            raise StatementRefused("a statement of the handler's had failed", "25P02")
        started, self._is_started = self._is_started, False
        self._holds = self._holds or started
        return started

    def undo_text(self, connection: psycopg.BaseConnection[Any]) -> bytes:
        """Returns the SQL that undoes the present part; empty when there is nothing to undo.

        Raises why the part could not be started, unless the fence refused: that comes after the
        savepoint. Without one of its own, the current savepoint may be the previous part's, which
        must be kept.
        """
        self._due = None
        if session.is_broken(connection):
            raise ConnectionLost("the connection was lost in the middle of a batch")
        if not session.in_transaction(connection):
            raise HandlerMisuse("the handler ended the transaction that it was given")
        if self.failure is not None and not isinstance(self.failure, _OF_THE_FENCE):
            raise self.failure
        if not self._is_started:
            return b""
        self._is_started = self._stands = False
        return _UNDO


class Unstarted:
    """A handler's connection while its part is put off. start: returns the real connection."""

    __slots__ = ("start",)

    def __init__(self, start: Callable[[], psycopg.Connection[Any]]) -> None:
        self.start = start
