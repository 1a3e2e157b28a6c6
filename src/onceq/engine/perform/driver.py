"""The PostgreSQL driver: performs Ops on one connection, and runs Programs.

Used by QueueManager, Clerk and Server. One thread at a time. Outside a transaction every Op is a
transaction of its own. Never retries: a failure is thrown into the Program, as an error of onceq.
"""

from __future__ import annotations

import inspect
import os
import platform
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.generators import execute, fetch_many
from psycopg.pq import ExecStatus, PGconn, Ping

from onceq.engine import faultpoints
from onceq.engine.bind.binding import BINDINGS
from onceq.engine.bind.cursors import UNREADABLE, OwnCursor, leniently
from onceq.engine.bind.decoding import Row
from onceq.engine.bind.statement import Binding
from onceq.engine.perform import left_open
from onceq.engine.perform.gate import Gate, Way
from onceq.engine.perform.one_way import OneWay
from onceq.engine.perform.parts import Parts, Unstarted
from onceq.engine.sessions import forking, session, silence
from onceq.engine.sessions.identity import is_alive
from onceq.engine.sessions.silence import OwnConnection
from onceq.engine.wake.waiting import Pause
from onceq.engine.wake.watch import Watch, is_lost
from onceq.errors import IllegalState, InvalidValue, OnceqError
from onceq.model import ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.engine.sessions.silence import Patience
    from onceq.engine.wake.exchange import Wire
    from onceq.model.element import Element, Fate

T = TypeVar("T")

DatabaseError = psycopg.Error
"""Errors of the database raised through a handler, for code that may not name psycopg."""


def connect(conninfo: str, patience: Patience | None = None) -> psycopg.Connection[Any]:
    """Returns a session of ours: autocommit, synchronous, not through a transaction pooler.

    patience: while the connection is being made. Raises CannotConnect, PoolerDetected; nothing
    happened.
    """
    connection, _ = open_session(conninfo, session.settings(), patience)
    return connection


def open_session(
    conninfo: str, settings: Mapping[str, str], patience: Patience | None = None
) -> tuple[psycopg.Connection[Any], str]:
    """Returns a session with these settings, and the SQL that must follow each RESET ALL in it.

    That SQL is empty unless a pooler dropped the startup options. Raises as `connect` does.
    """
    conninfo = silence.hasty(conninfo, patience)
    connection = _connect(session.offers(conninfo, settings))
    forking.keep(connection)
    try:
        with silence.bounded(connection, patience):
            again = _made_ours(connection, conninfo, settings)
    except psycopg.Error as error:
        connection.close()
        raise session.cannot_connect(error) from error
    except OnceqError:
        connection.close()
        raise
    return connection, again


def _made_ours(
    connection: psycopg.Connection[Any], conninfo: str, settings: Mapping[str, str]
) -> str:
    """Refuses a pooler that mixes sessions; sets what another one dropped, and returns the SQL."""
    backend_pid, host = _who(connection)
    if session.is_pooled(connection, backend_pid):
        with psycopg.connect(conninfo, autocommit=True) as second:
            session.refuse_pooler(backend_pid, (_who(second))[0])
    if host == settings[session.HOST]:
        return ""
    again = session.set_text(settings, connection.info.server_version)
    connection.execute(again.encode())
    return again


def is_rejecting(conninfo: str) -> bool:
    """Returns whether PostgreSQL is there but takes no connections yet, or takes them no longer."""
    return PGconn.ping(conninfo.encode()) == Ping.REJECT


def _connect(offers: list[str]) -> psycopg.Connection[Any]:
    for offer in offers:
        try:
            return OwnConnection.connect(offer, autocommit=True)
        except psycopg.Error as error:
            if offer is offers[-1] or not session.is_refused(error):
                raise session.cannot_connect(error) from error
    raise ValueError("there is always an offer")


def _who(connection: psycopg.Connection[Any]) -> tuple[int, str | None]:
    row = connection.execute(session.WHO).fetchone()
    return (-1, None) if row is None else (int(row[0]), row[1])


