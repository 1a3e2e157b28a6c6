"""The desk: clerks that share connections. What waits together goes together."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import onceq
from onceq.engine.desk import sleeper
from onceq.engine.desk.async_desk import AsyncDesk
from onceq.errors import (
    CannotConnect,
    DeadlineExceeded,
    Fenced,
    IllegalState,
    InDoubt,
    OnceqError,
    QueueStopped,
    ReceiveTimeout,
    RidReused,
    TooLarge,
)
from onceq.model.client_state import ClientState
from tests.engine.pooler import Pooler, pooling
from tests.parts import plain, rows, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Generator

T = TypeVar("T")
Crowd = list[onceq.AsyncClerk[bytes, bytes]]

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, body_bytes_max=1000)
CROWD = 12
LIMIT_S = 60.0
HOLD = "select pg_advisory_xact_lock('{}.registrant'::regclass::oid::integer, registrant_id)"


def echo(body: bytes, _: onceq.Context) -> bytes:
    return body + b"!"


@pytest.fixture(autouse=True)
def failed_groups(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A group that fails goes one by one, which nobody would see: none fails in these tests."""
    failed: list[OnceqError] = []
    fail = AsyncDesk._failed

    def noted(self: Any, group: list[Any], error: OnceqError) -> None:
        failed.extend([error] * (len(group) > 1))
        fail(self, group, error)

    monkeypatch.setattr(AsyncDesk, "_failed", noted)
    yield
    expected = (InDoubt, CannotConnect, DeadlineExceeded)
    assert [one for one in failed if not isinstance(one, expected)] == []


@pytest.fixture
def declared(qm: onceq.QueueManager) -> onceq.QueueManager:
    qm.declare(RAW)
    return qm


@contextlib.asynccontextmanager
async def crowded(
    qm: onceq.QueueManager, *, url: str | None = None, connections: int = 1, **options: Any
) -> AsyncGenerator[Crowd]:
    """Connected clerks of one desk. What they are asked at one time is in one group."""
    where = url or qm.located.conninfo
    async with (
        asyncio.timeout(LIMIT_S),
        onceq.open_async(where, repository=qm.repository) as manager,
        manager.clerks(connections=connections) as clerks,
    ):
        crowd = [clerks.clerk(f"c{n:02}", RAW, **options) for n in range(CROWD)]
        for one in crowd:
            await one.connect()
        yield crowd


