"""Tagged operations, outside and in the caller's transaction: spec Q5 (BHM90 4.3)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

import onceq
from onceq.errors import DeadlineExceeded, Fenced, IllegalState, TooLarge
from onceq.model import ops
from onceq.model.element import KillAnswer, RequestOutcome
from tests.parts import Background, rows, scalar, wait_blocked, wait_until

RAW = onceq.Queue("raw", bytes, bytes, tag_bytes_max=100, backoff_ms=0)
FORMER = ("enqueue", b"former", b"the former")

Operation = Callable[..., Any]


def enqueue(qm: Any, handle: ops.Registered, eid: UUID, tag: bytes, **on: Any) -> Any:
    del eid
    return qm.enqueue_tagged("raw", handle, b"x", tag, **on)


def dequeue(qm: Any, handle: ops.Registered, eid: UUID, tag: bytes, **on: Any) -> Any:
    del eid
    return qm.dequeue_tagged("raw", handle, tag, **on)


def read(qm: Any, handle: ops.Registered, eid: UUID, tag: bytes, **on: Any) -> Any:
    return qm.read_tagged("raw", handle, eid, tag, **on)


def kill(qm: Any, handle: ops.Registered, eid: UUID, tag: bytes, **on: Any) -> Any:
    return qm.kill_tagged("raw", handle, eid, tag, **on)


OPERATIONS: dict[str, Operation] = {
    "enqueue": enqueue,
    "dequeue": dequeue,
    "read": read,
    "kill": kill,
}
each = pytest.mark.parametrize("kind", list(OPERATIONS))


def told(qm: onceq.QueueManager, handle: ops.Registered) -> tuple[Any, ...]:
    last = qm.read_last("raw", handle)
    assert last is not None
    return (last.kind, last.tag, last.body)


def begun(qm: onceq.QueueManager, name: str = "device") -> ops.Registered:
    """A registrant whose last operation is FORMER, of an element that is gone."""
    qm.declare(RAW)
    (handle,) = qm.register("raw", name)
    qm.enqueue_tagged("raw", handle, FORMER[2], FORMER[1])
    assert qm.dequeue("raw") is not None
    return handle


@each
def test_each_operation_leaves_its_kind_its_tag_its_eid_and_a_copy(
    qm: onceq.QueueManager, kind: str
) -> None:
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    answer = OPERATIONS[kind](qm, handle, eid, b"tag")
    assert told(qm, handle) == (kind, b"tag", b"x")
    (again,) = qm.register("raw", "device")
    assert (again.kind, again.tag) == (kind, b"tag")
    assert again.eid == (answer if kind == "enqueue" else eid)
    assert qm.show("raw").depth == {"enqueue": 2, "read": 1}.get(kind, 0)


@each
@pytest.mark.parametrize("commits", [True, False])
def test_the_tag_is_part_of_the_callers_transaction(
    qm: onceq.QueueManager, conninfo: str, kind: str, *, commits: bool
) -> None:
    """Others know the former one until it commits, and so it stays if it rolls back."""
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        answer = OPERATIONS[kind](qm, handle, eid, b"tag", connection=connection)
        assert told(qm, handle) == FORMER
        if commits:
            connection.commit()
        else:
            connection.rollback()
    (again,) = qm.register("raw", "device")
    assert told(qm, again) == ((kind, b"tag", b"x") if commits else FORMER)
    if commits:
        assert again.eid == (answer if kind == "enqueue" else eid)
        assert qm.show("raw").depth == {"enqueue": 2, "read": 1}.get(kind, 0)
    else:
        wait_until(lambda: [one.eid for one in qm.peek("raw")] == [eid])


@each
def test_a_task_tags_in_its_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")

    async def operate() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as own,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            await OPERATIONS[kind](own, handle, eid, b"void", connection=connection)
            await connection.rollback()
            last = await own.read_last("raw", handle)
            assert last is not None
            assert last.tag == FORMER[1]
            eid_2 = await own.enqueue(RAW, b"x") if kind == "dequeue" else eid
            await OPERATIONS[kind](own, handle, eid_2, b"tag", connection=connection)
            await connection.commit()
            assert await own.read_last("raw", handle) is not None

    asyncio.run(operate())
    assert told(qm, handle) == (kind, b"tag", b"x")


CHILD = """
import sys, psycopg, onceq, time
from tests.engine.test_tagged import OPERATIONS
from uuid import UUID
conninfo, repository, kind, eid, commits = sys.argv[1:]
with onceq.open(conninfo, repository=repository) as qm, psycopg.connect(conninfo) as connection:
    handle = qm.register("raw", "device")[0]
    OPERATIONS[kind](qm, handle, UUID(eid), b"tag", connection=connection)
    if commits == "yes":
        connection.commit()
    print("done", flush=True)
    time.sleep(600)
