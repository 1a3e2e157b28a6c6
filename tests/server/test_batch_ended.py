"""Handlers that end the transaction of their batch, or only seem to (S3, G2)."""

from __future__ import annotations

import pytest

import onceq
from onceq.engine.perform import together
from onceq.engine.sessions import session
from tests.parts import LIMIT_S
from tests.server.booking import RAW, Booking, N, booked, numbered, serve_all


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, there is time for the whole of a batch."""
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)


@pytest.fixture
def booking(conninfo: str, repository: str) -> Booking:
    return Booking(conninfo, repository)


@pytest.mark.parametrize("then", ["returns", "raises"])
@pytest.mark.parametrize("end", ["commit", "commit; begin", "commit; reset all", "discard all"])
def test_what_a_handler_has_committed_is_not_run_again(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, end: str, then: str
) -> None:
    """All that had shared its transaction by then fail; the others run."""

    def end_it(context: onceq.Context) -> None:
        if end == "discard all":  # as a pool does that takes a connection back
            context.connection.execute(b"commit")
        context.connection.execute(end.encode())
        if then == "raises":
            raise ValueError("after that")

    booking.during[b"003"] = end_it
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    failed = {rid for rid, reply in replies.items() if reply.outcome.value == "failed"}
    assert failed == {"000", "001", "002", "003"}
    assert {replies[rid].code for rid in failed} == {"HandlerMisuse"}
    assert len(booking.calls) == N, "nothing ran twice"
    assert booked(conninfo, qm) == [one.decode() for one in numbered()], "it was committed"


@pytest.mark.parametrize("end", ["rollback", "rollback; begin"])
def test_who_rolls_a_batch_back_fails_alone(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, end: str
) -> None:
    """What the others did is lost for certain, so that they may do it again."""

    def end_it(context: onceq.Context) -> None:
        context.connection.execute(end.encode())

    booking.during[b"003"] = end_it
    replies = serve_all(qm, conninfo, RAW.handled_by(booking, batch=N), numbered())
    assert replies.pop("003").code == "HandlerMisuse"
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert booking.calls.count(b"003") == 1
    assert booked(conninfo, qm) == sorted(replies)


@pytest.mark.parametrize("how", ["set", "set local", "savepoint"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_handler_may_change_that_by_which_a_batch_knows_its_transaction(
    qm: onceq.QueueManager, conninfo: str, booking: Booking, how: str, way: str
) -> None:
    sql = f"{'set local' if how == 'savepoint' else how} {session.MARK} = off".encode()

    def within(context: onceq.Context) -> None:
        with context.connection.transaction():
            context.connection.execute(sql)

    async def book(body: bytes, context: onceq.AsyncContext) -> bytes:
        booking.calls.append(body)
        await context.connection.execute(booking.insert.encode(), (body.decode(),))
        if body in booking.during:
            await context.connection.execute(sql)
        return b""

    def execute(context: onceq.Context) -> None:
        context.connection.execute(sql)

    booking.during[b"003"] = booking.during[b"007"] = within if how == "savepoint" else execute
    handled = RAW.handled_by(book if way == "async" else booking, batch=N)
    replies = serve_all(qm, conninfo, handled, numbered())
    assert {reply.outcome.value for reply in replies.values()} == {"done"}
    assert len(booking.calls) == N