async def each(calls: list[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


def kinds(found: list[Any]) -> list[str]:
    return [type(one).__name__ if isinstance(one, OnceqError) else "in" for one in found]


def xids(conninfo: str, qm: onceq.QueueManager) -> list[int]:
    """How many elements each transaction has made."""
    found = rows(
        conninfo, f"select count(*) from {qm.repository}.element group by xmin::text order by 1"
    )
    return [count for (count,) in found]


def test_a_group_is_one_transaction_with_an_answer_for_each(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            sent = await each([one.send("1", b"%d" % n) for n, one in enumerate(crowd)])
            assert xids(conninfo, declared) == [CROWD]
            assert [one.state for one in sent if isinstance(one, onceq.model.ops.Sent)] == [
                "new"
            ] * CROWD
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                replies: list[Any] = await each([one.receive(timeout_s=30) for one in crowd])
            assert [one.value for one in replies] == [b"%d!" % n for n in range(CROWD)]
            eids = {one.eid for one in sent if not isinstance(one, BaseException)}
            table = f"{declared.repository}.history"
            assert eids == {eid for (eid,) in rows(conninfo, f"select eid from {table}")}
            # The next send acknowledges; so each reply is there until then, and no longer.
            assert len(xids(conninfo, declared)) == CROWD
            await each([one.send("2", b"x") for one in crowd])
            roles = rows(
                conninfo, f"select role, count(*) from {declared.repository}.element group by 1"
            )
            assert roles == [("request", CROWD)]

    asyncio.run(run())


def test_who_does_not_fit_falls_out_alone(conninfo: str, declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x") for one in crowd])
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                await each([one.receive(timeout_s=30) for one in crowd])
            await crowd[3].acknowledge(["1"])
            with declared.clerk("c00", RAW):
                found = await each(
                    [
                        crowd[0].send("2", b"x"),
                        crowd[1].send("1", b"other"),
                        crowd[2].send("2", b"x" * 1001),
                        crowd[3].send("1", b"x"),
                        crowd[4].send("2", b"x", priority=9),
                        crowd[5].send("2", b"x", expires_at=None),
                        *(one.send("2", b"x") for one in crowd[6:]),
                    ]
                )
            assert kinds(found) == ["Fenced", "RidReused", "TooLarge", *["in"] * (CROWD - 3)]
            assert [type(one) for one in found[:3]] == [Fenced, RidReused, TooLarge]
            assert [one.state for one in found[3:]] == ["done", *["new"] * (CROWD - 4)]
            group = CROWD - 5
            assert max(xids(conninfo, declared)) == group
            # Whose send was refused still has its reply: only what went in acknowledges.
            assert (await crowd[1].rereceive()).value == b"x!"
            left = rows(
                conninfo,
                f"select count(*) from {declared.repository}.element where role = 'reply'",
            )
            assert left == [(3,)]

    asyncio.run(run())


def test_a_fenced_life_gets_no_reply(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x") for one in crowd])
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                await each([one.receive(timeout_s=30) for one in crowd[1:]])
            with declared.clerk("c00", RAW):
                found = await each([crowd[0].receive(timeout_s=30), crowd[1].rereceive()])
            assert kinds(found) == ["Fenced", "in"]

    asyncio.run(run())


def test_who_waits_for_what_expires_is_told_so(declared: onceq.QueueManager) -> None:
    """Nobody serves: the look of a receive makes the reply, and a group leaves that out."""

    async def run() -> None:
        async with crowded(declared) as crowd:
            soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.3)
            await crowd[0].send("1", b"x", expires_at=soon)
            await crowd[1].send("1", b"x")
            found: list[Any] = await each([one.receive(timeout_s=3) for one in crowd[:2]])
            assert found[0].outcome is onceq.RequestOutcome.EXPIRED
            assert type(found[1]) is ReceiveTimeout

    asyncio.run(run())


def test_a_group_that_fails_goes_one_by_one(conninfo: str, declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            with plain(conninfo) as holder:
                holder.execute("begin")
                holder.execute(f"lock table {declared.repository}.element".encode())
                late = [asyncio.create_task(one.send("1", b"x")) for one in crowd]
                await asyncio.sleep(0.2)
                assert not any(one.done() for one in late)
                holder.execute("rollback")
            assert [one.state for one in await asyncio.gather(*late)] == ["new"] * CROWD
            assert declared.show("raw").depth == CROWD

    asyncio.run(run())


def test_no_session_notes_that_a_clerk_sleeps(conninfo: str, declared: onceq.QueueManager) -> None:
    """Its clerks are always rung; what a session of theirs would note, nobody would take back."""

    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x") for one in crowd])
            found = await each([one.receive(timeout_s=0.05) for one in crowd[:3]])
            assert kinds(found) == ["ReceiveTimeout"] * 3
            asleep = rows(
                conninfo,
                "select objid from pg_locks where locktype = 'advisory' and objsubid = 2 and"
                f" classid = '{declared.repository}.registrant_pkey'::regclass",
            )
            assert set(asleep) == {(0,)}

    asyncio.run(run())


def test_a_queue_that_is_stopped_refuses_each(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            declared.stop("raw")
            found = await each([one.send("1", b"x") for one in crowd])
            assert {type(one) for one in found} == {QueueStopped}
            declared.start("raw")
            assert kinds(await each([one.send("1", b"x") for one in crowd])) == ["in"] * CROWD

    asyncio.run(run())


@pytest.fixture
def pooler(conninfo: str) -> Generator[Pooler]:
    with pooling(conninfo, "session") as one:
        yield one


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_lost_commit_is_told_to_each_and_connect_tells_the_truth(
    declared: onceq.QueueManager, pooler: Pooler, side: str
) -> None:
    async def run() -> None:
        async with crowded(declared, url=pooler.url) as crowd:
            pooler.cut = (rb"\.send_each\(", side)
            found = await each([one.send("1", b"x") for one in crowd])
            assert {type(one) for one in found} == {InDoubt}
            assert len({id(one) for one in found}) == CROWD
            with pytest.raises(IllegalState, match="connect"):
                await crowd[0].send("2", b"y")
            for one in crowd:
                await one.connect()
            sent = {one.last_sent for one in crowd}
            assert sent == ({None} if side == "before" else {"1"})
            states = [(await one.where("1")) is not None for one in crowd]
            assert states == [side == "after"] * CROWD

    asyncio.run(run())


def test_a_reply_is_told_by_a_ring(
    declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    wait = sleeper.AsyncSleeper.wait

    async def noted(self: Any, timeout_s: float) -> bool:
        ended.append(await wait(self, timeout_s))
        return ended[-1]

    monkeypatch.setattr(sleeper.AsyncSleeper, "wait", noted)

    async def run() -> None:
        async with crowded(declared) as crowd:
            one = crowd[0]
            await one.send("1", b"x")
            waiting = asyncio.create_task(one.receive(timeout_s=30))
            await asyncio.sleep(0.1)
            assert ended, "it has looked at least once, in vain"
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                assert (await waiting).value == b"x!"
            assert ended[-1]

    asyncio.run(run())


def test_what_needs_a_connection_is_refused_and_the_session_goes_on(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            one = crowd[0]
            with pytest.raises(IllegalState, match="no connection of its own"):
                await one.send_one_way("1", b"x")
            with plain(conninfo) as own, pytest.raises(IllegalState, match="no connection"):
                await one.receive(connection=own)
            assert (await one.send("1", b"x")).state == "new"

    asyncio.run(run())


def test_one_ghost_blocks_nobody(conninfo: str, declared: onceq.QueueManager) -> None:
    """Whose lock is held waits for it, and holds no connection: there is one for all."""

    async def run() -> None:
        async with crowded(declared, window=3) as crowd:
            with plain(conninfo) as ghost:
                ghost.execute("begin")
                hold = HOLD.format(declared.repository)
                table = f"{declared.repository}.registrant"
                ghost.execute(f"{hold} from {table} where name in ('c00', 'c01', 'c02')".encode())
                late = [
                    asyncio.create_task(crowd[0].send("1", b"x")),
                    asyncio.create_task(crowd[1].connect()),
                    asyncio.create_task(crowd[2].disconnect()),
                ]
                for rid in "123":
                    assert kinds(await each([one.send(rid, b"x") for one in crowd[3:]])) == (
                        ["in"] * (CROWD - 3)
                    )
                await asyncio.sleep(0.1)
                assert not any(one.done() for one in late)
                ghost.execute("rollback")
            await asyncio.gather(*late)
            assert crowd[2].state is ClientState.DISCONNECTED

    asyncio.run(run())


def test_a_cancel_that_waits_in_vain_holds_no_connection(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await crowd[0].send("1", b"x")
            with plain(conninfo) as holder:
                holder.execute("begin")
                holder.execute(f"select from {declared.repository}.element for update".encode())
                late = asyncio.create_task(crowd[0].cancel_last_request(timeout_s=0.4))
                assert kinds(await each([one.send("1", b"x") for one in crowd[1:]])) == (
                    ["in"] * (CROWD - 1)
                )
                assert not late.done()
                with pytest.raises(DeadlineExceeded):
                    await late
            assert await crowd[0].cancel_last_request() is onceq.KillAnswer.KILLED

    asyncio.run(run())


def test_a_closed_desk_tells_who_waits(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await crowd[0].send("1", b"x")
            waiting = asyncio.create_task(crowd[0].receive())
            await asyncio.sleep(0.1)
        with pytest.raises(CannotConnect, match="closed"):
            await waiting
        with pytest.raises(CannotConnect, match="closed"):
            await crowd[1].send("1", b"x")

    asyncio.run(run())


def test_a_task_that_is_cancelled_leaves_its_session_unsure_and_nobody_else_s(
    declared: onceq.QueueManager,
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            tasks = [asyncio.create_task(one.send("1", b"x")) for one in crowd]
            await asyncio.sleep(0)
            tasks[0].cancel()
            found = await each(list(tasks))
            assert isinstance(found[0], asyncio.CancelledError)
            assert kinds(found[1:]) == ["in"] * (CROWD - 1)
            with pytest.raises(IllegalState, match="connect"):
                await crowd[0].send("1", b"x")
            await crowd[0].connect()
            assert crowd[0].last_sent in {None, "1"}

    asyncio.run(run())


def test_what_a_request_says_goes_along(declared: onceq.QueueManager) -> None:
    user = onceq.EndUser("order 7", "at the till")

    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x", end_user=user, priority=5) for one in crowd[:2]])
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                replies: list[Any] = await each([one.receive(timeout_s=30) for one in crowd[:2]])
            assert [one.end_user for one in replies] == [user] * 2

    asyncio.run(run())


def test_a_receive_that_is_in_vain_says_so(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x") for one in crowd])
            found = await each([one.receive(timeout_s=0.2) for one in crowd])
            assert {type(one) for one in found} == {ReceiveTimeout}

    asyncio.run(run())
