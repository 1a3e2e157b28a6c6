"""The desk: clerks that share connections. What waits together goes together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import (
    Fenced,
    IllegalState,
    InDoubt,
    QueueStopped,
    RidReused,
    TooLarge,
)
from tests.engine.desks import (
    CROWD,
    RAW,
    crowded,
    declared,
    each,
    echo,
    failed_groups,
    kinds,
    xids,
)
from tests.engine.pooler import Pooler, pooling
from tests.parts import plain, rows, serving

if TYPE_CHECKING:
    from collections.abc import Generator


__all__ = ["declared", "failed_groups"]
"""Fixtures of these tests."""


def test_a_group_is_one_transaction_with_an_answer_for_each(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            sent: list[Any] = await each([one.send("1", b"%d" % n) for n, one in enumerate(crowd)])
            assert xids(conninfo, declared) == [CROWD]
            assert [one.state for one in sent] == ["new"] * CROWD
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                replies: list[Any] = await each([one.receive(timeout_s=60) for one in crowd])
            assert [one.value for one in replies] == [b"%d!" % n for n in range(CROWD)]
            eids = {one.eid for one in sent}
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
                await each([one.receive(timeout_s=60) for one in crowd])
            await crowd[3].acknowledge(["1"])
            with declared.clerk("c00", RAW):
                found: list[Any] = await each(
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
                await each([one.receive(timeout_s=60) for one in crowd[1:]])
            with declared.clerk("c00", RAW):
                found = await each([crowd[0].receive(timeout_s=60), crowd[1].rereceive()])
            assert kinds(found) == ["Fenced", "in"]

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


def test_what_a_request_says_goes_along(declared: onceq.QueueManager) -> None:
    user = onceq.EndUser("order 7", "at the till")

    async def run() -> None:
        async with crowded(declared) as crowd:
            await each([one.send("1", b"x", end_user=user, priority=5) for one in crowd[:2]])
            with serving(declared.located.conninfo, declared.repository, RAW.handled_by(echo)):
                replies: list[Any] = await each([one.receive(timeout_s=60) for one in crowd[:2]])
            assert [one.end_user for one in replies] == [user] * 2

    asyncio.run(run())
