"""The embedded PostgreSQL of a run, and the runner's own session with it.

Used by runners only. When the server has died under it, whoever notices first starts it again.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, Self

import psycopg

import onceq

if TYPE_CHECKING:
    from collections.abc import Sequence

PAUSE_SHARE = 30


class RunDatabase:
    """Opens the database of a run, with the run's repository and tables in it.

    counted: a query for the number that says how far the work is.
    """

    def __init__(
        self,
        url: str,
        repository: str,
        queue: onceq.Queue[Any, Any],
        *,
        tables: str,
        counted: str,
    ) -> None:
        self._qm = onceq.open(url, repository=repository)
        self._connection: psycopg.Connection[Any] | None = None
        self._counted = counted
        self._count: int | None = None
        self._next_count = 0.0
        self._qm.declare(queue)
        self._open().execute(tables.encode())

    def booked(self) -> int | None:
        """How far the work is now; None if the database was down, and is back.

        Counts anew only after a pause in proportion to what the count cost.
        """
        began = time.monotonic()
        if began < self._next_count:
            return self._count
        try:
            row = self._open().execute(self._counted.encode()).fetchone()
        except psycopg.OperationalError:
            self._forget()
            self._qm.located.ensure_running()
            return None
        now = time.monotonic()
        self._next_count = now + PAUSE_SHARE * (now - began)
        self._count = None if row is None else int(row[0])
        return self._count

    def kill_postmaster(self) -> int:
        """Kills PostgreSQL's first process with SIGKILL; its pid. Raises EmbeddedError."""
        assert self._qm.located.embedded is not None
        pid = self._qm.located.embedded.postmaster_pid()
        os.kill(pid, signal.SIGKILL)
        self._forget()  # a session that has not yet noticed would count once more
        return pid

    def rows(self, query: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Returns what a query of the runner's finds."""
        return self._open().execute(query.encode(), arguments).fetchall()

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            conninfo = self._qm.located.conninfo
            self._connection = psycopg.connect(conninfo, autocommit=True)
        return self._connection

    def _forget(self) -> None:
        self._next_count = 0.0
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Ends the session; the last user's close stops PostgreSQL."""
        self._forget()
        self._qm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
