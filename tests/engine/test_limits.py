"""Limits of a queue in depth and bytes: measured, kept to, and paid for by nobody else (Q13)."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq import files
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.errors import InvalidValue, QueueFull, RequestFailed, SettingsDiffer
from onceq.model.spark_ops import SparkEnqueue
from tests.parts import Background, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)
TWO = onceq.Queue("two", bytes, bytes, limits=onceq.Limits(depth=2))
MANY = onceq.Queue("many", bytes, bytes, limits=onceq.Limits(depth=150))
US = 1_000_000


def echo(value: bytes, _: onceq.Context) -> bytes:
    return value


def good_until(conninfo: str, repository: str, seconds: float) -> None:
    """Lets the measurement of the queue be good for so long from now on."""
    query = (
        f"select setval('{repository}.fill_' || queue_id || '_0', %s)"
        f" from {repository}.queue where name = 'many'"
    )
    scalar(conninfo, query, int((time.time() + seconds) * US))


@pytest.mark.parametrize("value", [0, -1, 10**15 + 1, 2**70, 1.5, "2", True, [1]])
@pytest.mark.parametrize("name", ["depth", "bytes"])
def test_a_limit_is_a_number_that_can_be_kept(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"limits: {name} is an int from 1 to"):
        onceq.Limits(**{name: value})


def test_limits_are_limits(qm: onceq.QueueManager) -> None:
    wrong: Any = 10
    others: tuple[Any, ...] = (wrong, None, {"depth": 10})
    for refused in others:
        with pytest.raises(InvalidValue, match=r"limits is onceq\.Limits"):
            onceq.Queue("raw", bytes, bytes, limits=refused)
    qm.declare(RAW)
    with pytest.raises(InvalidValue, match=r"limits is onceq\.Limits"):
        qm.alter(onceq.AlterQueue(queue="raw", limits=wrong))


def test_limits_are_declared(qm: onceq.QueueManager) -> None:
    assert qm.declare(TWO)
    assert not qm.declare(TWO)
    with pytest.raises(SettingsDiffer, match="limits is Limits"):
        qm.declare(onceq.Queue("two", bytes, bytes))


def test_queues_without_limits_never_look(qm: onceq.QueueManager, conninfo: str) -> None:
    """What would measure is gone, and nobody misses it."""
    qm.declare(RAW)
    with plain(conninfo) as connection:
        connection.execute(f"alter table {qm.repository}.limits rename to gone".encode())
    with qm.clerk("till", RAW, window=10) as clerk:
        clerk.send("1", b"x")
        clerk.send_many([("2", b"x"), ("3", b"x")])
        clerk.send_many([("2", b"x"), ("4", b"x")])
        clerk.send_one_way("5", b"x")
        clerk.send("6", b"x", priority=9)
    qm.enqueue(RAW, b"x")
    qm.enqueue_many(RAW, [b"x", b"x"])
    assert qm.show("raw").depth == 9
    with pytest.raises(psycopg.errors.UndefinedTable):
        scalar(conninfo, f"select {qm.repository}.has_room(1, 1, 1)")


def test_what_others_have_not_committed_may_go_over(qm: onceq.QueueManager, conninfo: str) -> None:
    """Two at once, and no lock: the second commits; then the queue is full for everybody."""
    qm.declare(TWO)
    qm.enqueue(TWO, b"1")
    with psycopg.connect(conninfo) as first, psycopg.connect(conninfo) as second:
        for one in (first, second):
            qm.enqueue(TWO, b"x", connection=one)
        with pytest.raises(QueueFull), second.transaction():  # its own it sees
            qm.enqueue(TWO, b"x", connection=second)
    assert qm.show("two").depth == 3
    with pytest.raises(QueueFull, match=r"it has 3 element\(s\), with 1 more, and takes at most 2"):
        qm.enqueue(TWO, b"x")


def test_a_send_waits_until_somebody_drains(qm: onceq.QueueManager) -> None:
    qm.declare(TWO)
    qm.enqueue_many(TWO, [b"1", b"2"])
    with qm.clerk("till", TWO) as clerk:
        began = time.monotonic()
        with pytest.raises(QueueFull) as refused:
            clerk.send("1", b"x", timeout_s=0.3)
        assert 0.2 < time.monotonic() - began < 5
        assert refused.value.retry_after_s > 0
        sending = Background(lambda: clerk.send("1", b"x", timeout_s=60))
        assert qm.show("two").depth == 2
        assert qm.dequeue("two") is not None
        assert sending.result().state == "new"
    assert qm.show("two").depth == 2


def test_a_measurement_of_many_is_good_for_a_while(qm: onceq.QueueManager, conninfo: str) -> None:
    """A refused send leaves it; it is not believed for longer than it may be good."""
    qm.declare(MANY)
    qm.enqueue_many(MANY, [b"xx"] * 150)
    with pytest.raises(QueueFull):
        qm.enqueue(MANY, b"x")
    kept = (
        f"select last_value from {qm.repository}.fill_{{}}_{{}}".format(qm.show("many").queue_id, n)
        for n in range(3)
    )
    until, depth, size = (scalar(conninfo, query) for query in kept)
    assert until > (time.time() - 60) * US
    assert (depth, size) == (150, 300)
    good_until(conninfo, qm.repository, 9)
    scalar(conninfo, f"with gone as (delete from {qm.repository}.element returning 1) select 1")
    with pytest.raises(QueueFull) as refused:
        qm.enqueue(MANY, b"x")
    assert 5 < refused.value.retry_after_s < 10
    good_until(conninfo, qm.repository, 3600)  # the clock was set back
    qm.enqueue(MANY, b"x")
    good_until(conninfo, qm.repository, -0.001)
    qm.enqueue(MANY, b"x")


def test_bulk_rows_are_counted_unless_they_are_known(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(TWO)

    def enqueue(*rids: str) -> SparkEnqueue:
        return SparkEnqueue(
            registrant_id=None,
            epoch=None,
            queue="two",
            send_no=0,
            rids=list(rids),
            bodies=[b"x" for _ in rids],
        )

    with plain(conninfo) as connection:
        driver = SparkDriver(connection, qm.repository)
        with pytest.raises(QueueFull):
            driver.perform(enqueue("a", "b", "c"))
        assert qm.show("two").depth == 0
        assert driver.perform(enqueue("a", "b")) == 2
        assert driver.perform(enqueue("a", "b")) == 0
        with pytest.raises(QueueFull):
            driver.perform(enqueue("b", "c"))


def test_a_one_way_send_tells_later(qm: onceq.QueueManager) -> None:
    qm.declare(TWO)
    qm.enqueue_many(TWO, [b"1", b"2"])
    with qm.clerk("till", TWO) as clerk:
        clerk.send_one_way("1", b"x")
        with pytest.raises(QueueFull):
            clerk.receive(timeout_s=5)
        assert clerk.connect().last_sent is None


def test_clerks_at_a_desk_are_refused_and_wait(qm: onceq.QueueManager) -> None:
    qm.declare(TWO)
    qm.enqueue_many(TWO, [b"1", b"2"])
    with qm.clerks(connections=2) as desk, desk.clerk("till", TWO) as clerk:
        with pytest.raises(QueueFull):
            clerk.send("1", b"x")
        sending = Background(lambda: clerk.send("1", b"x", timeout_s=60))
        assert qm.dequeue("two") is not None
        assert sending.result().state == "new"


def test_a_stream_goes_through_a_small_queue(qm: onceq.QueueManager, conninfo: str) -> None:
    """More at once than it takes: fewer are sent, and each is done once."""
    qm.declare(TWO)
    requests = [(f"r{n}", b"%d" % n) for n in range(40)]
    with (
        serving(conninfo, qm.repository, TWO.handled_by(echo)),
        qm.clerk("till", TWO, window=30) as clerk,
    ):
        replies = [one.value for one in clerk.stream(requests, timeout_s=60)]
    assert sorted(replies) == sorted(body for _, body in requests)


def test_a_handler_that_meets_a_full_queue_is_charged_for_nothing(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """It is tried again until there is room, however often."""
    work = onceq.Queue("work", bytes, bytes, abort_limit=1, retry_limit=0)
    for queue in (work, TWO):
        qm.declare(queue)
    qm.enqueue_many(TWO, [b"1", b"2"])

    def hand_on(value: bytes, context: onceq.Context) -> bytes:
        qm.enqueue(TWO, value, connection=context.connection)
        return value

    with (
        qm.clerk("till", work) as clerk,
        serving(conninfo, qm.repository, work.handled_by(hand_on)),
    ):
        clerk.send("1", b"x")
        query = f"select aborts, faults, code from {qm.repository}.element where rid = '1'"
        wait_until(lambda: rows(conninfo, query) == [(0, 0, "QueueFull")])
        assert rows(conninfo, f"select * from {qm.repository}.attempt") == []
        qm.dequeue("two")
        assert clerk.receive(timeout_s=60).value == b"x"
    assert qm.show("two").depth == 2


def test_a_handler_that_enqueues_what_never_fits_is_charged(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """More at once than the queue ever takes: no wait helps, and nobody waits."""
    work = onceq.Queue("work", bytes, bytes, abort_limit=1)
    for queue in (work, TWO):
        qm.declare(queue)

    def hand_on(value: bytes, _: onceq.Context) -> bytes:
        qm.enqueue_many(TWO, [value] * 3)
        return value

    with (
        qm.clerk("till", work) as clerk,
        serving(conninfo, qm.repository, work.handled_by(hand_on)),
    ):
        clerk.send("1", b"x")
        with pytest.raises(RequestFailed) as failed:
            _ = clerk.receive(timeout_s=60).value
    assert failed.value.code == "QueueFull"
    with (
        qm.clerk("other", TWO, window=9) as clerk,
        pytest.raises(QueueFull, match="3 elements of 3 bytes never fit together") as never,
    ):
        clerk.send_many([(rid, b"x") for rid in "abc"], timeout_s=60)
    assert never.value.retry_after_s == math.inf


def test_limits_are_changed_by_two_at_once(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    statement = f"select {qm.repository}.limit_queue(queue_id, 7, null) from {qm.repository}.queue"
    with psycopg.connect(conninfo) as first, ThreadPoolExecutor(1) as pool:
        first.execute(statement.encode())
        other = pool.submit(qm.alter, onceq.AlterQueue(queue="raw", limits=onceq.Limits(depth=9)))
        first.commit()
        other.result(60)
    assert qm.show("raw").settings.limits == onceq.Limits(depth=9)


def test_rows_of_a_file_wait_for_room(
    qm: onceq.QueueManager, conninfo: str, tmp_path: Path
) -> None:
    qm.declare(TWO)
    path = tmp_path / "rows.csv"
    path.write_text("id\n" + "".join(f"{n}\n" for n in range(20)), encoding="utf-8")
    with serving(conninfo, qm.repository, TWO.handled_by(echo)):
        order = files.SubmitOrder(path=path, queue="two", rid="id")
        summary = files.submit(order, conninfo, qm.repository)
    assert (summary.sent, summary.rejected) == (20, 0)


def test_what_was_measured_goes_with_its_queue(qm: onceq.QueueManager, conninfo: str) -> None:
    """A while later, as a sender may still read it."""
    qm.declare(TWO)
    qm.destroy("two")
    query = f"select count(*) from {qm.repository}.unlogged_sequences() where relname ^@ 'fill_'"
    assert scalar(conninfo, query) == 3
    back = f"update {qm.repository}.queue set destroyed_at = 'epoch' where name = 'two' returning 1"
    scalar(conninfo, back)
    scalar(conninfo, f"select {qm.repository}.drop_marks()")
    assert scalar(conninfo, query) == 0