@faultpoints.pointed
class PostgresDriver(ops.Runs):
    """Performs Ops on a connection.

    calls: for servers, from queue name to the function that calls its handler with (element,
    connection); Unstarted stands for a connection whose first use starts a part of a batch.
    stop: ends waits, and answers `Stopping`. gate: this process's. wire: to the bells of
    others, and this session's own. commit_text: the SQL of a commit; if handlers run, it also
    resets the session.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        repository: str,
        *,
        calls: Mapping[str, Callable[[Element, psycopg.Connection[Any] | Unstarted], bytes]]
        | None = None,
        stop: threading.Event | None = None,
        gate: Gate | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.connection = connection
        self._cursor = OwnCursor(connection)
        self._repository = repository
        self._statements = session.Statements(repository, BINDINGS)
        self._calls = calls or {}
        self._stop = stop or threading.Event()
        self._way = Way(gate or Gate())
        self.commit_text = b"commit"
        self._wire = wire
        self._bell = None if wire is None else wire.bell
        self._to_ring: set[str] = set()
        self._parts = Parts(repository)
        self._one_way: OneWay | None = None
        self._pause = Pause(rung=self._bell is not None)
        self._watch = Watch() if wire is None else wire.watch
        self._warning = session.CommitWarning(connection)
        self._local: dict[type[Any], Callable[[Any], Any]] = {
            ops.Claim: self._claim,
            ops.Begin: self._begin,
            ops.BeginWork: self._begin_work,
            ops.Start: self._start,
            ops.Keep: self._keep,
            ops.Undo: self._undo,
            ops.Commit: self._commit,
            ops.Finish: self._finish,
            ops.Rollback: self._rollback,
            ops.AbortElement: self._abort,
            ops.Call: self._call,
            ops.Act: _act,
            ops.Wait: self._wait,
            ops.Sleep: self._sleep,
            ops.Rouse: lambda op: self._watch.rouse(op.queues),
            ops.Post: self._post,
            ops.Posted: self._posted,
            ops.Stopping: lambda _: self._stop.is_set(),
            ops.IsAlive: lambda op: is_alive(op.identity),
        }

    def is_unfit(self) -> bool:
        """Returns whether no new life may begin on this connection; see `session.is_unfit`."""
        return session.is_unfit(self.connection, is_posting=self._one_way is not None)

    def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op and returns its answer."""
        local = self._local.get(type(op))
        if local is not None:
            return local(op)  # type: ignore[no-any-return] # typed by the Op
        return self._state(op)

    def _state(self, op: ops.Op[T]) -> T:
        """Performs an Op that is a statement."""
        row, text = self._statements.of(op)
        if not (op.in_doubt and session.commits_at_once(self.connection)):
            return self._ask(row, text, op, committing=False)  # type: ignore[no-any-return] # typed by the Op
        with self._warning:
            answer = self._ask(row, text, op, committing=True)
        self._ring()
        self._warning.check()
        return answer  # type: ignore[no-any-return] # typed by the Op

    def _ask(self, row: Binding, text: bytes, op: ops.Op[Any], *, committing: bool) -> Any:
        try:
            self._cursor.execute(text, row.arguments(op), prepare=True)
            rows = self._fetched()
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error
        self._to_ring.update(row.bells(rows))
        return row.decode(rows)

    def _fetched(self) -> list[Row]:
        try:
            return self._cursor.fetchall()
        except UNREADABLE:  # it was claimed or dequeued: it must not be lost
            return leniently(self._cursor)

    def _post(self, op: ops.Post) -> None:
        row, text = self._statements.of(op.send)
        try:
            with self.connection.lock:
                one_way = OneWay(self.connection, row, text, op.send)
                self.connection.wait(one_way.flushed())
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error
        self._one_way = one_way

    def _posted(self, _: ops.Posted) -> ops.Sent:
        one_way, self._one_way = self._one_way, None
        if one_way is None:
            raise IllegalState("no one-way send is under way")
        try:
            with self._warning, self.connection.lock:
                results = self.connection.wait(fetch_many(self.connection.pgconn))
            rows = one_way.rows(results)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error
        self._to_ring.update(one_way.row.bells(rows))
        self._ring()
        self._warning.check()
        return one_way.row.decode(rows)  # type: ignore[no-any-return] # typed by the Op

    def _claim(self, op: ops.Claim) -> list[Element]:
        may = self._way.await_claim(self._stop)
        return self._way.claimed(self._state(self._way.admitted(op, suspects=may)))

    def _begin(self, op: ops.Begin) -> bool:
        if not self._way.enter(alone=op.alone):
            return False
        self._parts.begin()
        self._execute(session.begin_text(op, self._repository), committing=False)
        return True

    def _begin_work(self, _: ops.BeginWork) -> None:
        self._execute(session.BEGIN_WORK, committing=False)

    def _start(self, op: ops.Start) -> None:
        self._parts.next(op)
        if self._parts.is_named:
            self._start_part()

    def _start_part(self) -> psycopg.Connection[Any]:
        """Starts the part that was put off; returns the connection."""
        if self._parts.is_due:
            try:
                self._execute(self._parts.start_text(), committing=False)
            except OnceqError as error:
                self._parts.failure = error
                raise
        return self.connection

    def _keep(self, _: ops.Keep) -> bool:
        return self._parts.keep(self.connection)

    def _undo(self, _: ops.Undo) -> None:
        text = self._parts.undo_text(self.connection)
        if text:
            self._execute(text, committing=False)

    def _finish(self, op: ops.Finish) -> ops.Finished:
        finished = self._state(self._way.chained(op))
        if op.commit:
            self._commit(ops.Commit())
        return finished

    def _commit(self, _: ops.Commit) -> None:
        try:
            with self._warning, self.connection.lock:
                self.connection.pgconn.send_query(self.commit_text)
                results = self.connection.wait(execute(self.connection.pgconn))
            session.check_commit(results, self.connection)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=True) from error
        finally:
            self._way.leave()
        self._ring()
        self._warning.check()

    def _rollback(self, _: ops.Rollback) -> None:
        self._to_ring.clear()
        if session.in_transaction(self.connection) and not session.is_broken(self.connection):
            self._execute(b"rollback", committing=False)

    def _abort(self, op: ops.AbortElement) -> Fate:
        """Leaves the gate only now: until then the marker still names this element."""
        try:
            return self._state(op)
        finally:
            self._way.leave()

    def _ring(self) -> None:
        """Rings the sleepers, now that what they wait for has committed."""
        if self._to_ring and self._wire is not None:
            self._wire.ring(self._to_ring)
        self._to_ring.clear()

    def _leave(self) -> None:
        self._way.end()

    def _execute(self, text: bytes, *, committing: bool) -> None:
        """Executes SQL that has no parameters and whose rows nobody needs, directly by libpq.

        A cursor of psycopg costs more than the statement. Only for short statements: it blocks,
        unless there is a deadline.
        """
        try:
            if silence.is_bounded(self.connection):
                self.connection.execute(text)
                return
            with self.connection.lock:
                result = self.connection.pgconn.exec_(text)
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            raise session.failure(error, self.connection, committing=committing) from error

    def _call(self, op: ops.Call) -> bytes:
        given = Unstarted(self._start_part) if self._parts.is_due else self.connection
        try:
            reply = self._calls[op.queue](op.element, given)
        except (psycopg.Error, OnceqError) as error:
            if left_open.is_held(self.connection):
                left_open.close(self.connection)
            failure = self._parts.failure or session.handler_failure(error, self.connection)
            if failure is error:  # raised from itself, it would hide its cause
                raise
            raise failure from error
        if self._parts.failure is not None:  # whatever the handler made of it
            raise self._parts.failure
        if left_open.is_held(self.connection):
            left_open.close(self.connection)
            raise left_open.misuse()
        return reply

    def _wait(self, op: ops.Wait) -> bool:
        delay = self._pause.next(op, time.monotonic())
        if delay is None or self._stop.is_set():
            return False
        if self._bell is None or not self._pause.is_rung(op.key):
            return not self._stop.wait(delay)
        if self._bell.wait(delay, self._file()):
            self._pause.again(op.key)
        return not self._stop.is_set()

    def _file(self) -> int | None:
        """The connection's file, which can be read when that is lost; None: it is closed."""
        return None if self.connection.closed else self.connection.fileno()

    def _sleep(self, op: ops.Sleep) -> ops.Rest:
        delay = self._pause.falling_asleep(first=op.first)
        if self._bell is None:
            self._stop.wait(op.within_s or 0.0 if delay is None else delay)
            return ops.Rest.WATCH if delay is None else ops.Rest.LOOK
        if delay is not None:
            if self._bell.wait(delay):
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
                rung = self._bell.doze(delay, self.connection.fileno())
        return ops.Rest.LOOK


def _act(op: ops.Act) -> Any:
    answer = op.act()
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidValue("this is awaitable, and nobody awaits it here: use an AsyncClerk")
    return answer


def this_process() -> tuple[str, int]:
    """Returns (host name, pid), as servers show them; nothing depends on them being unique."""
    return platform.node(), os.getpid()
