"""Queues and elements through the public API: spec Q1, Q2, Q3, Q6, Q7, Q9, C16."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest

import onceq
from onceq.errors import (
    IllegalState,
    InvalidValue,
    QueueNotEmpty,
    QueueNotFound,
    QueueStopped,
    SettingsDiffer,
)
from onceq.model import ops
from onceq.model.element import ElementState, KillAnswer, Role
from onceq.model.queue import QueueKind
from tests.parts import Background, plain, rows, scalar, serving, wait_until

RAW = onceq.Queue("raw", bytes, bytes)
NOW = dt.datetime.now(dt.UTC)  # tests live beside the database's clock
HOUR = dt.timedelta(hours=1)


def bodies(qm: onceq.QueueManager, queue: str = "raw") -> list[bytes]:
    found: list[bytes] = []
    while (element := qm.dequeue(queue)) is not None:
        found.append(element.body)
    return found


# --- Q1 -----------------------------------------------------------------------------------------


def test_a_queue_is_created_shown_altered_and_destroyed(qm: onceq.QueueManager) -> None:
    queue = onceq.Queue("orders", bytes, bytes, abort_limit=3, keep_body=True)
    assert qm.create(queue)
    assert not qm.create(queue)
    assert [one.name for one in qm.queues()] == ["orders", "orders.error"]
    assert qm.show("orders").settings == onceq.QueueSettings(
        abort_limit=3, keep_body=True, error_queue="orders.error"
    )
    qm.alter(ops.AlterQueue(queue="orders", abort_limit=7, backoff_ms=5))
    altered = qm.show("orders").settings
    assert (altered.abort_limit, altered.backoff_ms, altered.keep_body) == (7, 5, True)
    qm.destroy("orders")
    assert qm.queues() == []
    with pytest.raises(QueueNotFound):
        qm.show("orders")
    with pytest.raises(QueueNotFound):
        qm.destroy("orders")
    assert qm.create(queue)  # the name is free again


def test_what_has_an_enum_comes_back_as_its_member(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerk("ann", RAW) as clerk:
        clerk.connect()
        clerk.send("r-1", b"x")
        asked = clerk.where()
    (found,) = qm.lookup("r-1")
    assert asked is not None
    members = (qm.show("raw").kind, qm.show("raw.error").kind, asked.state, found.role, found.state)
    kinds, queued = (QueueKind.REQUEST, QueueKind.ERROR), ElementState.QUEUED
    wanted = (*kinds, queued, Role.REQUEST, queued)
    assert all(one is other for one, other in zip(members, wanted, strict=True))
    assert repr(members) == "('request', 'error', 'queued', 'request', 'queued')"


def test_declare_is_idempotent_and_refuses_other_settings(qm: onceq.QueueManager) -> None:
    assert qm.declare(RAW)
    assert not qm.declare(RAW)
    with pytest.raises(SettingsDiffer, match="abort_limit is 5, declared 2"):
        qm.declare(onceq.Queue("raw", bytes, bytes, abort_limit=2))
    with pytest.raises(SettingsDiffer, match="error queue"):
        qm.declare(onceq.Queue("raw.error", bytes, bytes))
    assert qm.show("raw").settings.abort_limit == 5


def test_a_queue_that_is_not_empty_is_not_destroyed(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with pytest.raises(QueueNotEmpty):
        qm.destroy("raw")
    assert qm.read(eid) is not None
    assert qm.kill(eid) is KillAnswer.KILLED
    qm.destroy("raw")


def test_a_queue_that_others_need_is_not_destroyed(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with pytest.raises(QueueNotEmpty, match="error queue of another"):
        qm.destroy("raw.error")
    with qm.clerk("till", RAW) as clerk:
        reply_queue = next(one.name for one in qm.queues() if one.kind == "reply")
        with pytest.raises(QueueNotEmpty, match="private reply queue"):
            qm.destroy(reply_queue)
        clerk.disconnect()


def test_destroy_waits_for_a_sender_and_then_refuses(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with plain(conninfo) as connection, onceq.open(conninfo, repository=repository) as other:
        connection.execute("begin")
        onceq.enqueue(connection, RAW, b"x", repository=repository)
        destroying = Background(lambda: other.destroy("raw"))
        query = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: scalar(conninfo, query) > 0)
        connection.execute("commit")
        with pytest.raises(QueueNotEmpty):
            destroying.result()


def test_start_and_stop_for_enqueue_and_dequeue_apart(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"1")
    qm.stop("raw", dequeue=False)
    with pytest.raises(QueueStopped):
        qm.enqueue(RAW, b"2")
    assert bodies(qm) == [b"1"]
    qm.start("raw")
    qm.stop("raw", enqueue=False)
    eid = qm.enqueue(RAW, b"3")
    assert qm.dequeue("raw") is None
    assert qm.dequeue("raw", eid=eid) is None
    info = qm.show("raw")
    assert (info.enqueue_started, info.dequeue_started, info.ready) == (True, False, 1)
    qm.start("raw")
    assert bodies(qm) == [b"3"]


def test_a_stopped_queue_never_refuses_a_reply(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        qm.stop("raw", dequeue=False)
        with serving(conninfo, repository, RAW.handled_by(lambda body, _: body)):
            assert clerk.receive(timeout_s=60).value == b"x"


# --- Q2, Q3 -------------------------------------------------------------------------------------


def test_elements_come_in_order_of_priority_then_time(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    for body, priority in ((b"a", 4), (b"low", 0), (b"b", 4), (b"high", 9)):
        qm.enqueue(RAW, body, priority=priority)
    qm.enqueue_many(RAW, [b"c", b"d"])
    assert bodies(qm) == [b"high", b"a", b"b", b"c", b"d", b"low"]
    assert qm.dequeue("raw") is None


def test_the_first_of_a_queue_are_read_and_stay(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    for body, priority in ((b"a", 4), (b"low", 0), (b"high", 9)):
        qm.enqueue(RAW, body, priority=priority)
    assert [one.body for one in qm.peek("raw", 2)] == [b"high", b"a"]
    with pytest.raises(InvalidValue, match="n is an int from 1 to 1000"):
        qm.peek("raw", 0)
    with pytest.raises(QueueNotFound):
        qm.peek("nowhere")
    waiting = [one.body for one in qm.peek("raw")]
    assert bodies(qm) == waiting == [b"high", b"a", b"low"]
    assert qm.peek("raw") == []


def test_dequeue_by_eid_and_read(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.declare(onceq.Queue("other", bytes, bytes))
    first, second = qm.enqueue(RAW, b"1"), qm.enqueue(RAW, b"2")
    read = qm.read(second)
    assert read is not None
    assert (read.body, read.eid) == (b"2", second)
    assert qm.dequeue("other", eid=second) is None  # it is in another queue
    found = qm.dequeue("raw", eid=second)
    assert found is not None
    assert found.body == b"2"
    assert qm.dequeue("raw", eid=second) is None
    assert qm.read(second) is None
    assert qm.read(uuid.uuid4()) is None
    assert bodies(qm) == [b"1"]
    assert [one.outcome for one in qm.lookup(eid=first)] == ["dequeued"]


def test_dequeue_waits_for_an_element_up_to_its_deadline(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    assert qm.dequeue("raw", timeout_s=0.05) is None
    with onceq.open(conninfo, repository=repository) as other:
        waiting = Background(lambda: other.dequeue("raw", timeout_s=60))
        qm.enqueue(RAW, b"x")
        found = waiting.result()
    assert found is not None
    assert found.body == b"x"


def test_a_dequeue_that_owes_a_reply_needs_a_transaction(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with pytest.raises(IllegalState, match="owes a reply"):
            qm.dequeue("raw")
    assert qm.show("raw").ready == 1


def test_fire_and_forget_is_found_by_lookup(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=1)
    qm.declare(queue)

    def handle(body: bytes, context: onceq.Context) -> bytes | None:
        assert not context.owes_reply
        if body == b"bad":
            raise ValueError("bad")
        return None

    good, bad = qm.enqueue(queue, b"x", rid="good"), qm.enqueue(queue, b"bad", rid="bad")
    assert [one.state for one in qm.lookup("good")] == ["queued"]
    with serving(conninfo, repository, queue.handled_by(handle)):  # type: ignore[arg-type] # no reply is owed
        wait_until(lambda: qm.show("raw").depth == 0)
    assert [(one.state, one.outcome) for one in qm.lookup(eid=good)] == [("finished", "done")]
    held = qm.lookup("bad", state="held")
    assert [(one.eid, one.code, one.error, one.queue) for one in held] == [
        (bad, "ValueError", "bad", "raw.error")
    ]
    assert qm.resolve(good)[0].outcome == "done"
    assert qm.resolve("bad")[0].outcome == "failed"


# --- Q9 -----------------------------------------------------------------------------------------


def test_an_element_waits_for_its_not_before(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"later", rid="later", not_before=NOW + HOUR)
    qm.enqueue(RAW, b"due", not_before=NOW - HOUR)
    assert [one.state for one in qm.lookup("later")] == ["waiting"]
    assert bodies(qm) == [b"due"]
    with plain(conninfo) as connection:  # a test session moves the clock, not the element
        moved = f"set onceq_setting.now = '{(NOW + 2 * HOUR).isoformat()}'"
        connection.execute(moved.encode())
        query = f"select body from {qm.repository}.dequeue('raw', null, null, null, null)"
        assert connection.execute(query.encode()).fetchone() == (b"later",)


def test_an_expired_element_is_not_dequeued(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"stale", expires_at=NOW - HOUR)
    late = qm.enqueue(RAW, b"stale too", expires_at=NOW - HOUR)
    qm.enqueue(RAW, b"fresh", expires_at=NOW + HOUR)
    assert qm.dequeue("raw", eid=late) is None
    assert bodies(qm) == [b"fresh"]
    for one in (eid, late):
        assert [state.outcome for state in qm.lookup(eid=one)] == ["expired"]


@pytest.mark.parametrize("served", [False, True])
def test_an_expired_request_gets_one_expired_reply_also_without_a_server(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, served: bool
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x", expires_at=NOW - HOUR)
        if served:
            with serving(conninfo, repository, RAW.handled_by(lambda body, _: body)):
                wait_until(lambda: qm.show("raw").depth == 0)
        reply = clerk.receive(timeout_s=60)
        with pytest.raises(onceq.Expired):
            _ = reply.value
        assert clerk.rereceive() == reply
    query = f"select outcome::text from {repository}.history"
    assert rows(conninfo, query) == [("expired",)]


def test_times_without_a_zone_are_refused(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    naive = dt.datetime(2030, 1, 1)  # noqa: DTZ001 # what is refused
    for attribute in ("not_before", "expires_at"):
        with pytest.raises(InvalidValue, match="time zone"):
            qm.enqueue(RAW, b"x", **{attribute: naive})  # type: ignore[arg-type] # on purpose


# --- Q7 -----------------------------------------------------------------------------------------


def test_a_volatile_queue_works_like_others(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    volatile = onceq.Queue("fast", bytes, bytes, durable=False)
    qm.declare(volatile)
    qm.enqueue_many(volatile, [b"1", b"2"])
    assert bodies(qm, "fast") == [b"1", b"2"]
    with (
        serving(conninfo, repository, volatile.handled_by(lambda body, _: body)),
        qm.clerk("till", volatile) as clerk,
    ):
        assert clerk.transceive("1", b"x", timeout_s=60).value == b"x"
        assert clerk.transceive("2", b"y", timeout_s=60).value == b"y"


# --- G3 -----------------------------------------------------------------------------------------


def test_redrive_sends_a_new_request_correlated_with_the_old(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=1)
    qm.declare(queue)
    mended: list[str] = []

    def handle(body: bytes, context: onceq.Context) -> bytes:
        if not mended:
            raise ValueError("not yet")
        mended.append(context.rid)
        return body

    datagram = qm.enqueue(queue, b"datagram", rid="d")
    with (
        serving(conninfo, repository, queue.handled_by(handle)),
        qm.clerk("till", queue) as clerk,
    ):
        eid = clerk.send("1", b"x").eid
        reply = clerk.receive(timeout_s=60)
        assert reply.outcome is onceq.RequestOutcome.FAILED
        wait_until(lambda: qm.show("raw.error").held == 2)
        mended.append("mended")
        redriven = qm.redrive(eid)
        assert redriven is not None
        new_eid, new_rid = redriven
        assert new_eid != eid
        assert new_rid != "1"
        assert qm.redrive(datagram) == (datagram, "d")  # it owes no reply: it runs as itself
        assert qm.redrive(eid) is None
        assert qm.redrive(uuid.uuid4()) is None
        wait_until(lambda: qm.show("raw").depth == 0)
        assert sorted(mended) == sorted(["mended", new_rid, "d"])
        assert clerk.rereceive() == reply  # failure is final: one reply, and no other
    found = qm.lookup(eid=new_eid)
    assert [(one.outcome, one.correlation_id) for one in found] == [("done", str(eid))]
    link = rows(conninfo, f"select old_eid, new_eid, new_rid from {repository}.redrive")
    assert link == [(eid, new_eid, new_rid)]
    assert qm.show("raw.error").held == 0
