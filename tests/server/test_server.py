"""The native server through the public API: spec S1, S2, S5, Q4, G7, and the handler's guard."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest

import onceq
from onceq.engine.perform.guarded import REFUSED
from onceq.errors import (
    HandlerMisuse,
    InvalidValue,
    RequestFailed,
    SchemaMissing,
    SettingsDiffer,
)
from tests.parts import plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
WAIT_S = 60


class Order(msgspec.Struct):
    cents: int


class Receipt(msgspec.Struct):
    number: int


def failed_code(reply: onceq.Reply[Any]) -> str:
    with pytest.raises(RequestFailed) as failed:
        _ = reply.value
    return failed.value.code


def twins(
    handler: Callable[[Any, onceq.Context], Any],
) -> dict[str, Callable[..., Any]]:
    """A handler, and the same one as a coroutine function."""

    async def asynchronous(request: Any, context: Any) -> Any:
        return handler(request, context)

    return {"sync": handler, "async": asynchronous}


sync_and_async = pytest.mark.parametrize("kind", ["sync", "async"])


def test_request_effects_and_reply_are_one_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    orders = onceq.Queue("orders", Order, Receipt, abort_limit=2, backoff_ms=0)
    with plain(conninfo) as connection:
        table = f"create table {repository}.booked (number serial, cents integer, xid xid8)"
        connection.execute(table.encode())
    insert = (
        f"insert into {repository}.booked (cents, xid)"
        " values (%s, pg_current_xact_id()) returning number"
    )

    async def book(order: Order, context: onceq.AsyncContext) -> Receipt:
        cursor = await context.connection.execute(insert.encode(), (order.cents,))
        row = await cursor.fetchone()
        assert row is not None
        if order.cents < 0:
            raise ValueError("after its insert")
        return Receipt(row[0])

    with (
        serving(conninfo, repository, orders.handled_by(book), concurrency=2),
        qm.clerk("till", orders) as clerk,
    ):
        assert clerk.transceive("1", Order(10), timeout_s=WAIT_S).value == Receipt(1)
        assert failed_code(clerk.transceive("2", Order(-1), timeout_s=WAIT_S)) == "ValueError"
        clerk.transceive("3", Order(30), timeout_s=WAIT_S)
    assert rows(conninfo, f"select cents from {repository}.booked order by 1") == [(10,), (30,)]
    same = (
        f"select count(*) from {repository}.history h join {repository}.booked b"
        " on h.xmin::text = (b.xid::text::bigint % (2^32)::bigint)::text"
    )
    assert scalar(conninfo, same) == 2


@sync_and_async
def test_an_abort_is_retried_up_to_the_limit_then_fails_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    attempts: list[int] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        attempts.append(context.attempt)
        if request == b"bad" or context.attempt < 3:
            raise LookupError(f"attempt {context.attempt}")
        return request

    handler = twins(handle)[kind]
    with (
        serving(conninfo, repository, RAW.handled_by(handler)),
        qm.clerk("till", RAW) as clerk,
    ):
        good = clerk.transceive("1", b"good", timeout_s=WAIT_S)
        assert (good.value, good.attempts, attempts) == (b"good", 3, [1, 2, 3])
        bad = clerk.transceive("2", b"bad", timeout_s=WAIT_S)
        assert attempts[3:] == [1, 2, 3, 4, 5]
        assert (bad.code, bad.text, bad.attempts) == ("LookupError", "attempt 5", 5)
        assert failed_code(bad) == "LookupError"
    (held,) = qm.lookup("2", state="held")
    assert (held.queue, held.aborts, held.code) == ("raw.error", 5, "LookupError")
    assert len(rows(conninfo, f"select 1 from {repository}.history where rid = '2'")) == 1


def test_back_off_grows_and_is_bounded(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=6, backoff_ms=20, backoff_max_ms=60)
    at: list[float] = []

    def handle(_request: bytes, _context: onceq.Context) -> bytes:
        at.append(time.monotonic())
        raise ValueError("always")

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("till", queue) as clerk:
        clerk.transceive("1", b"x", timeout_s=WAIT_S)
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert len(waits) == 5
    assert all(
        wait >= least / 1000 for wait, least in zip(waits, (20, 40, 60, 60, 60), strict=True)
    )


@sync_and_async
def test_a_reject_fails_at_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    calls: list[str] = []

    def handle(_: bytes, context: onceq.Context) -> bytes:
        calls.append(context.rid)
        raise onceq.Reject("negative amount")

    with (
        serving(conninfo, repository, RAW.handled_by(twins(handle)[kind])),
        qm.clerk("till", RAW) as clerk,
    ):
        reply = clerk.transceive("1", b"x", timeout_s=WAIT_S)
        assert (failed_code(reply), reply.text, calls) == ("Reject", "negative amount", ["1"])


ENVIRONMENT = {
    "retry": "raise",
    "serialization": "do $$ begin raise exception 'x' using errcode = '40001'; end $$",
    "deadlock": "do $$ begin raise exception 'x' using errcode = '40P01'; end $$",
    "disk full": "do $$ begin raise exception 'x' using errcode = '53100'; end $$",
    "cancelled": "do $$ begin raise exception 'x' using errcode = '57014'; end $$",
}


@pytest.mark.parametrize("statement", ENVIRONMENT.values(), ids=ENVIRONMENT)
def test_a_fault_of_the_environment_is_not_charged(
    qm: onceq.QueueManager, conninfo: str, repository: str, statement: str
) -> None:
    calls: list[int] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        calls.append(context.attempt)
        if len(calls) < 8:
            if statement == "raise":
                raise onceq.Retry("try later")
            context.connection.execute(statement.encode())
        return request

    with serving(conninfo, repository, RAW.handled_by(handle)), qm.clerk("till", RAW) as clerk:
        reply = clerk.transceive("1", b"x", timeout_s=WAIT_S)
    assert (reply.value, reply.attempts, calls) == (b"x", 1, [1] * 8)


def test_a_statement_that_is_refused_is_charged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=2, backoff_ms=0)
    calls: list[int] = []

    def handle(_: bytes, context: onceq.Context) -> bytes:
        calls.append(1)
        context.connection.execute("select 1 / 0")
        return b""

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("till", queue) as clerk:
        reply = clerk.transceive("1", b"x", timeout_s=WAIT_S)
    assert (failed_code(reply), len(calls)) == ("StatementRefused", 2)
    assert "division by zero" in (reply.text or "")


# --- the guard ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REFUSED))
@sync_and_async
def test_the_connection_refuses_the_end_of_its_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str, name: str, kind: str
) -> None:
    def handle(_: bytes, context: onceq.Context) -> bytes:
        getattr(context.connection, name)
        return b""

    def assign(_: bytes, context: onceq.Context) -> bytes:
        setattr(context.connection, name, True)
        return b""

    other = onceq.Queue("other", bytes, bytes)
    with (
        serving(
            conninfo,
            repository,
            RAW.handled_by(twins(handle)[kind]),
            other.handled_by(twins(assign)[kind]),
        ),
        qm.clerk("one", RAW) as one,
        qm.clerk("two", other) as two,
    ):
        for clerk in (one, two):
            reply = clerk.transceive("1", b"x", timeout_s=WAIT_S)
            assert failed_code(reply) == HandlerMisuse.__name__
            assert reply.attempts == 1


def test_savepoints_are_fine_and_the_connection_ends_with_the_execution(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    kept: list[Any] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        kept.append(context.connection)
        with context.connection.transaction():
            context.connection.execute(f"create table {repository}.made (n integer)".encode())
        try:
            with context.connection.transaction():
                context.connection.execute("select 1 / 0")
        except psycopg.errors.DivisionByZero:
            return request
        raise AssertionError

    with serving(conninfo, repository, RAW.handled_by(handle)), qm.clerk("till", RAW) as clerk:
        assert clerk.transceive("1", b"x", timeout_s=WAIT_S).value == b"x"
        with pytest.raises(HandlerMisuse, match="over"):
            kept[0].execute("select 1")
    assert scalar(conninfo, f"select count(*) from {repository}.made") == 0


def test_a_reply_or_request_of_another_type_is_refused(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    orders = onceq.Queue("orders", Order, Receipt, abort_limit=1)

    def not_a_receipt(_request: Order, _context: onceq.Context) -> Any:
        return "no receipt"

    with (
        serving(conninfo, repository, orders.handled_by(not_a_receipt)),
        qm.clerk("till", orders) as clerk,
    ):
        reply = clerk.transceive("1", Order(1), timeout_s=WAIT_S)
        assert failed_code(reply) == "InvalidReply"
        raw = onceq.Queue("orders", bytes, bytes, abort_limit=1)
        with qm.clerk("raw", raw) as other:
            assert failed_code(other.transceive("1", b"{", timeout_s=WAIT_S)) == "InvalidValue"


# --- the server as a whole ----------------------------------------------------------------------


def test_what_a_server_cannot_be() -> None:
    with pytest.raises(InvalidValue, match="at least one"):
        onceq.Server([])
    handled = RAW.handled_by(lambda body, _: body)
    with pytest.raises(InvalidValue, match="twice"):
        onceq.Server([handled, handled])
    with pytest.raises(InvalidValue, match="concurrency"):
        onceq.Server([handled], concurrency=0)
    with pytest.raises(InvalidValue, match="isolation"):
        RAW.handled_by(lambda body, _: body, isolation="read uncommitted")  # type: ignore[call-overload] # what must be refused


def test_what_no_later_attempt_mends_ends_the_server(
    qm: onceq.QueueManager, conninfo: str, repository: str, repository_name: str
) -> None:
    server = onceq.Server([RAW.handled_by(lambda body, _: body)])
    with pytest.raises(SchemaMissing):
        server.run(conninfo, repository=f"{repository_name}_not")
    qm.declare(onceq.Queue("raw", bytes, bytes, abort_limit=1))
    with pytest.raises(SettingsDiffer):
        server.run(conninfo, repository=repository)


def test_many_sessions_serve_at_once_and_stop_gracefully(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    together = threading.Barrier(3, timeout=WAIT_S)
    other = onceq.Queue("other", bytes, bytes)

    def handle(request: bytes, _: onceq.Context) -> bytes:
        together.wait()
        return request

    async def handle_other(request: bytes, _: onceq.AsyncContext) -> bytes:
        return request

    with (
        serving(
            conninfo,
            repository,
            RAW.handled_by(handle),
            other.handled_by(handle_other),
            concurrency=3,
        ) as server,
        qm.clerk("till", RAW, window=3) as clerk,
        qm.clerk("other", other) as second,
    ):
        clerk.send_many([(str(n), b"x") for n in range(3)])
        assert {one.rid for one in [clerk.receive(timeout_s=WAIT_S) for _ in range(3)]} == {
            "0",
            "1",
            "2",
        }
        second.transceive("1", b"x", timeout_s=WAIT_S)
    wait_until(lambda: server.statistics().done == 4)
    assert server.statistics().lives == 6
    assert scalar(conninfo, f"select count(*) from {repository}.server") == 0