"""


@each
@pytest.mark.parametrize("commits", ["yes", "no"])
def test_a_process_that_is_killed_leaves_all_or_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str, commits: str
) -> None:
    begun(qm)
    eid = qm.enqueue(RAW, b"x")
    command = [sys.executable, "-c", CHILD, conninfo, repository, kind, str(eid), commits]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        child.send_signal(signal.SIGKILL)
    (again,) = qm.register("raw", "device")  # it waits for what the dead one has left
    assert told(qm, again) == ((kind, b"tag", b"x") if commits == "yes" else FORMER)
    ended = rows(conninfo, f"select outcome::text from {repository}.history")
    done = {"dequeue": ("dequeued",), "kill": ("cancelled",)} if commits == "yes" else {}
    assert ended[1:] == [done[one] for one in (kind,) if one in done]
    count = scalar(conninfo, f"select count(*) from {repository}.element")
    assert count == 1 - (kind in done) + (kind == "enqueue" and commits == "yes")


@each
def test_a_second_transaction_of_a_registrant_waits_for_the_first(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    """So what is recorded last is what has committed last."""
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    with (
        psycopg.connect(conninfo) as connection,
        onceq.open(conninfo, repository=repository) as other,
    ):
        qm.enqueue_tagged("raw", handle, b"first", b"first", connection=connection)
        second = Background(lambda: OPERATIONS[kind](other, handle, eid, b"second"))
        wait_blocked(conninfo, f"{repository}.", second)
        connection.commit()
        second.result()
    assert told(qm, handle) == (kind, b"second", b"x")
    query = f"select tag from {repository}.registration"
    assert rows(conninfo, query) == [(b"second",)]


def test_a_registration_waits_for_the_transaction_of_the_former_life(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    handle = begun(qm)
    with (
        psycopg.connect(conninfo) as connection,
        onceq.open(conninfo, repository=repository) as other,
    ):
        qm.enqueue_tagged("raw", handle, b"x", b"tag", connection=connection)
        registering = Background(lambda: other.register("raw", "device"))
        wait_blocked(conninfo, f"{repository}.register", registering)
        connection.commit()
        (again,) = registering.result()
        assert (again.kind, again.tag) == ("enqueue", b"tag")
        with pytest.raises(Fenced):
            qm.enqueue_tagged("raw", handle, b"x", b"late", connection=connection)


def refusals(call: Callable[[], Any], on: psycopg.Connection[Any]) -> list[str]:
    """The DeadlineExceeded of a call, if it is refused; its transaction is then rolled back."""
    try:
        call()
    except DeadlineExceeded as error:
        on.rollback()
        return [str(error)]
    on.commit()
    return []


@each
def test_opposite_orders_are_refused_and_no_deadlock(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    """Two of everything: two registrants, two elements, two transactions, and two managers."""
    handles = [begun(qm), begun(qm, "other")]
    eids = [qm.enqueue(RAW, b"x") for _ in range(4)]
    operate = OPERATIONS[kind]
    with (
        onceq.open(conninfo, repository=repository) as other,
        psycopg.connect(conninfo) as one,
        psycopg.connect(conninfo) as two,
    ):
        operate(qm, handles[0], eids[0], b"1", connection=one)
        operate(other, handles[1], eids[1], b"2", connection=two)
        crossing = Background(lambda: operate(qm, handles[1], eids[2], b"3", connection=one))
        last = Background(lambda: operate(other, handles[0], eids[3], b"4", connection=two))
        refused = [*refusals(crossing.result, one), *refusals(last.result, two)]
    assert refused
    assert all("has not ended: nothing happened" in one for one in refused)
    tags = {told(qm, handle)[1] for handle in handles}
    assert tags == ({FORMER[1]} if len(refused) == 2 else {b"2", b"4"})


def test_two_kills_in_opposite_orders_are_refused_and_no_deadlock(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    handles = [begun(qm), begun(qm, "other")]
    eids = [qm.enqueue(RAW, b"x") for _ in range(2)]
    with (
        onceq.open(conninfo, repository=repository) as other,
        psycopg.connect(conninfo) as one,
        psycopg.connect(conninfo) as two,
    ):
        kill(qm, handles[0], eids[0], b"1", connection=one)
        kill(other, handles[1], eids[1], b"2", connection=two)
        crossing = Background(lambda: kill(qm, handles[0], eids[1], b"3", connection=one))
        last = Background(lambda: kill(other, handles[1], eids[0], b"4", connection=two))
        assert [*refusals(crossing.result, one), *refusals(last.result, two)]


def test_a_transaction_that_has_written_does_not_wait_long(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """The other may wait for what it has written; after a second PostgreSQL would end it."""
    handle = begun(qm)
    with (
        onceq.open(conninfo, repository=repository) as other,
        psycopg.connect(conninfo) as one,
        psycopg.connect(conninfo) as two,
    ):
        two.execute("set deadlock_timeout = '10min'")  # it is not the one that PostgreSQL ends
        two.commit()
        one.execute(f"create table {repository}.mine (n integer primary key)".encode())
        one.execute(f"insert into {repository}.mine values (1)".encode())
        one.commit()
        one.execute(f"update {repository}.mine set n = 2".encode())
        qm.enqueue_tagged("raw", handle, b"x", b"1", connection=two)
        writing = Background(lambda: two.execute(f"update {repository}.mine set n = 3".encode()))
        wait_blocked(conninfo, f"update {repository}.mine", writing)
        with pytest.raises(DeadlineExceeded, match="roll back and try again"):
            other.enqueue_tagged("raw", handle, b"x", b"2", connection=one)
        one.rollback()
        writing.result()
        two.commit()
    assert told(qm, handle) == ("enqueue", b"1", b"x")


@each
def test_the_settings_of_the_callers_transaction_stay(
    qm: onceq.QueueManager, conninfo: str, kind: str
) -> None:
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        connection.execute("set lock_timeout = '7s'")
        OPERATIONS[kind](qm, handle, eid, b"tag", connection=connection)
        assert connection.execute("show lock_timeout").fetchone() == ("7s",)


@each
@pytest.mark.parametrize("inside", [True, False])
def test_what_cannot_be_recorded_is_not_done(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str, *, inside: bool
) -> None:
    """A tag that is too long, a queue without a registration, a life that is over."""
    handle = begun(qm)
    qm.declare(onceq.Queue("other", bytes, bytes))
    eid = qm.enqueue(RAW, b"x")
    operate = OPERATIONS[kind]
    with psycopg.connect(conninfo) as connection:
        on = {"connection": connection} if inside else {}
        with pytest.raises(TooLarge, match="tag has 101 bytes"):
            operate(qm, handle, eid, bytes(101), **on)
        connection.rollback()
        (alone,) = qm.register("other", "alone")
        with pytest.raises(IllegalState, match="not registered"):
            operate(qm, alone, eid, b"tag", **on)
        connection.rollback()
        (new,) = qm.register("raw", "device")
        with pytest.raises(Fenced):
            operate(qm, handle, eid, b"tag", **on)
    assert told(qm, new) == FORMER
    state = rows(conninfo, f"select eid, aborts, claimed_by from {repository}.element")
    assert state == [(eid, 0, None)]


@each
def test_a_transaction_with_a_snapshot_of_its_own_is_refused(
    qm: onceq.QueueManager, conninfo: str, kind: str
) -> None:
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(IllegalState, match="READ COMMITTED"):
            OPERATIONS[kind](qm, handle, eid, b"tag", connection=connection)
    assert told(qm, handle) == FORMER


def test_a_kill_takes_the_tag_of_a_dequeue_along(qm: onceq.QueueManager, conninfo: str) -> None:
    handle = begun(qm)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        assert qm.dequeue_tagged("raw", handle, b"tag", connection=connection) is not None
        assert qm.kill(eid, timeout_s=60) is KillAnswer.KILLED
        with pytest.raises(psycopg.Error, match="no longer claimed"):
            connection.commit()
    assert told(qm, handle) == FORMER


def test_a_request_is_dequeued_tagged_and_answered_in_one_transaction(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    handle = begun(qm)
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        clerk.send("1", b"x")
        element = qm.dequeue_tagged("raw", handle, b"tag", timeout_s=60, connection=connection)
        assert element is not None
        qm.reply(connection, element, b"reply")
        connection.commit()
        assert clerk.receive(timeout_s=60).value == b"reply"
    assert told(qm, handle) == ("dequeue", b"tag", b"x")


@pytest.mark.parametrize("commits", [True, False])
def test_a_kill_in_a_transaction_ends_a_request_with_its_commit(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, commits: bool
) -> None:
    """Whoever wants to end it too waits until then."""
    handle = begun(qm)
    with (
        qm.clerk("till", RAW) as clerk,
        psycopg.connect(conninfo) as connection,
        onceq.open(conninfo, repository=repository) as other,
    ):
        clerk.send("1", b"x")
        (request,) = qm.lookup("1")
        assert kill(qm, handle, request.eid, b"tag", connection=connection) is KillAnswer.KILLED
        killing = Background(lambda: other.kill(request.eid))
        wait_blocked(conninfo, f"{repository}.kill", killing)
        if commits:
            connection.commit()
        else:
            connection.rollback()
        assert killing.result() is KillAnswer.KILLED
        assert clerk.receive(timeout_s=60).outcome is RequestOutcome.CANCELLED
    assert told(qm, handle) == (("kill", b"tag", b"x") if commits else FORMER)
