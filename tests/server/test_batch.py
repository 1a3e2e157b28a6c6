"""Servers that run many requests in one transaction, each in a part of its own (S3, G7, G8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.engine.perform.parts import Parts
from onceq.errors import ClaimLost, DeadlineExceeded, InvalidValue
from onceq.model import ops
from onceq.model.element import Lane
from tests.lives import living
from tests.parts import plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.queue import Handled, IsolationLevel

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
N = 20


class Booking:
    """A handler that books what it is asked to, and knows what it was asked."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self.insert = f"insert into {repository}.booked values (%s, pg_current_xact_id()::text)"
        self.calls: list[bytes] = []
        self.during: dict[bytes, Callable[[onceq.Context], None]] = {}
        with plain(conninfo) as connection:
            connection.execute(f"create table {repository}.booked (what text, xid text)".encode())

    def __call__(self, body: bytes, context: onceq.Context) -> bytes:
        self.calls.append(body)
        context.connection.execute(self.insert.encode(), (body.decode(),))
        if body in self.during:
            self.during[body](context)
        return b"done " + body


@pytest.fixture
def booking(conninfo: str, repository: str) -> Booking:
    return Booking(conninfo, repository)


def serve_all(
    qm: onceq.QueueManager, conninfo: str, handled: Handled[Any, Any], bodies: list[bytes]
) -> dict[str, onceq.Reply[bytes]]:
    """Sends all at once, then serves them; returns the replies by body."""
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=1000) as clerk:
        clerk.send_many([(body.decode(), body) for body in bodies])
        with serving(conninfo, qm.repository, handled) as server:
            replies = [clerk.receive(timeout_s=30) for _ in bodies]
            assert server.statistics().lives == 1
        clerk.acknowledge([reply.rid for reply in replies])
    assert qm.show("raw").depth == 0
    return {reply.rid: reply for reply in replies}


def booked(conninfo: str, qm: onceq.QueueManager) -> list[str]:
    found = rows(conninfo, f"select what from {qm.repository}.booked order by what")
    return [what for (what,) in found]


def numbered(count: int = N) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(count)]


