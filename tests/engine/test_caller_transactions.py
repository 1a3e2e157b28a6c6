"""Enqueue and dequeue inside the caller's own transaction: its ends, and kill (spec Q2, G8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import onceq
from onceq.errors import (
    CannotConnect,
    ClaimLost,
    EnvironmentFault,
    IllegalState,
    InvalidValue,
    OperatingError,
)
from onceq.manager.closing import WATCH_S
from onceq.model import ops
from onceq.model.element import KillAnswer
from tests.lives import living
from tests.parts import Background, plain, rows, scalar, wait_blocked, wait_until

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=3)


SOON_S = 20 * WATCH_S


def aborts(conninfo: str, repository: str) -> list[tuple[Any, ...]]:
    return rows(conninfo, f"select aborts, code from {repository}.element where role <> 'reply'")


def test_a_request_that_gets_no_reply_is_not_committed(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as connection:
        clerk.send("1", b"x")
        assert qm.dequeue("raw", connection=connection) is not None
        with pytest.raises(psycopg.Error, match="owes a reply"):
            connection.commit()
        again = qm.dequeue("raw", timeout_s=60, connection=connection)
        assert again is not None
        assert again.aborts == 1
        connection.rollback()


def test_a_reply_needs_a_dequeue_in_the_same_transaction(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    element = qm.read(eid)
    assert element is not None
    with psycopg.connect(conninfo) as connection:
        with pytest.raises(IllegalState):
            qm.reply(connection, element, b"")
        taken = qm.dequeue("raw", connection=connection)
        assert taken is not None
        connection.rollback()
        with pytest.raises(IllegalState):
            qm.reply(connection, taken, b"")


def test_a_kill_makes_the_commit_of_a_dequeue_fail(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"create table {repository}.effects (n integer)".encode())
        connection.commit()
        assert qm.dequeue("raw", connection=connection) is not None
        connection.execute(f"insert into {repository}.effects values (1)".encode())
        assert qm.kill(eid, timeout_s=60) is KillAnswer.KILLED
        with pytest.raises(psycopg.Error, match="no longer claimed") as refused:
            connection.commit()
        assert refused.value.sqlstate == "OQ002"  # ClaimLost
    assert scalar(conninfo, f"select count(*) from {repository}.effects") == 0
    assert [one.outcome for one in qm.lookup(eid=eid)] == ["cancelled"]
    assert qm.dequeue("raw") is None


def test_a_kill_waits_for_a_commit_that_has_begun(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with (
        psycopg.connect(conninfo) as connection,
        onceq.open(conninfo, repository=repository) as other,
    ):
        assert qm.dequeue("raw", connection=connection) is not None
        connection.execute("set constraints all immediate")  # what a commit does first
        killing = Background(lambda: other.kill(eid))
        wait_blocked(conninfo, f"{repository}.kill", killing)
        connection.commit()
        assert killing.result() is KillAnswer.TOO_LATE


def test_a_dequeue_whose_queue_manager_died_does_not_commit(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        with onceq.open(conninfo, repository=repository) as dead:
            assert dead.dequeue("raw", connection=connection) is not None
            dead._taker.link.connection.close()  # as by its death; the caller's connection lives
        with living(conninfo, repository) as life:
            wait_until(lambda: life.take_over() > 0)
            life.driver.perform(
                ops.Judge(process=dead._taker.held.process, verdict=ops.Verdict.ENDED)
            )
            other = qm.dequeue("raw", timeout_s=60)
        assert other is not None
        with pytest.raises(psycopg.Error, match="no longer claimed"):
            connection.commit()


def test_a_dequeue_that_another_has_claimed_since_does_not_commit(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection, living(conninfo, repository) as other:
        with onceq.open(conninfo, repository=repository) as dead:
            assert dead.dequeue("raw", connection=connection) is not None
            dead._taker.link.connection.close()
        wait_until(lambda: other.take_over() > 0)
        other.driver.perform(ops.Judge(process=dead._taker.held.process, verdict=ops.Verdict.ENDED))
        wait_until(lambda: bool(other.claim("raw")))
        with pytest.raises(psycopg.Error, match="no longer claimed"):
            connection.commit()


def roll_back(connection: psycopg.Connection[Any]) -> None:
    connection.rollback()


def die(connection: psycopg.Connection[Any]) -> None:
    connection.close()


@pytest.mark.parametrize("end", [roll_back, die])
def test_what_was_rolled_back_comes_back_while_its_queue_manager_is_idle(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    end: Callable[[psycopg.Connection[Any]], None],
) -> None:
    """Each time, and not before the transaction has ended."""
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with onceq.open(conninfo, repository=repository) as idle:
        for n in range(1, 3):
            with psycopg.connect(conninfo) as connection:
                assert idle.dequeue("raw", timeout_s=60, connection=connection) is not None
                assert qm.dequeue("raw", timeout_s=2 * WATCH_S) is None
                end(connection)
                wait_until(lambda: qm.show("raw").claimed == 0, SOON_S)
                assert [one.aborts for one in qm.lookup(eid=eid)] == [n]
        assert qm.dequeue("raw", timeout_s=60) is not None
        wait_until(lambda: idle._taker.watching is None)  # nothing is left to look after


def test_what_a_task_rolled_back_comes_back_while_its_queue_manager_is_idle(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")

    async def roll_back_and_wait() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as idle,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            assert await idle.dequeue("raw", connection=connection) is not None
            await connection.rollback()
            again = await asyncio.to_thread(qm.dequeue, "raw", timeout_s=SOON_S)
            assert again is not None
            assert again.aborts == 1

    asyncio.run(roll_back_and_wait())


def test_what_a_dequeue_held_that_was_cut_short_comes_back_uncharged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Its task is cancelled while it takes what it has claimed; so nobody knows of the claim."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")

    async def cut_short_and_wait() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as idle,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            with plain(conninfo) as blocker:
                blocker.execute("begin")
                blocker.execute(f"lock table {repository}.taken".encode())
                dequeue = asyncio.ensure_future(idle.dequeue("raw", connection=connection))
                await asyncio.to_thread(wait_until, lambda: qm.show("raw").claimed == 1)
                dequeue.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await dequeue
                blocker.execute("rollback")
            again = await asyncio.to_thread(qm.dequeue, "raw", timeout_s=SOON_S)
            assert again is not None
            assert again.aborts == 0

    asyncio.run(cut_short_and_wait())


def test_what_an_open_transaction_has_dequeued_is_not_charged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.declare(onceq.Queue("empty", bytes, bytes))
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as two:
        assert qm.dequeue("raw", connection=one) is not None
        assert qm.dequeue("empty", connection=two) is None  # and looks at what has ended
        assert aborts(conninfo, repository) == [(0, None)]
        one.commit()
    assert qm.show("raw").depth == 0


def test_a_queue_manager_that_connects_again_is_a_new_incarnation(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    for body in (b"1", b"2"):
        qm.enqueue(RAW, body)
    with psycopg.connect(conninfo) as connection:
        assert qm.dequeue("raw", connection=connection) is not None
        connection.commit()
        scalar(
            conninfo,
            "select count(pg_terminate_backend(backend_pid, 60000))"
            f" from {repository}.servers where alive",
        )
        with pytest.raises(OperatingError):
            qm.dequeue("raw", connection=connection)
        element = qm.dequeue("raw", connection=connection)
        assert element is not None
        alive = f"select claims from {repository}.servers where alive"
        wait_until(lambda: rows(conninfo, alive) == [(1,)])
        connection.commit()
    assert qm.show("raw").depth == 0


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_dequeue_refuses_a_transaction_with_a_snapshot_of_its_own(
    qm: onceq.QueueManager, conninfo: str, repository: str, isolation: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"set transaction isolation level {isolation}".encode())
        with pytest.raises(IllegalState, match="READ COMMITTED"):
            qm.dequeue("raw", connection=connection)
        connection.rollback()
    found = qm.dequeue("raw", timeout_s=60)
    if found is None:
        assert aborts(conninfo, repository) == [(0, None)]
    assert qm.show("raw").claimed == 0


def test_closing_a_manager_ends_the_waits_of_tasks(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """At once, though the wait grows; and once it is connected again, they wait again."""
    qm.declare(RAW)

    async def wait_and_close() -> None:
        own = await onceq.open_async(conninfo, repository=repository)
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            dequeue = own.dequeue("raw", timeout_s=600, connection=connection)
            waiting = asyncio.ensure_future(dequeue)
            await asyncio.sleep(0.1)
            await own.close()
            with pytest.raises(CannotConnect, match="is closed"):
                await asyncio.wait_for(waiting, 60)
        async with own, await psycopg.AsyncConnection.connect(conninfo) as connection:
            assert not own._taker.closed.is_set()
            assert await own.dequeue("raw", timeout_s=0.1, connection=connection) is None

    asyncio.run(wait_and_close())


@pytest.mark.parametrize("value", [None, "postgresql://", 7, object()])
def test_what_is_no_connection_is_refused(
    qm: onceq.QueueManager, repository: str, value: object
) -> None:
    qm.declare(RAW)
    with pytest.raises(InvalidValue, match="is not a connection"):
        onceq.enqueue(value, RAW, b"x", repository=repository)
    if value is not None:
        with pytest.raises(InvalidValue, match="is not a connection"):
            qm.enqueue(RAW, b"x", connection=value)
    assert qm.show("raw").depth == 0


def test_a_failed_transaction_takes_nothing(qm: onceq.QueueManager, conninfo: str) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1 / 0")
        with pytest.raises(onceq.OnceqError):
            qm.dequeue("raw", connection=connection)
        connection.rollback()
        again = qm.dequeue("raw", timeout_s=60, connection=connection)
        assert again is not None
        connection.commit()
    assert qm.show("raw").depth == 0
    assert ClaimLost.outcome is onceq.Outcome.NOTHING_HAPPENED


@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_snapshot_from_before_a_queue_was_destroyed_enqueues_nothing_there(
    qm: onceq.QueueManager, conninfo: str, level: str
) -> None:
    qm.declare(RAW)
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        connection.execute("select 1")  # its snapshot
        qm.destroy("raw")
        with pytest.raises(EnvironmentFault, match="concurrent update"):
            onceq.enqueue(connection, RAW, b"lost", repository=qm.repository)
    assert scalar(conninfo, f"select count(*) from {qm.repository}.element") == 0
