"""`PostgresDriver`, for asyncio: the same bindings, faults and statements, awaited.

On cancellation the Program is closed and its `finally` blocks run; a server's session then closes
its connection, which rolls back, and a clerk's is unsure until it connects again.
"""

from __future__ import annotations

import asyncio
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
    from collections.abc import Awaitable, Callable, Mapping

    from onceq.model.element import Element, Fate

T = TypeVar("T")

GATE_POLL_S = 0.005
STOP_POLL_S = 0.05


async def connect(conninfo: str) -> psycopg.AsyncConnection[Any]:
    """Returns a session of ours; see `onceq.engine.driver.connect`."""
    try:
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise session.cannot_connect(error) from error
    try:
        backend_pid = await _backend_pid(connection)
        if session.is_pooled(connection, backend_pid):
            async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as second:
                session.refuse_pooler(backend_pid, await _backend_pid(second))
        await connection.execute(session.SETTINGS.encode())
    except psycopg.Error as error:
        await connection.close()
        raise session.cannot_connect(error) from error
    except OnceqError:
        await connection.close()
        raise
    return connection


async def _backend_pid(connection: psycopg.AsyncConnection[Any]) -> int:
    row = await (await connection.execute("select pg_backend_pid()")).fetchone()
    return -1 if row is None else int(row[0])


class AsyncPostgresDriver:
    """Performs Ops on an async connection; see `PostgresDriver`. calls: to coroutines."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        repository: str,
        *,
        calls: Mapping[str, Callable[[Element, psycopg.AsyncConnection[Any]], Awaitable[bytes]]]
        | None = None,
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
        self._local: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            ops.Begin: self._begin,
            ops.Commit: self._commit,
            ops.Finish: self._finish,
            ops.Rollback: self._rollback,
            ops.AbortElement: self._abort,
            ops.Call: self._call,
            ops.Wait: self._wait,
            ops.Stopping: self._stopping,
        }

    async def run(self, program: ops.Program[T]) -> T:
        """Runs a Program to its end; what an Op raises is thrown into it."""
        try:
            op = next(program)
            while True:
                try:
                    answer = await self.perform(op)
                except OnceqError as error:
                    op = program.throw(error)
                else:
                    op = program.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # the Program's own type
        finally:
            program.close()
            self._leave()

    async def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op and returns its answer."""
        local = self._local.get(type(op))
        if local is not None:
            return await local(op)  # type: ignore[no-any-return] # typed by the Op
        return await self._state(op)

    async def _state(self, op: ops.Op[T]) -> T:
        """Performs an Op that is a statement."""
        row, text = self._statements.of(op)
        if not (row.writes and session.commits_at_once(self.connection)):
            return await self._ask(row, text, op, committing=False)  # type: ignore[no-any-return] # typed by the Op
        with self._verdict:
            answer = await self._ask(row, text, op, committing=True)
        self._verdict.check()
        return answer  # type: ignore[no-any-return] # typed by the Op

    async def _ask(self, row: Binding, text: bytes, op: ops.Op[Any], *, committing: bool) -> Any:
        try:
            async with self.connection.cursor(binary=True, row_factory=tuple_row) as cursor:
                await cursor.execute(text, row.arguments(op), prepare=True)
                return row.decode(await cursor.fetchall())
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error

    async def _begin(self, op: ops.Begin) -> None:
        self._gate.announce(alone=op.alone)
        try:
            while not self._gate.try_enter(alone=op.alone):  # noqa: ASYNC110 # threads share it
                await asyncio.sleep(GATE_POLL_S)
        finally:
            self._gate.withdraw(alone=op.alone)
        self._entered = True
        await self._execute(session.begin_text(op, self._repository), committing=False)

    async def _finish(self, op: ops.Finish) -> list[Element]:
        following = await self._state(op)
        if op.commit:
            await self._commit(ops.Commit())
        return following

    async def _commit(self, _: ops.Commit) -> None:
        try:
            with self._verdict:
                await self._execute(self._commit_text, committing=True)
        finally:
            self._leave()
        self._verdict.check()

    async def _rollback(self, _: ops.Rollback) -> None:
        if session.in_transaction(self.connection) and not session.is_broken(self.connection):
            await self._execute(b"rollback", committing=False)

    async def _abort(self, op: ops.AbortElement) -> Fate:
        """Leaves the gate only now: until then the marker still names this element."""
        try:
            return await self._state(op)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._entered:
            self._entered = False
            self._gate.leave()

    async def _execute(self, text: bytes, *, committing: bool) -> None:
        try:
            await self.connection.execute(text)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error

    async def _call(self, op: ops.Call) -> bytes:
        try:
            return await self._calls[op.queue](op.element, self.connection)
        except (psycopg.Error, OnceqError) as error:
            raise session.handler_failure(error, self.connection) from error

    async def _wait(self, op: ops.Wait) -> bool:
        delay = self._pause.next(op, time.monotonic())
        if delay is None or self._stop.is_set():
            return False
        deadline = time.monotonic() + delay
        while (left := deadline - time.monotonic()) > 0 and not self._stop.is_set():  # noqa: ASYNC110 # set by a signal handler
            await asyncio.sleep(min(left, STOP_POLL_S))
        return not self._stop.is_set()

    async def _stopping(self, _: ops.Stopping) -> bool:
        return self._stop.is_set()
