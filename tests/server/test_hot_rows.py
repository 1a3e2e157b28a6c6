"""Batches that change the same rows do not wait for each other with locks in hand (S3, G12)."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.perform import together
from onceq.engine.sessions.session import LOCK_WAIT_MS
from onceq.errors import EnvironmentFault
from onceq.model import ops
from onceq.model.element import Element, Fate, Lane, Role
from onceq.server.program import Served, ServerSession, serve
from tests.parts import LIMIT_S, plain, rows, scalar, wait_until
from tests.server.test_turns import info

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.queue import Handled, IsolationLevel

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
ACCOUNTS = 5
PATIENT_S = 20
"""So late PostgreSQL looks for a deadlock: on a slow machine, too, it finds none by chance."""
N = 300


class Wrapped(Exception):
    """What a library makes of the database's errors."""


class Accounts:
    """Rows that everybody changes; the handlers keep what the database refused them."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self.refused: list[str | None] = []
        self.crossing = threading.Barrier(2)
        self.table = f"{repository}.account"
        with plain(conninfo) as connection:
            connection.execute(
                f"create table {self.table} as select n, 0 as booked"
                f" from generate_series(0, {ACCOUNTS - 1}) n".encode()
            )

    def book(self, body: bytes, context: onceq.Context) -> bytes:
        """Changes the row that the body names."""
        update = f"update {self.table} set booked = booked + 1 where n = %s"
        try:
            context.connection.execute(update.encode(), (int(body) % ACCOUNTS,))
        except psycopg.Error as error:
            self.refused.append(error.sqlstate)
            raise
        return b""

    def wrapping(self, body: bytes, context: onceq.Context) -> bytes:
        """As `book`, with errors of its own."""
        try:
            return self.book(body, context)
        except psycopg.Error as error:
            raise Wrapped from error

    def swallowing(self, body: bytes, context: onceq.Context) -> bytes:
        """As `book`, and says that all is well whatever happens."""
        try:
            return self.book(body, context)
        except psycopg.Error:
            return b""


@pytest.fixture
def accounts(conninfo: str, repository: str) -> Accounts:
    return Accounts(conninfo, repository)


def serve_all(
    qm: onceq.QueueManager, conninfo: str, bodies: list[bytes], *handled: Handled[Any, Any]
) -> None:
    """Serves what is sent with a server for each of the handlers; all is done at the first try."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, bodies)
    servers = [onceq.Server([one]) for one in handled]
    url = make_conninfo(conninfo, options=f"-c deadlock_timeout={PATIENT_S}s")
    threads = [
        threading.Thread(target=one.run, args=(url,), kwargs={"repository": qm.repository})
        for one in servers
    ]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: qm.show("raw").depth == 0)
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.stop()
            thread.join(LIMIT_S)
    ended = rows(
        conninfo,
        f"select outcome::text, aborts, count(*) from {qm.repository}.history group by 1, 2",
    )
    assert ended == [("done", 0, len(bodies))]
    assert rows(conninfo, f"select code, error from {qm.repository}.attempt") == []
    booked = scalar(conninfo, f"select sum(booked) from {qm.repository}.account")
    assert booked == len(bodies)


def test_two_batch_servers_on_hot_rows_never_deadlock(
    qm: onceq.QueueManager, conninfo: str, accounts: Accounts
) -> None:
    handled = [RAW.handled_by(accounts.book, batch=50) for _ in range(2)]
    serve_all(qm, conninfo, [str(n * 7).encode() for n in range(N)], *handled)
    assert "40P01" not in accounts.refused


@pytest.mark.parametrize("how", ["book", "wrapping", "swallowing"])
def test_who_waits_for_the_other_lets_go_of_its_locks(
    qm: onceq.QueueManager,
    conninfo: str,
    accounts: Accounts,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Each has changed one row and wants the other's, whatever its handler makes of the refusal."""
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)
    book: Callable[[bytes, onceq.Context], bytes] = getattr(accounts, how)

    def crossing(body: bytes, context: onceq.Context) -> bytes:
        answer = book(body, context)
        if body in {b"0", b"11"} and not accounts.refused:
            accounts.crossing.wait(LIMIT_S)
        return answer

    handled = [RAW.handled_by(crossing, batch=2) for _ in range(2)]
    serve_all(qm, conninfo, [b"0", b"1", b"11", b"10"], *handled)
    assert set(accounts.refused) == {"55P03"}


def element(seq: int) -> Element:
    return Element(
        seq=seq,
        eid=uuid.UUID(int=seq),
        rid=str(seq),
        body=b"",
        role=Role.DATAGRAM,
        queue_id=1,
        lane=Lane.USUAL,
        priority=4,
        aborts=0,
        enqueued_at=datetime(2026, 1, 1, tzinfo=UTC),
        owes_reply=False,
    )


