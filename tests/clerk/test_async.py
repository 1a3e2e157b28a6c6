"""The async twins: the same calls, awaited, with the same answers (spec C13)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import (
    CannotConnect,
    Fenced,
    IllegalState,
    InvalidValue,
    QueueNotEmpty,
    ReceiveTimeout,
    RequestFailed,
    SchemaMissing,
)
from onceq.model import ops
from onceq.model.client_state import ClientState, Done, Submitted
from onceq.model.element import KillAnswer
from tests.parts import Background, rows, scalar, serving, wait_blocked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=2, backoff_ms=0)
WAIT_S = 60
SLOW_COMMIT = """
    create table onceq.slow (n integer);
    create function onceq.wait() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock(4711); return null; end';
    create constraint trigger waits after insert on onceq.slow
        deferrable initially deferred for each row execute function onceq.wait();
"""
"""A table whose rows make a commit wait."""


def play(conninfo: str, repository: str, scene: Callable[[Any], Awaitable[None]]) -> None:
    """Runs a scene on an async queue manager."""

    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.create(RAW)
            await scene(qm)

    asyncio.run(main())


async def echo(request: bytes, _: onceq.AsyncContext) -> bytes:
    if request == b"bad":
        raise ValueError("bad")
    return request


def test_queues_and_elements(conninfo: str, repository: str) -> None:
    async def scene(qm: onceq.AsyncQueueManager) -> None:
        assert not await qm.declare(RAW)
        eid = await qm.enqueue(RAW, b"x", rid="1", priority=9)
        await qm.enqueue_many(RAW, [b"y", b"z"])
        read = await qm.read(eid)
        assert read is not None
        assert read.body == b"x"
        with pytest.raises(QueueNotEmpty):
            await qm.destroy("raw")
        assert (await qm.show("raw")).ready == 3
        assert [one.state for one in await qm.lookup("1")] == ["queued"]
        first = await qm.dequeue("raw")
        assert first is not None
        assert first.eid == eid
        assert [one.outcome for one in await qm.resolve(eid)] == ["dequeued"]
        second = await qm.dequeue("raw", timeout_s=60)
        assert second is not None
        (third,) = await qm.lookup(queue="raw", state="queued")
        assert await qm.kill(third.eid) is KillAnswer.KILLED
        assert await qm.dequeue("raw", timeout_s=0.02) is None
        await qm.stop("raw")
        await qm.start("raw")
        await qm.alter(ops.AlterQueue(queue="raw", abort_limit=3))
        assert {one.name for one in await qm.queues()} == {"raw", "raw.error"}
        assert await qm.redrive(eid) is None
        await qm.destroy("raw")

    play(conninfo, repository, scene)


def test_a_session_and_its_recovery(conninfo: str, repository: str) -> None:
    async def scene(qm: onceq.AsyncQueueManager) -> None:
        async with qm.clerk("till", RAW) as clerk:
            assert (await clerk.send("1", b"x")).state == "new"
            assert isinstance(await clerk.recover(), Submitted)
            with pytest.raises(ReceiveTimeout):
                await clerk.receive(timeout_s=0.02)
            with pytest.raises(IllegalState):
                await clerk.disconnect()
        with serving(conninfo, repository, RAW.handled_by(echo)):
            async with qm.clerk("till", RAW) as clerk:
                assert clerk.state is ClientState.REQ_SENT
                reply = await clerk.receive(b"ckpt", timeout_s=WAIT_S)
                assert reply.value == b"x"
                assert await clerk.rereceive() == reply
                bad = await clerk.transceive("2", b"bad", timeout_s=WAIT_S)
                with pytest.raises(RequestFailed):
                    _ = bad.value
            async with qm.clerk("till", RAW, window=4) as clerk:
                assert clerk.last_received == "1"
                await clerk.receive(timeout_s=WAIT_S)
                await clerk.acknowledge(["2"])
                await clerk.send_many([("3", b"3"), ("4", b"4")])
                found = [one.rid for one in await clerk.receive_many(1, timeout_s=WAIT_S)]
                found += [one.rid for one in await clerk.receive_many(9, timeout_s=WAIT_S)]
                assert sorted(found) == ["3", "4"]
                await clerk.acknowledge(found)
                assert isinstance(await clerk.recover(), Done)
                await clerk.disconnect()
        async with qm.clerk("till", RAW) as old, qm.clerk("till", RAW) as new:
            await new.send("5", b"x")
            assert await new.cancel_last_request() is KillAnswer.KILLED
            with pytest.raises(Fenced):
                await old.send("6", b"x")

    play(conninfo, repository, scene)


def test_many_clerks_at_once_on_one_loop(conninfo: str, repository: str) -> None:
    async def scene(qm: onceq.AsyncQueueManager) -> None:
        async def client(name: str) -> list[bytes]:
            async with qm.clerk(name, RAW) as clerk:
                return [
                    (await clerk.transceive(str(n), f"{name} {n}".encode(), timeout_s=WAIT_S)).value
                    for n in range(5)
                ]

        answers = await asyncio.gather(*(client(f"c{n}") for n in range(5)))
        assert answers == [[f"c{c} {n}".encode() for n in range(5)] for c in range(5)]

    with serving(conninfo, repository, RAW.handled_by(echo), concurrency=2):
        play(conninfo, repository, scene)


def test_the_callers_transaction(conninfo: str, repository: str) -> None:
    async def scene(qm: onceq.AsyncQueueManager) -> None:
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            await onceq.enqueue_async(connection, RAW, b"x", repository=repository)
            await qm.enqueue(RAW, b"y", connection=connection)
            await connection.rollback()
            assert (await qm.show("raw")).depth == 0
            await qm.enqueue(RAW, b"x", connection=connection)
            await connection.commit()
            for aborts in range(2):
                element = await qm.dequeue("raw", timeout_s=60, connection=connection)
                assert element is not None
                assert element.aborts == aborts
                await connection.rollback()
            assert await qm.dequeue("raw", connection=connection) is None
            assert (await qm.show("raw.error")).held == 1
            async with qm.clerk("till", RAW) as clerk:
                await clerk.send("1", b"x")
                request = await qm.dequeue("raw", timeout_s=60, connection=connection)
                assert request is not None
                await qm.reply(connection, request, b"by hand")
                await connection.commit()
                assert (await clerk.receive(timeout_s=WAIT_S)).value == b"by hand"
            await qm.enqueue(RAW, b"stays")
            await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
            with pytest.raises(IllegalState):
                await qm.dequeue("raw", connection=connection)
            await connection.rollback()
            assert (await qm.show("raw")).claimed == 0
        with pytest.raises(InvalidValue):
            await qm.enqueue(RAW, b"x", connection=object())

    play(conninfo, repository, scene)


def test_registrations(conninfo: str, repository: str) -> None:
    async def scene(qm: onceq.AsyncQueueManager) -> None:
        (handle,) = await qm.register("raw", "device")
        eid = await qm.enqueue_tagged("raw", handle, b"x", b"tag")
        last = await qm.read_last("raw", handle)
        assert last is not None
        assert (last.eid, last.tag, last.body) == (eid, b"tag", b"x")
        assert await qm.dequeue_tagged("raw", handle, b"tag 2", timeout_s=60) is not None
        (again,) = await qm.register("raw", "device")
        assert again.tag == b"tag 2"
        assert await qm.deregister("raw", again)

    play(conninfo, repository, scene)


def test_what_cannot_be_opened(conninfo: str, repository_name: str) -> None:
    async def opening(url: str) -> None:
        async with onceq.open_async(url, repository=repository_name):
            pass

    with pytest.raises(SchemaMissing):
        asyncio.run(opening(conninfo))
    with pytest.raises(CannotConnect):
        asyncio.run(opening("postgresql://127.0.0.1:1/db"))


def test_a_cancelled_wait_loses_nothing(conninfo: str, repository: str) -> None:
    """asyncio cancels the wait; the clerk goes on, and its reply comes once."""

    async def scene(qm: onceq.AsyncQueueManager) -> None:
        async with qm.clerk("till", RAW) as clerk:
            await clerk.send("1", b"x")
            waiting = asyncio.create_task(clerk.receive())
            await asyncio.sleep(0.05)  # it waits now, or does not yet: both are cancelled
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with serving(conninfo, repository, RAW.handled_by(echo)):
                with contextlib.suppress(IllegalState):
                    assert (await clerk.receive(timeout_s=WAIT_S)).value == b"x"
                    return
                await clerk.connect()  # cancelled in the middle of an operation: connect tells
                assert (await clerk.receive(timeout_s=WAIT_S)).value == b"x"

    play(conninfo, repository, scene)


def test_a_kill_of_a_running_async_handler(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    running = threading.Event()
    go_on = threading.Event()

    async def hold(request: bytes, context: onceq.AsyncContext) -> bytes:
        await context.connection.execute("select 1")
        running.set()
        await asyncio.to_thread(go_on.wait, WAIT_S)
        return request

    with (
        serving(conninfo, repository, RAW.handled_by(hold)) as server,
        qm.clerk("till", RAW) as clerk,
    ):
        clerk.send("1", b"x")
        assert running.wait(WAIT_S)
        assert clerk.cancel_last_request() is KillAnswer.KILLED
        with pytest.raises(onceq.Cancelled):
            _ = clerk.receive(timeout_s=WAIT_S).value
        go_on.set()
        assert clerk.transceive("2", b"y", timeout_s=WAIT_S).value == b"y"
        assert server.statistics().claims_lost == 1
    found = rows(conninfo, f"select rid, outcome::text from {repository}.history order by rid")
    assert found == [("1", "cancelled"), ("2", "done")]


def test_a_kill_that_meets_a_finish_waits_for_its_decision(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """The finish holds the row; here it waits before its commit, on a constraint's trigger."""
    qm.declare(RAW)
    with psycopg.connect(conninfo, autocommit=True) as gatekeeper:
        gatekeeper.execute("select pg_advisory_lock(4711)")
        gatekeeper.execute(SLOW_COMMIT.replace("onceq.", f"{repository}.").encode())

        def handle(request: bytes, context: onceq.Context) -> bytes:
            context.connection.execute(f"insert into {repository}.slow values (1)".encode())
            return request

        with (
            serving(conninfo, repository, RAW.handled_by(handle)),
            qm.clerk("till", RAW) as clerk,
            onceq.open(conninfo, repository=repository) as other,
        ):
            eid = clerk.send("1", b"x").eid
            wait_blocked(conninfo, "commit")
            killing = Background(lambda: other.kill(eid))
            wait_blocked(conninfo, f"{repository}.kill")
            gatekeeper.execute("select pg_advisory_unlock(4711)")
            assert killing.result() is KillAnswer.TOO_LATE
            assert clerk.receive(timeout_s=WAIT_S).value == b"x"
    assert scalar(conninfo, f"select count(*) from {repository}.slow") == 1
