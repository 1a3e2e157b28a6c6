"""Clients as operators see them, and forgetting one: spec Q5, Q14, finding 3."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import Fenced, IllegalState, ReplyGone
from tests.parts import Background, plain, rows, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.model.admin_ops import ClientInfo

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


@pytest.fixture
def clerk(qm: onceq.QueueManager) -> Iterator[onceq.Clerk[bytes, bytes]]:
    with qm.clerk("till", RAW) as made:
        made.connect()
        yield made


def only(qm: onceq.QueueManager) -> ClientInfo:
    (found,) = qm.clients()
    return found


def test_a_client_is_seen_with_what_it_has(
    qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes], conninfo: str, repository: str
) -> None:
    connected = only(qm)
    assert (connected.name, connected.state, connected.s_rid) == ("till", "connected", None)
    assert connected.seen_at == connected.connected_at
    clerk.send("1", b"x")
    sent = only(qm)
    assert (sent.s_rid, sent.requests, sent.replies) == ("1", 1, 0)
    assert sent.sent_at is not None
    assert sent.seen_at == sent.sent_at > connected.seen_at
    with serving(conninfo, repository, RAW.handled_by(lambda request, _: request)):
        wait_until(lambda: only(qm).replies == 1)
    assert only(qm).sent_at == sent.sent_at
    clerk.receive(b"printed", timeout_s=60)
    received = only(qm)
    assert received.received_at is not None
    assert received.seen_at == received.received_at > sent.seen_at
    clerk.disconnect()
    assert (only(qm).state, only(qm).replies) == ("disconnected", 0)


def test_a_client_that_waits_is_seen_waiting(
    qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes], conninfo: str, repository: str
) -> None:
    clerk.send("1", b"x")
    waiting = Background(lambda: clerk.receive(timeout_s=60))
    wait_until(lambda: only(qm).waits)
    with serving(conninfo, repository, RAW.handled_by(lambda request, _: request)):
        waiting.result()
    wait_until(lambda: not only(qm).waits)


def test_who_is_forgotten_is_fenced_and_its_rids_stay_known(
    qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes], conninfo: str, repository: str
) -> None:
    runs: list[bytes] = []

    def handle(request: bytes, _context: Any) -> bytes:
        runs.append(request)
        return request

    with serving(conninfo, repository, RAW.handled_by(handle)):
        clerk.send("1", b"x")
        wait_until(lambda: only(qm).replies == 1)
        with pytest.raises(IllegalState, match=r'client "till" is connected, with 1 request'):
            qm.forget("till")
        (gone,) = qm.forget("till", forced=True)
        assert (gone.s_rid, gone.cancelled, gone.replies) == ("1", 0, 1)
        with pytest.raises(Fenced):
            clerk.receive(timeout_s=60)
        with qm.clerk("till", RAW) as again:
            again.connect()
            assert again.last_sent == "1"
            again.send("1", b"x")
            with pytest.raises(ReplyGone):
                again.receive(timeout_s=60)
    assert runs == [b"x"]


def test_what_runs_when_its_client_is_forgotten_never_takes_effect(
    qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes], conninfo: str, repository: str
) -> None:
    begun, forgotten = threading.Event(), threading.Event()

    def handle(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(f"insert into {repository}.effect values (1)".encode())
        begun.set()
        assert forgotten.wait(60)
        return request

    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.effect (n integer)".encode())
    with serving(conninfo, repository, RAW.handled_by(handle)):
        clerk.send("1", b"x")
        assert begun.wait(60)
        (gone,) = qm.forget("till", forced=True)
        forgotten.set()
        assert gone.cancelled == 1
        (ended,) = qm.find(rid="1")
        assert (ended.outcome.value, ended.code) == ("cancelled", "forgotten")
    assert rows(conninfo, f"select * from {repository}.effect") == []
    assert only(qm).replies == 0


def test_what_a_client_has_in_an_error_queue_outlives_it(
    qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes], conninfo: str, repository: str
) -> None:
    """It is the operator's, who may run it again."""

    def fail(_request: bytes, _context: onceq.Context) -> bytes:
        raise onceq.Reject("no")

    with serving(conninfo, repository, RAW.handled_by(fail)):
        clerk.send("1", b"x")
        wait_until(lambda: only(qm).replies == 1)
    qm.forget("till", forced=True)
    (held,) = qm.lookup(state="held")
    assert (held.registrant, qm.redrive(held.eid) is not None) == ("till", True)
