"""The PostgreSQL driver: performs Ops on one connection, and runs Programs.

Used by queue managers, clerks and servers. One thread or task at a time. Outside a transaction
every Op is a transaction of its own. Never retries: a failure is thrown into the Program, as an
error of onceq. When a task is cancelled, its Program is closed and its `finally` blocks run. A
server's session then closes its connection, which rolls back; a clerk's is unsure until it connects
again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from onceq.engine import faultpoints
from onceq.engine.bind.binding import BINDINGS
from onceq.engine.perform import left_open
from onceq.engine.perform.async_asking import AsyncAsking
from onceq.engine.perform.differing import (
    async_act,
    async_await_claim,
    async_doze,
    async_execute_text,
    async_wait_rung,
    async_wait_stop,
)
from onceq.engine.perform.gate import Gate, Way
from onceq.engine.perform.stop import Stop
from onceq.engine.perform.together import Together, misuse
from onceq.engine.sessions import async_opening, session
from onceq.engine.sessions.identity import is_alive
from onceq.engine.wake.waiting import Pause
from onceq.engine.wake.watch import Watch, is_lost
from onceq.errors import ConnectionLost, OnceqError, StatementRefused
from onceq.model import ops

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from onceq.engine.bind.statement import Binding
    from onceq.engine.sessions.silence import Patience
    from onceq.engine.wake.exchange import Wire
    from onceq.model.element import Element, Fate

T = TypeVar("T")

_AS_IT_IS = frozenset({ops.Begin, ops.MayTend, ops.Stopping})
"""The Ops that may follow a commit before the session is made like new: Begin does it itself."""


async def connect(conninfo: str, patience: Patience | None = None) -> psycopg.AsyncConnection[Any]:
    """Returns a session of ours: autocommit, durable commits, no transaction pooler in between.

    patience: while the connection is being made. Raises CannotConnect, PoolerDetected; nothing
    happened.
    """
    connection, _ = await open_session(conninfo, session.settings(), patience)
    return connection


async def open_session(
    conninfo: str, settings: Mapping[str, str], patience: Patience | None = None
) -> tuple[psycopg.AsyncConnection[Any], str]:
    """Returns a session with these settings, and the SQL that must follow each RESET ALL in it.

    That SQL is empty unless the startup options did not arrive. Raises as `connect` does.
    """
    connection, again, _ = await async_opening.open_on(None, conninfo, settings, patience)
    return connection, again


@faultpoints.pointed
class AsyncPostgresDriver(ops.RunsAsync):
    """Performs Ops on a connection.

    calls: for servers, from queue name to the function that calls its handler with (element,
    connection). stop: ends waits, and answers `Stopping`. gate: this process's. wire: to the bells
    of others, and this session's own. clean_text: if handlers run, the SQL that makes the session
    like new after a commit of theirs.
    """

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        repository: str,
        *,
        calls: Mapping[str, Callable[[Element, psycopg.AsyncConnection[Any]], Awaitable[bytes]]]
        | None = None,
        stop: Stop | None = None,
        gate: Gate | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.connection = connection
        self._asking = AsyncAsking(connection, serves=calls is not None)
        self._repository = repository
        self._statements = session.Statements(repository, BINDINGS)
        self._calls = calls or {}
        self._stop = stop or Stop()
        self._way = Way(gate or Gate())
        self.clean_text = b""
        self._is_unclean = False
        self._wire = wire
        self._bell = None if wire is None else wire.bell
        self._to_ring: set[str] = set()
        self._together = Together()
        self._pause = Pause(rung=self._bell is not None)
        self._watch = Watch() if wire is None else wire.watch
        self._warning = session.CommitWarning(connection)
        self._local: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            ops.Claim: self._claim,
            ops.Begin: self._begin,
            ops.BeginWork: self._begin_work,
            ops.MayGoOn: self._may_go_on,
            ops.MayTend: self._may_tend,
            ops.Commit: self._commit,
            ops.Finish: self._finish,
            ops.Rollback: self._rollback,
            ops.AbortElement: self._abort,
            ops.Call: self._call,
            ops.Act: async_act,
            ops.Wait: self._wait,
            ops.Sleep: self._sleep,
            ops.Rouse: self._rouse,
            ops.Post: self._post,
            ops.Posted: self._posted,
            ops.Stopping: self._stopping,
            ops.IsAlive: self._is_alive,
        }

    def is_unfit(self) -> bool:
        """Returns whether no new life may begin on this connection; see `session.is_unfit`."""
        return session.is_unfit(self.connection, is_posting=self._asking.is_posting)

    async def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op and returns its answer."""
        if self._is_unclean and type(op) not in _AS_IT_IS:
            await self._clean(b"")
        local = self._local.get(type(op))
        if local is not None:
            return await local(op)  # type: ignore[no-any-return] # typed by the Op
        return await self._state(op)

    async def _state(self, op: ops.Op[T]) -> T:
        """Performs an Op that is a statement."""
        row, text = self._statements.of(op)
        if not (op.in_doubt and session.commits_at_once(self.connection)):
            return await self._ask(row, text, op, committing=False)  # type: ignore[no-any-return] # typed by the Op
        with self._warning:
            answer = await self._ask(row, text, op, committing=True)
        self._ring()
        self._warning.check()
        return answer  # type: ignore[no-any-return] # typed by the Op

    async def _ask(self, row: Binding, text: bytes, op: ops.Op[Any], *, committing: bool) -> Any:
        try:
            rows = await self._asking.rows(row, text, op)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error
        self._to_ring.update(row.bells(rows))
        return row.decode(rows)

    async def _post(self, op: ops.Post) -> None:
        row, text = self._statements.of(op.send)
        try:
            await self._asking.post(row, text, op.send)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error

    async def _posted(self, _: ops.Posted) -> ops.Sent:
        try:
            with self._warning:
                row, rows = await self._asking.posted()
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error
        self._to_ring.update(row.bells(rows))
        self._ring()
        self._warning.check()
        sent: ops.Sent = row.decode(rows)
        return sent

    async def _claim(self, op: ops.Claim) -> list[Element]:
        may = await async_await_claim(self._way, self._stop)
        found = await self._state(self._way.admitted(op, suspects=may))
        return self._way.claimed(found)

    async def _begin(self, op: ops.Begin) -> bool:
        if not self._way.enter(alone=op.alone):
            return False
        self._together.begin(op, time.monotonic())
        text = session.begin_text(op, self._repository)
        if self._is_unclean and op.isolation != session.ISOLATION:
            await self._clean(b"")  # what comes before BEGIN in one text has its level
        first = await (self._clean(text) if self._is_unclean else self._execute(text))
        self._together.begun(first)
        return True

    async def _clean(self, following: bytes) -> bytes | None:
        """Makes the session like new after a commit, and executes what follows. InDoubt."""
        self._is_unclean = False
        try:
            return await self._execute(self.clean_text + following)
        except OnceqError as error:
            raise session.not_like_new(error, self.connection) from error

    async def _begin_work(self, _: ops.BeginWork) -> None:
        await self._execute(session.BEGIN_WORK)

    async def _may_go_on(self, _: ops.MayGoOn) -> bool:
        if session.is_broken(self.connection):
            raise ConnectionLost("the connection was lost while a handler ran")
        if session.has_failed(self.connection):
            raise StatementRefused("a statement of the handler's had failed", "25P02")
        if self._together.is_doubtful(self.connection):
            question = self._together.question(self.connection)
            if not await self._asked(question):
                raise misuse()
        return not (self._stop.is_set() or self._together.is_over(time.monotonic()))

    async def _asked(self, question: bytes) -> bool:
        """Returns whether the first column of its row is true."""
        try:
            cursor = await self.connection.execute(question)
            row = await cursor.fetchone()
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error
        return row is not None and bool(row[0])

    async def _finish(self, op: ops.Finish) -> ops.Finished:
        op = self._way.chained(op)
        if not op.commit:
            return await self._state(op)
        row, text = self._statements.of(op)
        began = time.monotonic()
        with self._warning:
            try:
                rows = await self._asking.rows_and_commit(row, text, op)
            except psycopg.Error as error:
                committing = self._asking.commits_along
                raise session.failure(error, self.connection, committing=committing) from error
            self._to_ring.update(row.bells(rows))
            await self._commit(ops.Commit())
        self._together.ended(time.monotonic() - began)
        finished: ops.Finished = row.decode(rows)
        return finished

    async def _commit(self, _: ops.Commit) -> None:
        is_alone = self._asking.is_committing
        try:
            with self._warning:
                results = await self._asking.commit(b"commit; " + self.clean_text)
            session.check_commit(results, self.connection)
            self._is_unclean = is_alone and bool(self.clean_text)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error
        finally:
            self._way.leave()
        self._ring()
        self._warning.check()

    async def _rollback(self, _: ops.Rollback) -> bool:
        self._to_ring.clear()
        if session.in_transaction(self.connection) and not session.is_broken(self.connection):
            await self._execute(b"rollback")
        verdict = self._together.verdict(self.connection)
        if verdict:
            self._together.was_committed = await self._asked(verdict)
        return self._together.was_committed

    async def _abort(self, op: ops.AbortElement) -> Fate:
        """Leaves the gate only now: until then the marker still names this element."""
        try:
            return await self._state(op)
        finally:
            self._way.leave()

    def _ring(self) -> None:
        """Rings the sleepers, now that what they wait for has committed."""
        if self._to_ring and self._wire is not None:
            self._wire.ring(self._to_ring)
        self._to_ring.clear()

    def _leave(self) -> None:
        self._way.end()

    async def _execute(self, text: bytes) -> bytes | None:
        """Returns what its last row begins with, as text; None: there is none."""
        try:
            return await async_execute_text(self.connection, text)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=False) from error

    async def _call(self, op: ops.Call) -> bytes:
        try:
            reply = await self._calls[op.queue](op.element, self.connection)
        except (psycopg.Error, OnceqError) as error:
            if left_open.is_held(self.connection):
                await left_open.async_close(self.connection)
            failure = session.handler_failure(error, self.connection)
            if failure is error:  # raised from itself, it would hide its cause
                raise
            raise failure from error
        if left_open.is_held(self.connection):
            await left_open.async_close(self.connection)
            raise left_open.misuse()
        return reply

    async def _wait(self, op: ops.Wait) -> bool:
        delay = self._pause.next(op, time.monotonic())
        if delay is None or self._stop.is_set():
            return False
        if self._bell is None or not self._pause.is_rung(op.key):
            await async_wait_stop(self._stop, delay)
        elif await async_wait_rung(self._bell, delay, self._file()):
            self._pause.again(op.key)
        return not self._stop.is_set()

    def _file(self) -> int | None:
        """The connection's file, which can be read when that is lost; None: it is closed."""
        return None if self.connection.closed else self.connection.fileno()

    async def _sleep(self, op: ops.Sleep) -> ops.Rest:
        delay = self._pause.falling_asleep(first=op.first)
        if self._bell is None:
            await async_wait_stop(self._stop, op.within_s or 0.0 if delay is None else delay)
            return ops.Rest.WATCH if delay is None else ops.Rest.LOOK
        if delay is not None:
            if await async_wait_rung(self._bell, delay):
                self._pause.woken(ops.Rest.LOOK)
            return ops.Rest.LOOK
        if op.within_s is None:
            return ops.Rest.WATCH
        with self._watch.asleep(self._bell, op, time.monotonic()) as sleeper:
            rung = self._bell.is_rung()
            while not (self._stop.is_set() or is_lost(self.connection.pgconn)):
                rest = self._watch.rest_of(sleeper, time.monotonic(), rung=rung)
                if rest is not None:
                    self._pause.woken(rest)
                    return rest
                delay = self._watch.delay_s(sleeper, time.monotonic())
                rung = await async_doze(self._bell, delay, self.connection.fileno())
        return ops.Rest.LOOK

    async def _rouse(self, op: ops.Rouse) -> None:
        self._watch.rouse(op.queues)

    async def _may_tend(self, _: ops.MayTend) -> bool:
        return self._watch.may_tend(time.monotonic())

    async def _stopping(self, _: ops.Stopping) -> bool:
        return self._stop.is_set()

    async def _is_alive(self, op: ops.IsAlive) -> bool | None:
        return is_alive(op.identity)