ANSWERS: dict[type[ops.Op[Any]], Any] = {
    ops.OpenIncarnation: ops.Incarnation(slot=1, incarnation=7, backend_pid=1),
    ops.ListQueues: [info("raw", 1)],
    ops.AbortElement: Fate.RETURNED,
    ops.Call: b"",
    ops.Rollback: False,
    ops.Sweep: ops.Observation(value=0, holders=[]),
    ops.TakeOver: 0,
    ops.MayTend: False,
}


class Database:
    """Answers a server's Program: it always has work; it refuses so many commits of a batch.

    failed: the element that had failed before, by its seq.
    """

    def __init__(self, refusals: int = 0, failed: int = 0) -> None:
        self.wanted: list[int] = []
        self.begun: list[int] = []
        self._refusals = refusals
        self._failed = failed
        self._seq = 0

    def answer(self, op: ops.Op[Any]) -> Any:
        if isinstance(op, ops.Claim):
            return self._claimed(op.n)
        if isinstance(op, ops.Begin):
            self.begun.append(op.seq)
        if isinstance(op, ops.StillClaimed):
            return op.seqs
        if isinstance(op, ops.Finish):
            return self._finished(op)
        return ANSWERS.get(type(op), not isinstance(op, ops.Stopping))

    def _finished(self, op: ops.Finish) -> ops.Finished:
        if len(op.seqs) > 1 and self._refusals:
            self._refusals -= 1
            raise EnvironmentFault("could not serialize access", "40001")
        return ops.Finished(following=self._claimed(op.n) if op.n else [])

    def _claimed(self, n: int) -> list[Element]:
        self.wanted.append(n)
        self._seq += n
        claimed = [element(seq) for seq in range(self._seq - n + 1, self._seq + 1)]
        return [replace(one, code="Bad") if one.seq == self._failed else one for one in claimed]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_a_batch_that_came_to_nothing_is_halved_and_grows_back(isolation: IsolationLevel) -> None:
    """Each claim that was executed allows for twice as many; the next conflict, for half."""
    database = Database(refusals=2)
    serve_by(database, isolation, batch=10, claims=7)
    assert database.wanted == [10, 5, 2, 4, 8, 10, 10]


def test_what_failed_before_runs_alone_however_many_are_claimed_with_it() -> None:
    database = Database(failed=4)
    serve_by(database, "read committed", batch=8, claims=2)
    assert database.begun[:3] == [-1, 4, -5]


def serve_by(database: Database, isolation: IsolationLevel, *, batch: int, claims: int) -> None:
    """Runs a server's Program until it has claimed so many times."""
    served = (Served("raw", isolation, batch),)
    program = serve(ServerSession(process=uuid.UUID(int=1), host="here", pid=1, served=served))
    step: Callable[[], ops.Op[Any]] = functools.partial(next, program)
    while len(database.wanted) < claims:
        op = step()
        try:
            step = functools.partial(program.send, database.answer(op))
        except EnvironmentFault as error:
            step = functools.partial(program.throw, error)
    program.close()


@pytest.mark.parametrize("lasts_s", [0.0, LIMIT_S])
def test_a_finish_that_waits_for_a_lock_is_waited_for_and_its_batch_is_not_run_again(
    qm: onceq.QueueManager,
    conninfo: str,
    accounts: Accounts,
    monkeypatch: pytest.MonkeyPatch,
    lasts_s: float,
) -> None:
    """The short patience is for the handlers; the finish would throw all away, or the only one."""
    monkeypatch.setattr(together, "LASTS_S", lasts_s)
    monkeypatch.setattr(together, "SHARE", 0)
    barring: list[threading.Thread] = []
    called: list[bytes] = []
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"

    def bar(eid: uuid.UUID) -> None:
        """Holds the row of a request until the finish waits for it."""
        with psycopg.connect(conninfo) as connection:
            element = f"select from {qm.repository}.element where eid = %s for update"
            connection.execute(element.encode(), [eid])
            held.set()
            wait_until(lambda: scalar(conninfo, waiting) > 0)
            time.sleep(4 * LOCK_WAIT_MS / 1000)  # its patience, were it a handler's, would be over

    def handle(body: bytes, context: onceq.Context) -> bytes:
        called.append(body)
        if body != b"0":
            return accounts.book(body, context)
        thread = threading.Thread(target=bar, args=[context.eid])
        barring.append(thread)
        thread.start()
        assert held.wait(LIMIT_S)
        return b""

    held = threading.Event()
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"0", b"1", b"2"])
    server = onceq.Server([RAW.handled_by(handle, batch=3)])
    thread = threading.Thread(
        target=server.run, args=(conninfo,), kwargs={"repository": qm.repository}
    )
    thread.start()
    try:
        wait_until(lambda: qm.show("raw").depth == 0)
    finally:
        server.stop()
        thread.join(LIMIT_S)
    assert called == [b"0", b"1", b"2"]
    barring[0].join(LIMIT_S)
