"""How clerks of a desk wait: for replies, for locks, for each other; none holds a connection."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import pytest

import onceq
from onceq.engine.desk import sleeper
from onceq.engine.wake.bell import LISTEN_FROM_S
from onceq.engine.wake.waiting import RUNG_PACES, Pace
from onceq.errors import (
    CannotConnect,
    DeadlineExceeded,
    IllegalState,
    ReceiveTimeout,
)
from onceq.model import ops
from onceq.model.client_state import ClientState
from tests.engine.desks import (
    CROWD,
    HOLD,
    LIMIT_S,
    RAW,
    crowded,
    declared,
    each,
    echo,
    failed_groups,
    kinds,
)
from tests.parts import plain, rows, serving

__all__ = ["declared", "failed_groups"]
"""Fixtures of these tests."""


def test_who_waits_for_what_expires_is_told_so(declared: onceq.QueueManager) -> None:
    """Nobody serves: the look of a receive makes the reply, and a group leaves that out."""

    async def run() -> None:
        async with crowded(declared) as crowd:
            soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.3)
            await crowd[0].send("1", b"x", expires_at=soon)
            await crowd[1].send("1", b"x")
            ringing = [one._session.rings for one in crowd[:2]]
            assert ringing == [False, True], "nobody rings when a request expires: it looks soon"
            await asyncio.sleep(0.4)
            found: list[Any] = await each([one.receive(timeout_s=0) for one in crowd[:2]])
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


def test_a_reply_is_told_by_a_ring(
    declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks once, and never again by itself."""
    waits: list[asyncio.Future[bool]] = []
    has_looked = asyncio.Event()
    rung_in: list[int] = []
    wait, ring = sleeper.AsyncSleeper.wait, sleeper.AsyncSleeper.__call__

    def noted(self: Any, op: ops.Wait) -> Any:
        if waits:
            has_looked.set()
        waits.append(cast("asyncio.Future[bool]", wait(self, op)))
        return waits[-1]

    def ring_noted(self: Any) -> None:
        rung_in.append(len(waits))
        ring(self)
        assert waits[-1].done()

    monkeypatch.setitem(RUNG_PACES, "reply", Pace(LISTEN_FROM_S, 1e6, 2 * LIMIT_S))
    monkeypatch.setattr(sleeper.AsyncSleeper, "wait", noted)
    monkeypatch.setattr(sleeper.AsyncSleeper, "__call__", ring_noted)

    async def run() -> None:
        async with crowded(declared) as crowd:
            one = crowd[0]
            await one.send("1", b"x")
            waiting = asyncio.create_task(one.receive(timeout_s=60))
            await has_looked.wait()
            assert waits[0].done()
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                assert (await waiting).value == b"x!"
            assert rung_in, "it was rung"
            assert len(waits) - rung_in[-1] in {0, 1}, "its last wait ended by the ring"

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
                late: list[asyncio.Task[Any]] = [
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
                with pytest.raises(DeadlineExceeded):
                    await crowd[0].cancel_last_request(timeout_s=0.4)
                late = asyncio.create_task(crowd[0].cancel_last_request(timeout_s=LIMIT_S))
                assert kinds(await each([one.send("1", b"x") for one in crowd[1:]])) == (
                    ["in"] * (CROWD - 1)
                )
                assert not late.done()
                holder.execute("rollback")
            assert await late is onceq.KillAnswer.KILLED

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


def test_a_receive_that_is_in_vain_says_so(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x") for one in crowd])
            found = await each([one.receive(timeout_s=0.2) for one in crowd])
            assert {type(one) for one in found} == {ReceiveTimeout}

    asyncio.run(run())
