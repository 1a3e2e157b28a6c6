"""The PostgreSQL driver: performs Ops on one connection, and runs Programs.

Used by QueueManager, Clerk and Server. One thread at a time. Outside a transaction every Op is
one of its own. Never retries: what failed is thrown into the Program, as an error of onceq.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceq.engine import session
from onceq.engine.binding import BINDINGS, Binding
from onceq.engine.gate import Gate
from onceq.engine.waiting import Pause
from onceq.errors import OnceqError
from onceq.model import ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.model.element import Element, Fate

T = TypeVar("T")

DatabaseError = psycopg.Error
"""What the database raises through a handler, for those who may not name psycopg."""


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """Returns a session of ours: autocommit, synchronous, not through a transaction pooler.

    Raises CannotConnect, PoolerDetected; nothing happened.
    """
    try:
        connection = psycopg.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise session.cannot_connect(error) from error
    try:
        backend_pid = _backend_pid(connection)
        if session.is_pooled(connection, backend_pid):
            with psycopg.connect(conninfo, autocommit=True) as second:
                session.refuse_pooler(backend_pid, _backend_pid(second))
        connection.execute(session.SETTINGS.encode())
    except psycopg.Error as error:
        connection.close()
        raise session.cannot_connect(error) from error
    except OnceqError:
        connection.close()
        raise
    return connection


def _backend_pid(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_backend_pid()").fetchone()
    return -1 if row is None else int(row[0])


class PostgresDriver:
    """Performs Ops on a connection.

    calls: for servers, queue name to what calls its handler with (element, connection).
    stop: ends waits and is what `Stopping` answers. gate: of this process. limit_s: the longest
    execution; after each commit the session is made like new.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        repository: str,
        *,
        calls: Mapping[str, Callable[[Element, psycopg.Connection[Any]], bytes]] | None = None,
        stop: threading.Event | None = None,
        gate: Gate | None = None,
        limit_s: int | None = None,
    ) -> None:
        self.connection = connection
        self._repository = repository
        self._statements = session.Statements(repository, BINDINGS)
        self._calls = calls or {}
        self._stop = stop or threading.Event()
        self._gate = gate or Gate()
        self._commit_text = session.commit_text(limit_s, connection.info.server_version)
        self._entered = False
        self._pause = Pause()
        self._verdict = session.Verdict(connection)
        self._local: dict[type[Any], Callable[[Any], Any]] = {
            ops.Begin: self._begin,
            ops.Commit: self._commit,
            ops.Finish: self._finish,
            ops.Rollback: self._rollback,
            ops.AbortElement: self._abort,
            ops.Call: self._call,
            ops.Wait: self._wait,
            ops.Stopping: lambda _: self._stop.is_set(),
        }

    def run(self, program: ops.Program[T]) -> T:
        """Runs a Program to its end; what an Op raises is thrown into it."""
        try:
            op = next(program)
            while True:
                try:
                    answer = self.perform(op)
                except OnceqError as error:
                    op = program.throw(error)
                else:
                    op = program.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # the Program's own type
        finally:
            program.close()
            self._leave()

    def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op and returns its answer."""
        local = self._local.get(type(op))
        if local is not None:
            return local(op)  # type: ignore[no-any-return] # typed by the Op
        return self._state(op)

    def _state(self, op: ops.Op[T]) -> T:
        """Performs an Op that is a statement."""
        row, text = self._statements.of(op)
        if not (row.writes and session.commits_at_once(self.connection)):
            return self._ask(row, text, op, committing=False)  # type: ignore[no-any-return] # typed by the Op
        with self._verdict:
            answer = self._ask(row, text, op, committing=True)
        self._verdict.check()
        return answer  # type: ignore[no-any-return] # typed by the Op

    def _ask(self, row: Binding, text: bytes, op: ops.Op[Any], *, committing: bool) -> Any:
        try:
            with self.connection.cursor(binary=True, row_factory=tuple_row) as cursor:
                cursor.execute(text, row.arguments(op), prepare=True)
                return row.decode(cursor.fetchall())
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error

    def _begin(self, op: ops.Begin) -> None:
        self._gate.enter(alone=op.alone)
        self._entered = True
        self._execute(session.begin_text(op, self._repository), committing=False)

    def _finish(self, op: ops.Finish) -> list[Element]:
        following = self._state(op)
        if op.commit:
            self._commit(ops.Commit())
        return following

    def _commit(self, _: ops.Commit) -> None:
        try:
            with self._verdict:
                self._execute(self._commit_text, committing=True)
        finally:
            self._leave()
        self._verdict.check()

    def _rollback(self, _: ops.Rollback) -> None:
        if session.in_transaction(self.connection) and not session.is_broken(self.connection):
            self._execute(b"rollback", committing=False)

    def _abort(self, op: ops.AbortElement) -> Fate:
        """Leaves the gate only now: until then the marker still names this element."""
        try:
            return self._state(op)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._entered:
            self._entered = False
            self._gate.leave()

    def _execute(self, text: bytes, *, committing: bool) -> None:
        try:
            self.connection.execute(text)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error

    def _call(self, op: ops.Call) -> bytes:
        try:
            return self._calls[op.queue](op.element, self.connection)
        except (psycopg.Error, OnceqError) as error:
            raise session.handler_failure(error, self.connection) from error

    def _wait(self, op: ops.Wait) -> bool:
        delay = self._pause.next(op, time.monotonic())
        return not (delay is None or self._stop.wait(delay))


def this_process() -> tuple[str, int]:
    """Returns (host name, pid), as servers show them; nothing depends on their being unique."""
    return platform.node(), os.getpid()
