"""How a desk begins, ends, breaks and is interrupted; nobody waits there without a bound."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.desk.async_desk import AsyncDesk, DeskLink
from onceq.engine.desk.async_seat import AsyncSeat
from onceq.engine.sessions import session
from onceq.engine.sessions.silence import Patience
from onceq.errors import CannotConnect, IllegalState
from tests.engine.desks import CROWD, RAW, crowded, declared, each, failed_groups, kinds
from tests.given_time import GivenTime
from tests.parts import plain, rows

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["declared", "failed_groups"]
"""Fixtures of these tests."""


def desk_of(clerk: Any) -> Any:
    return clerk._link._desk


def test_what_nobody_waits_for_any_more_is_not_begun(
    conninfo: str, declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connect that gave up while the desk connected must not fence the one that came after it."""
    epochs = f"select epoch from {declared.repository}.registrant where name = 'c00'"
    reconnect = DeskLink.reconnect

    async def run() -> None:
        async with crowded(declared) as crowd:
            before = rows(conninfo, epochs)
            may_go = asyncio.Event()

            async def slow(link: DeskLink) -> None:
                await may_go.wait()
                await reconnect(link)

            monkeypatch.setattr(DeskLink, "reconnect", slow)
            with pytest.raises(CannotConnect):
                await crowd[0].connect(timeout_s=0.2)
            may_go.set()
            assert (await crowd[1].send("1", b"x")).state == "new"
            assert rows(conninfo, epochs) == before

    asyncio.run(run())


def test_who_finds_no_room_gives_up_in_time(
    conninfo: str, declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            monkeypatch.setattr(desk_of(crowd[0]), "_room", asyncio.Semaphore(1))
            with plain(conninfo) as holder:
                holder.execute("begin")
                holder.execute(f"lock table {declared.repository}.element".encode())
                late = asyncio.create_task(crowd[0].send("1", b"x"))
                await asyncio.sleep(0.1)
                with GivenTime() as given, pytest.raises(CannotConnect):
                    await crowd[1].connect(timeout_s=0.3)
                assert given.seconds < 5
                assert not late.done()
                holder.execute("rollback")
            assert (await late).state == "new"
            await crowd[1].connect(timeout_s=60)

    asyncio.run(run())


def test_many_who_meet_locks_leave_the_desk_to_the_others(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    """They come again one at a time, with rests: there is one connection for all."""

    async def run() -> None:
        async with crowded(declared, window=100) as crowd:
            with plain(conninfo) as ghost:
                ghost.execute("begin")
                locks = (
                    "pg_advisory_xact_lock('{0}.registrant'::regclass::oid::integer, registrant_id)"
                )
                held = f"select {locks} from {{0}}.registrant where name < 'c10'"
                ghost.execute(held.format(declared.repository).encode())
                late = [asyncio.create_task(one.connect()) for one in crowd[:10]]
                await asyncio.sleep(0.3)
                tries = []
                for n in range(20):
                    began = time.monotonic()
                    await crowd[10].send(str(n), b"x")
                    tries.append(time.monotonic() - began)
                assert sorted(tries)[10] < 0.5
                assert not any(one.done() for one in late)
                ghost.execute("rollback")
            await asyncio.gather(*late)

    asyncio.run(run())


def test_a_connection_that_was_lost_while_idle_costs_nobody_anything(
    conninfo: str, declared: onceq.QueueManager
) -> None:
    async def run() -> None:
        async with crowded(declared, connections=2) as crowd:
            assert all(is_gone for (is_gone,) in rows(conninfo, OTHERS))
            await asyncio.sleep(0.2)
            found = await each([one.send("1", b"x") for one in crowd])
            assert kinds(found) == ["in"] * CROWD

    asyncio.run(run())


OTHERS = (
    "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid() and query ~ 'keep_desk|_each'"
)


def test_a_desk_that_cannot_keep_its_place_says_so_and_tries_again(
    declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = AsyncLink._begin

    async def run() -> None:
        async with crowded(declared) as crowd:
            broken = [True]

            async def begun(link: Any, conninfo: str) -> Any:
                driver = await begin(link, conninfo)
                if broken.pop() if broken else False:
                    await driver.connection.close()
                return driver

            monkeypatch.setattr(AsyncLink, "_begin", begun)
            await desk_of(crowd[0])._links[0].close()
            assert kinds(await each([crowd[0].send("1", b"x")])) == ["CannotConnect"]
            assert (await crowd[0].send("1", b"x")).state == "new"

    asyncio.run(run())


def test_a_connect_in_vain_leaves_an_open_desk_as_it_was(declared: onceq.QueueManager) -> None:
    async def run() -> None:
        async with crowded(declared) as crowd:
            with pytest.raises(CannotConnect):
                await desk_of(crowd[0]).connect(0.0)
            assert (await crowd[0].send("1", b"x")).state == "new"

    asyncio.run(run())


def test_a_desk_is_of_one_loop(declared: onceq.QueueManager) -> None:
    desk = AsyncDesk(declared.located, declared.repository, 1)

    async def send() -> None:
        clerk = onceq.AsyncClerk(AsyncSeat(desk, "one"), "one", RAW)
        await clerk.connect()

    async def run() -> None:
        await desk.connect()
        await asyncio.to_thread(refused, lambda: asyncio.run(send()))
        await desk.close()

    asyncio.run(run())


def refused(call: Callable[[], None]) -> None:
    with pytest.raises(IllegalState, match="another event loop"):
        call()


def test_a_seat_waits_for_an_answer_as_long_as_a_link_would() -> None:
    """Its call's time may be over: the answer to what has just begun is waited for all the same."""
    assert Patience(until=10.0, silence_s=5.0).left_s(12.0) == 5.0
    assert Patience(until=10.0, silence_s=5.0).left_s(1.0) == 9.0
    assert Patience(until=10.0, silence_s=0.0).left_s(12.0) == 0.0


def test_the_options_of_a_url_do_not_make_a_desk_wait_for_locks() -> None:
    given = "host=h options='-c lock_timeout=5s -c statement_timeout=7s'"
    offered = session.offers(given, session.settings(also=session.SHARED))[0]
    assert offered.rindex("lock_timeout=20ms") > offered.rindex("lock_timeout=5s")
    assert "statement_timeout=0" not in offered
    assert "lock_timeout=0" not in session.offers(given, session.settings())[0]


def test_ctrl_c_while_a_desk_opens_ends_it(
    declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    clerks = declared.clerks(connections=1)
    with monkeypatch.context() as patched:

        async def hangs(_: AsyncDesk, __: float | None = None) -> None:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(200)

        patched.setattr(AsyncDesk, "connect", hangs)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            clerks.connect()
        clerks.close()
        assert time.monotonic() - began < 100
    with clerks, clerks.clerk("one", RAW) as clerk:
        assert clerk.send("1", b"x").state == "new"


def test_a_desk_that_could_not_open_opens_when_it_can(
    declared: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    clerks = declared.clerks(connections=1)
    with monkeypatch.context() as patched:

        async def fails(_: AsyncDesk, __: float | None = None) -> None:
            raise CannotConnect("not now")

        patched.setattr(AsyncDesk, "connect", fails)
        for _ in range(3):
            with pytest.raises(CannotConnect, match="not now"):
                clerks.connect()
    with clerks, clerks.clerk("one", RAW) as clerk:
        assert clerk.send("1", b"x").state == "new"


def test_a_forked_child_does_not_open_its_parents_desk(declared: onceq.QueueManager) -> None:
    clerks = declared.clerks(connections=1)
    child = os.fork()
    if child == 0:
        try:
            clerks.connect()
        except IllegalState:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
