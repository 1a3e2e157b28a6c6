"""What several threads, tasks or processes have in common: a manager serves all, a clerk one."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

import onceq
from onceq.errors import CannotConnect, IllegalState, InDoubt, OperatingError
from proof.harness.proxy import Cut, Proxy, Side
from tests.lives import living
from tests.parts import Background, scalar, wait_until

_NOBODY = UUID(int=0)
RAW = onceq.Queue("raw", bytes, bytes)
OTHER = onceq.Queue("other", bytes, bytes)
THREADS = 12
EACH = 5
LONG_S = 60.0


def _enqueued(conninfo: str, repository: str) -> int:
    return int(scalar(conninfo, f"select count(*) from {repository}.element"))


def test_threads_share_a_manager(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    """More of them than it has connections; each gets the answers to its own questions."""
    qm.declare(RAW)

    def enqueue(number: int) -> bool:
        bodies = [f"{number} {turn}".encode() for turn in range(EACH)]
        eids = [qm.enqueue(RAW, body) for body in bodies]
        found = [qm.read(eid) for eid in eids]
        return [one.body for one in found if one is not None] == bodies

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(enqueue, range(THREADS)))
    assert _enqueued(conninfo, repository) == THREADS * EACH


def test_tasks_share_a_manager(conninfo: str, repository: str) -> None:
    async def enqueue(qm: onceq.AsyncQueueManager, number: int) -> bool:
        bodies = [f"{number} {turn}".encode() for turn in range(EACH)]
        eids = [await qm.enqueue(RAW, body) for body in bodies]
        found = [await qm.read(eid) for eid in eids]
        return [one.body for one in found if one is not None] == bodies

    async def main() -> list[bool]:
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            return await asyncio.gather(*(enqueue(qm, number) for number in range(THREADS)))

    assert all(asyncio.run(main()))
    assert _enqueued(conninfo, repository) == THREADS * EACH


def test_each_wait_of_a_shared_manager_has_its_own_deadline(conninfo: str, repository: str) -> None:
    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            await qm.declare(OTHER)
            long = asyncio.create_task(qm.dequeue("raw", timeout_s=LONG_S))
            short = asyncio.create_task(qm.dequeue("raw", timeout_s=0.2))
            assert await short is None
            assert not long.done()
            await qm.enqueue(OTHER, b"x")
            assert (await qm.dequeue("other")) is not None
            await qm.enqueue(RAW, b"y")
            found = await long
            assert found is not None
            assert found.body == b"y"

    asyncio.run(main())


def test_waits_in_callers_transactions_do_not_hold_each_other_up(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(RAW)
    qm.declare(OTHER)
    with psycopg.connect(conninfo) as first, psycopg.connect(conninfo) as second:
        waits = Background(lambda: qm.dequeue("raw", timeout_s=LONG_S, connection=first))
        qm.enqueue(OTHER, b"x")
        found = qm.dequeue("other", timeout_s=LONG_S, connection=second)
        assert found is not None
        assert waits.is_running
        second.commit()
        qm.enqueue(RAW, b"y")
        taken = waits.result()
        assert taken is not None
        first.commit()
    assert qm.show("raw").depth == 0
    assert qm.show("other").depth == 0


def test_only_the_call_whose_commit_was_lost_is_in_doubt(conninfo: str, repository: str) -> None:
    """The others of the same manager are told what they did; what is in doubt is there."""

    async def main(proxy: Proxy) -> list[Any]:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            await asyncio.gather(*(qm.read(_NOBODY) for _ in range(4)))
            proxy.plan(Cut(side=Side.AFTER, pattern=re.compile("enqueue")))
            return await asyncio.gather(
                *(qm.enqueue(RAW, f"{number}".encode()) for number in range(4)),
                return_exceptions=True,
            )

    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as proxy,
    ):
        answers = asyncio.run(main(proxy))
    lost = [one for one in answers if isinstance(one, BaseException)]
    assert [type(one) for one in lost] == [InDoubt]
    assert _enqueued(conninfo, repository) == 4


def test_of_threads_too_only_one_is_in_doubt(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)

    def enqueue(shared: onceq.QueueManager, number: int) -> type[BaseException] | None:
        try:
            shared.enqueue(RAW, f"{number}".encode())
        except OperatingError as error:
            return type(error)
        return None

    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as proxy,
        onceq.open(proxy.conninfo, repository=repository) as shared,
        ThreadPoolExecutor(4) as pool,
    ):
        proxy.plan(Cut(side=Side.AFTER, pattern=re.compile("enqueue")))
        answers = list(pool.map(functools.partial(enqueue, shared), range(4)))
    assert [one for one in answers if one is not None] == [InDoubt]
    assert _enqueued(conninfo, repository) == 4


def test_an_async_manager_whose_connection_broke_connects_again_by_itself(
    conninfo: str, repository: str
) -> None:
    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            async with qm._link.borrowed() as link:
                pid = link.connection.info.backend_pid
            scalar(conninfo, "select pg_terminate_backend(%s, 60000)", pid)
            with pytest.raises(OperatingError):
                await qm.enqueue(RAW, b"lost with its connection")
            await qm.enqueue(RAW, b"x")

    asyncio.run(main())
    assert _enqueued(conninfo, repository) == 1


def test_a_manager_whose_connection_broke_connects_again_by_itself(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    _end_backend(conninfo, qm)
    with pytest.raises(OperatingError):
        qm.enqueue(RAW, b"lost with its connection")
    assert qm.enqueue(RAW, b"x") is not None
    assert _enqueued(conninfo, repository) == 1


def _end_backend(conninfo: str, qm: onceq.QueueManager) -> None:
    with qm._link.borrowed() as link:
        pid = link.connection.info.backend_pid
    scalar(conninfo, "select pg_terminate_backend(%s, 60000)", pid)


def test_a_closed_manager_says_so(conninfo: str, repository: str) -> None:
    qm = onceq.open(conninfo, repository=repository)
    qm.close()
    with pytest.raises(CannotConnect, match="connect"):
        qm.queues()
    with qm.connect():
        assert qm.queues() == []


def test_a_second_thread_in_a_clerk_is_refused_and_the_first_goes_on(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with living(conninfo, repository) as life, qm.clerk("ann", RAW) as clerk:
        clerk.send("1", b"x")
        receives = Background(lambda: clerk.receive(timeout_s=LONG_S))
        wait_until(lambda: clerk._alone._depth > 0)
        for call in (lambda: clerk.send("2", b"y"), clerk.connect, clerk.rereceive):
            with pytest.raises(IllegalState, match="one call at a time"):
                call()
        life.run(life.claim_one("raw"), b"reply")
        assert receives.result().value == b"reply"
        assert clerk.send("2", b"y").state == "new"


def test_a_second_task_in_an_async_clerk_is_refused_and_the_first_goes_on(
    conninfo: str, repository: str
) -> None:
    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as qm:
            await qm.declare(RAW)
            async with qm.clerk("ann", RAW) as clerk:
                sent = await asyncio.gather(
                    clerk.send("1", b"x"), clerk.send("2", b"y"), return_exceptions=True
                )
                assert [type(one).__name__ for one in sent] == ["Sent", "IllegalState"]
                assert "one call at a time" in str(sent[1])
                assert clerk.outstanding == ["1"]

    asyncio.run(main())


def test_a_handler_of_replies_may_use_its_own_clerk(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with living(conninfo, repository) as life, qm.clerk("ann", RAW) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        seen: list[tuple[bytes, object]] = []
        policy = onceq.ReplyPolicy.repeat()
        clerk.process(lambda reply: seen.append((reply.value, clerk.where("1"))), policy)
        assert [value for value, _ in seen] == [b"reply"]


def test_a_forked_child_neither_uses_nor_ends_its_parents_connections(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """The child is refused by the clerk, has a connection of its own from the manager, and dies."""
    qm.declare(RAW)
    with qm.clerk("ann", RAW) as clerk:
        clerk.send("1", b"x")
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(qm, clerk))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert clerk.outstanding == ["1"]
        assert clerk.where("1") is not None
        assert _enqueued(conninfo, repository) == 2


def _in_the_child(qm: onceq.QueueManager, clerk: onceq.Clerk[bytes, bytes]) -> int:
    try:
        clerk.where("1")
    except IllegalState as error:
        refused = "fork" in str(error)
    else:
        return 1
    qm.enqueue(RAW, b"by the child")
    clerk.close()
    qm.close()
    return 0 if refused else 2


def test_the_session_of_a_process_ends_with_it_although_a_child_lives_on(
    qm: onceq.QueueManager, conninfo: str, tmp_path: Path
) -> None:
    """Killed with -9, it has a child that holds what fork gave it: not the connection's socket."""
    qm.declare(RAW)
    go_on, wait = os.pipe()
    parent = os.fork()
    if parent == 0:
        own = onceq.open(conninfo, repository=qm.repository)
        with own._link.borrowed() as link:
            pid = link.connection.info.backend_pid
        if os.fork() == 0:
            os.close(wait)
            os.read(go_on, 1)  # until the test ends
            os._exit(0)
        (tmp_path / "pid").write_text(str(pid))
        (tmp_path / "ready").touch()
        signal.pause()
    os.close(go_on)
    try:
        wait_until((tmp_path / "ready").exists)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        pid = int((tmp_path / "pid").read_text())
        alive = "select count(*) from pg_stat_activity where pid = %s"
        wait_until(lambda: scalar(conninfo, alive, pid) == 0)
    finally:
        os.close(wait)