def test_what_waits_is_one_transaction(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N // 2), numbered())
    assert {reply.body for reply in replies.values()} == {b"done " + one for one in numbered()}
    assert booked(conninfo, qm) == [one.decode() for one in numbered()]
    assert scalar(conninfo, f"select count(distinct xid) from {qm.repository}.booked") == 2


def test_an_async_handler_too(qm: onceq.QueueManager, conninfo: str, booking: Booking) -> None:
    async def book(body: bytes, context: onceq.AsyncContext) -> bytes:
        if body == b"005":
            raise ValueError("poison")
        await context.connection.execute(booking.insert.encode(), (body.decode(),))
        return b"done"

    replies = serve_all(qm, conninfo, RAW.handled_by(book, batch=N), numbered())
    assert replies.pop("005").outcome.value == "failed"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert len(booked(conninfo, qm)) == N - 1


def test_one_alone_does_not_wait_for_others(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    assert serve_all(qm, conninfo, RAW.handled_by(booking, batch=1000), [b"1"])["1"].attempts == 1


def raises(error: Exception) -> Callable[[onceq.Context], None]:
    def throw(_: onceq.Context) -> None:
        raise error

    return throw


def bad_statement(context: onceq.Context) -> None:
    context.connection.execute("select 1/0")


def swallowed(context: onceq.Context) -> None:
    try:
        bad_statement(context)
    except psycopg.Error:
        return


@pytest.mark.parametrize(
    ("during", "code", "attempts"),
    [
        (raises(ValueError("no")), "ValueError", 2),
        (raises(onceq.Reject("no")), "Reject", 1),
        (bad_statement, "StatementRefused", 2),
        (swallowed, "StatementRefused", 2),
        (lambda context: context.connection.commit(), "HandlerMisuse", 1),
    ],
)
def test_one_that_fails_costs_nobody_else(
    qm: onceq.QueueManager,
    conninfo: str,
    booking: Booking,
    during: Callable[[onceq.Context], None],
    code: str,
    attempts: int,
) -> None:
    booking.during[b"003"] = during
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    failed = replies.pop("003")
    assert (failed.outcome.value, failed.code, failed.attempts) == ("failed", code, attempts)
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    alone = during is swallowed  # nobody knows what was swallowed: others' locks may be behind it
    assert booking.calls.count(b"003") == attempts + alone
    assert len(booking.calls) == N + attempts + alone - 1, "the others ran once"
    assert booked(conninfo, qm) == sorted(replies)


def test_what_asks_for_a_retry_gets_one(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    def once(_: onceq.Context) -> None:
        if booking.calls.count(b"003") == 1:
            raise onceq.Retry("later")

    booking.during[b"003"] = once
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert scalar(conninfo, f"select max(aborts) from {qm.repository}.history") == 0
    assert len(booking.calls) == N + 1


def test_a_kill_costs_nobody_else_and_waits_for_what_ran(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    answers: dict[str, str] = {}

    def kill_the_last(_: onceq.Context) -> None:
        eids = {rid: qm.lookup(rid)[0].eid for rid in ("003", "015")}
        answers["015"] = qm.kill(eids["015"]).value
        with pytest.raises(DeadlineExceeded):
            qm.kill(eids["003"], timeout_s=0.05)  # this one: it is fenced

    booking.during[b"003"] = kill_the_last
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert answers == {"015": "KILLED"}
    assert replies.pop("015").outcome.value == "cancelled"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert booked(conninfo, qm) == sorted(replies)
    assert b"015" not in booking.calls or booking.calls.count(b"015") == 1


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_could_not_be_started_undoes_no_other(
    qm: onceq.QueueManager,
    conninfo: str,
    booking: Booking,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    at: int,
) -> None:
    """A cancel that comes before the savepoint: the one that stands is the former part's."""
    start_text = Parts.start_text
    started: list[bytes] = []

    def cancelled_once(parts: Parts) -> bytes:
        started.append(start_text(parts))
        cancel = b"select pg_cancel_backend(pg_backend_pid()); " if len(started) == at + 1 else b""
        return cancel + started[-1]

    async def book(body: bytes, context: onceq.AsyncContext) -> bytes:
        await context.connection.execute(booking.insert.encode(), (body.decode(),))
        return b"done " + body

    monkeypatch.setattr(Parts, "start_text", cancelled_once)
    handled = RAW.handled_by(book if way == "async" else booking, batch=3)
    replies = serve_all(qm, conninfo, handled, numbered(3))
    assert {reply.body for reply in replies.values()} == {b"done " + one for one in numbered(3)}
    assert booked(conninfo, qm) == ["000", "001", "002"]


def test_what_only_the_commit_finds_is_found_one_at_a_time(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    with plain(conninfo) as connection:
        connection.execute(
            f"create table {qm.repository}.known (what text primary key);"
            f" alter table {qm.repository}.booked add foreign key (what)"
            f" references {qm.repository}.known deferrable initially deferred;"
            f" insert into {qm.repository}.known select to_char(n, 'FM000')"
            " from generate_series(0, 30) n where n <> 3".encode()
        )
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert replies.pop("003").code == "StatementRefused"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert scalar(conninfo, f"select max(aborts) from {qm.repository}.history") == 2
    assert booked(conninfo, qm) == sorted(replies)


@pytest.mark.parametrize("end", ["commit", "rollback", "commit; begin"])
def test_a_handler_that_ends_the_transaction_is_not_run_again(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, end: str
) -> None:
    def end_it(context: onceq.Context) -> None:
        context.connection.execute(end.encode())

    booking.during[b"003"] = end_it
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    outcomes = {rid: reply.outcome.value for rid, reply in replies.items()}
    failed = {rid for rid, outcome in outcomes.items() if outcome == "failed"}
    assert failed == {"000", "001", "002", "003"}, "all that had shared its transaction by then"
    assert {replies[rid].code for rid in failed} == {"HandlerMisuse"}
    assert len(booking.calls) == N, "nothing ran twice"
    kept = set(booked(conninfo, qm)) & failed
    assert kept == (set() if end == "rollback" else failed)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_conflict_is_found_one_at_a_time(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, isolation: IsolationLevel
) -> None:
    """Another transaction changes what the batch has seen; nobody is charged for it."""
    with plain(conninfo) as connection:
        connection.execute(f"create table {qm.repository}.stock as select 0 as n".encode())

    def conflict(context: onceq.Context) -> None:
        context.connection.execute(f"select * from {qm.repository}.stock".encode())
        if booking.calls.count(b"003") == 1:
            with plain(conninfo) as other:
                other.execute(f"update {qm.repository}.stock set n = n + 1".encode())
        context.connection.execute(f"update {qm.repository}.stock set n = n + 1".encode())

    booking.during[b"003"] = conflict
    handled = RAW.handled_by(booking, batch=N, isolation=isolation)
    replies = serve_all(qm, conninfo, handled, numbered())
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert scalar(conninfo, f"select max(aborts) from {qm.repository}.history") == 0
    assert booked(conninfo, qm) == sorted(replies)
    assert scalar(conninfo, f"select n from {qm.repository}.stock") == 2


@pytest.mark.parametrize("touches", [False, True])
def test_a_handler_without_sql_costs_no_round_trips(
    qm: onceq.QueueManager,
    conninfo: str,
    booking: Booking,
    monkeypatch: pytest.MonkeyPatch,
    touches: bool,  # noqa: FBT001 # a parameter of pytest
) -> None:
    started: list[bytes] = []
    start_text = Parts.start_text

    def counted(self: Parts) -> bytes:
        started.append(start_text(self))
        return started[-1]

    def echo(body: bytes, _context: onceq.Context) -> bytes:
        return body

    monkeypatch.setattr(Parts, "start_text", counted)
    handler = booking if touches else echo
    serve_all(qm, conninfo, RAW.handled_by(handler, batch=N), numbered())
    assert len(started) == (N if touches else 0)


def test_a_stop_finishes_what_ran_and_gives_back_the_rest(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    server = onceq.Server([RAW.handled_by(booking, batch=N)])
    booking.during[b"003"] = lambda _: server.stop()
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=N) as clerk:
        clerk.send_many([(body.decode(), body) for body in numbered()])
        running = threading.Thread(
            target=server.run, args=(conninfo,), kwargs={"repository": qm.repository}
        )
        running.start()
        running.join(30)
        assert not running.is_alive()
        assert server.statistics().done == 4
        assert qm.show("raw").claimed == 0
        assert booked(conninfo, qm) == ["000", "001", "002", "003"]
        with serving(conninfo, qm.repository, RAW.handled_by(booking, batch=N)):
            assert {clerk.receive(timeout_s=30).outcome.value for _ in range(N)} == {"done"}
    assert len(booking.calls) == N


def test_a_batch_of_one_session_leaves_others_theirs(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=1000) as clerk:
        handled = RAW.handled_by(booking, batch=5)
        with serving(conninfo, qm.repository, handled, concurrency=3) as server:
            clerk.send_many([(body.decode(), body) for body in numbered(300)])
            outcomes = [clerk.receive(timeout_s=30).outcome.value for _ in range(300)]
            wait_until(lambda: server.statistics().done == 300)
    assert set(outcomes) == {"done"}
    assert sorted(booking.calls) == numbered(300)


@pytest.mark.parametrize("batch", [0, 1001, True])
def test_a_batch_has_from_1_to_1000(batch: int, booking: Booking) -> None:
    with pytest.raises(InvalidValue):
        RAW.handled_by(booking, batch=batch)


def test_a_server_that_dies_with_a_batch_that_failed_at_its_end_charges_nobody(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Between the rollback and the first that is run alone none is running; they run alone then."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2", b"3"])
    with living(conninfo, repository) as life:
        elements = life.claim("raw", 3)
        life.driver.perform(
            ops.Begin(
                slot=life.slot,
                seq=-elements[0].seq,
                token="test",
                isolation="read committed",
                alone=False,
            )
        )
        for one in elements:
            life.driver.perform(
                ops.Start(slot=life.slot, seq=one.seq, incarnation=life.incarnation)
            )
            life.driver.perform(ops.Keep())
        with pytest.raises(ClaimLost):
            life.finish_all(elements, [b"", b"", b""], must=4)
        life.rollback()
    with living(conninfo, repository) as survivor:
        survivor.take_over(life)
        found = rows(conninfo, f"select aborts, lane from {repository}.element")
    assert found == 3 * [(0, Lane.SUSPECT)]


def test_a_claim_of_many_holds_no_more_bytes_than_a_process_can_bear(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Else one dies of it before it has begun, claims the same again, and nobody is charged."""
    large = onceq.Queue("raw", bytes, bytes, body_bytes_max=4 << 20)
    qm.declare(large)
    for _ in range(10):
        qm.enqueue(large, b"x" * (3 << 20))
    qm.enqueue_many(large, [b"small"] * 3)
    with living(conninfo, repository) as life:
        sizes = [len(life.claim("raw", 1000)) for _ in range(3)]
    assert sizes == [6, 7, 0]
