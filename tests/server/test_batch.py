"""Servers that run many requests in one transaction, which comes to nothing as a whole (S3, G7)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.engine.perform import together
from onceq.engine.perform.differing import execute_text
from onceq.engine.sessions import session
from onceq.engine.wake.waiting import Pause
from onceq.errors import ClaimLost, InvalidValue
from onceq.model import ops
from onceq.model.element import Lane
from tests.lives import living
from tests.parts import LIMIT_S, plain, rows, scalar, serving, wait_until
from tests.server.booking import RAW, Booking, N, booked, numbered, serve_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.queue import IsolationLevel


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, there is time for the whole of a batch."""
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)


@pytest.fixture
def booking(conninfo: str, repository: str) -> Booking:
    return Booking(conninfo, repository)


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
    again = code != "HandlerMisuse"  # who breaks the rules needs no other evidence
    assert booking.calls.count(b"003") == attempts + again, "the first in a batch, which is undone"
    assert len(booking.calls) == N - 1 + 3 + attempts + again, "those before it ran twice"
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
    assert len(booking.calls) == N + 1 + 3, "those before it ran twice"


def test_a_kill_undoes_the_batch_and_costs_nobody_else(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    """What was killed is called no more than once after that (G3); the others run together."""
    answers: list[str] = []

    def kill_the_last(_: onceq.Context) -> None:
        answers.append(qm.kill(qm.lookup("015")[0].eid).value)

    booking.during[b"003"] = kill_the_last
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert answers == ["KILLED", "KILLED"]
    assert booking.calls.count(b"015") == 1
    assert replies.pop("015").outcome.value == "cancelled"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert booked(conninfo, qm) == sorted(replies)
    assert len(booking.calls) == 2 * N - 1
    assert scalar(conninfo, f"select count(distinct xid) from {qm.repository}.booked") == 1


def test_what_was_killed_is_not_called_again_when_another_undoes_the_batch(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    """Neither what had been called, nor what was still to be."""

    def kill_two(_: onceq.Context) -> None:
        if booking.calls.count(b"003") == 1:
            for rid in ("001", "015"):
                assert qm.kill(qm.lookup(rid)[0].eid).value == "KILLED"
            raise onceq.Retry("now", after_s=0.001)

    booking.during[b"003"] = kill_two
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    cancelled = {rid for rid, reply in replies.items() if reply.outcome.value == "cancelled"}
    assert cancelled == {"001", "015"}
    assert booked(conninfo, qm) == sorted(replies.keys() - cancelled)
    assert (booking.calls.count(b"001"), booking.calls.count(b"015")) == (1, 0)


def test_where_nothing_goes_well_the_rest_of_a_batch_is_given_back_before_the_wait(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of a batch would wait alone, for minutes, and the others with it."""
    held: list[int] = []
    waits = Pause.next

    def noted(pause: Pause, op: ops.Wait, now: float) -> float | None:
        if op.key == "environment":
            held.append(qm.show("raw").claimed)
        return waits(pause, op, now)

    def down(_: onceq.Context) -> None:
        if len(held) < 3:
            raise onceq.Retry("the service is down")

    monkeypatch.setattr(Pause, "next", noted)
    booking.during |= dict.fromkeys(numbered(), down)
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert held[1:] == [0, 0]
    assert held[0] == N - 1, "the first time it only waits a moment"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_batch_that_cannot_begin_runs_one_at_a_time(
    qm: onceq.QueueManager,
    conninfo: str,
    booking: Booking,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    begin_text = session.begin_text
    begun: list[ops.Begin] = []

    def cancelled_once(op: ops.Begin, repository: str) -> bytes:
        begun.append(op)
        cancel = b"; select pg_cancel_backend(pg_backend_pid())" if len(begun) == 1 else b""
        return begin_text(op, repository) + cancel

    async def book(body: bytes, context: onceq.AsyncContext) -> bytes:
        await context.connection.execute(booking.insert.encode(), (body.decode(),))
        return b"done " + body

    monkeypatch.setattr(session, "begin_text", cancelled_once)
    handled = RAW.handled_by(book if way == "async" else booking, batch=3)
    replies = serve_all(qm, conninfo, handled, numbered(3))
    assert {reply.body for reply in replies.values()} == {b"done " + one for one in numbered(3)}
    assert booked(conninfo, qm) == ["000", "001", "002"]
    assert [op.seq < 0 for op in begun] == [True, False, False, False]


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
    charged = f"select max(aborts) from {qm.repository}.history where outcome ="
    assert scalar(conninfo, f"{charged} 'failed'") == 2
    assert scalar(conninfo, f"{charged} 'done'") == 0, "the others are innocent"
    assert booked(conninfo, qm) == sorted(replies)


def test_what_is_killed_while_an_earlier_piece_runs_is_not_called(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    """G3: the batch fails at 003, which then runs alone; so does a kill of what is to come."""
    killed: list[str] = []

    def fail(_: onceq.Context) -> None:
        if booking.calls.count(b"003") == 2:
            killed.extend(qm.kill(one.eid).value for one in qm.lookup("010"))
        raise ValueError("poison")

    booking.during[b"003"] = fail
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert killed == ["KILLED"]
    assert b"010" not in booking.calls
    assert replies.pop("010").outcome.value == "cancelled"
    assert replies.pop("003").outcome.value == "failed"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert booked(conninfo, qm) == sorted(replies)


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


def test_between_its_handlers_a_batch_asks_nothing(
    qm: onceq.QueueManager, conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def counted(connection: Any, text: bytes) -> bytes | None:
        asked.append(text)
        return execute_text(connection, text)

    def echo(body: bytes, _context: onceq.Context) -> bytes:
        asked.append(body)
        return body

    monkeypatch.setattr("onceq.engine.perform.driver.execute_text", counted)
    serve_all(qm, conninfo, RAW.handled_by(echo, batch=N), numbered())
    first = asked.index(b"000")
    assert b"begin isolation level" in asked[first - 1]
    assert asked[first : first + N] == numbered()


def test_a_batch_whose_time_is_over_finishes_and_the_next_are_smaller(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "LASTS_S", 0.0)
    monkeypatch.setattr(together, "SHARE", 0)
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N // 2), numbered())
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert booking.calls == numbered()
    assert scalar(conninfo, f"select count(distinct xid) from {qm.repository}.booked") == N


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
        running.join(LIMIT_S)
        assert not running.is_alive()
        assert server.statistics().done == 4
        assert qm.show("raw").claimed == 0
        assert booked(conninfo, qm) == ["000", "001", "002", "003"]
        with serving(conninfo, qm.repository, RAW.handled_by(booking, batch=N)):
            assert {clerk.receive(timeout_s=60).outcome.value for _ in range(N)} == {"done"}
    assert len(booking.calls) == N


def test_a_batch_of_one_session_leaves_others_theirs(
    qm: onceq.QueueManager, conninfo: str, booking: Booking
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=1000) as clerk:
        handled = RAW.handled_by(booking, batch=5)
        with serving(conninfo, qm.repository, handled, concurrency=3) as server:
            clerk.send_many([(body.decode(), body) for body in numbered(300)])
            outcomes = [clerk.receive(timeout_s=60).outcome.value for _ in range(300)]
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
    """Between the rollback and what runs next none is running; they run in halves then."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2", b"3", b"4"])
    with living(conninfo, repository) as life:
        elements = life.claim("raw", 4)
        life.driver.perform(
            ops.Begin(
                slot=life.slot,
                seq=-elements[0].seq,
                token="test",
                isolation="read committed",
                alone=False,
            )
        )
        revoked = f"update {repository}.element set claimed_by = null where seq = {elements[3].seq}"
        with plain(conninfo) as connection:
            connection.execute(revoked.encode())
        with pytest.raises(ClaimLost):
            life.finish_all(elements, [b""] * 4)
        life.rollback()
    with living(conninfo, repository) as survivor:
        survivor.take_over(life)
        found = rows(conninfo, f"select aborts, lane, together from {repository}.element")
    assert sorted(found, key=str) == [*3 * [(0, Lane.SUSPECT, 2)], (0, Lane.USUAL, None)]


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
