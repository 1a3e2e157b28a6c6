"""One-way sends: not waited for, and what becomes of them is known later (C2)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import IllegalState, InDoubt, QueueStopped
from onceq.model.client_state import ClientState
from onceq.model.ops import Post, Posted
from tests.parts import LIMIT_S, plain, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq import Context
    from onceq.model.ops import Op

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def echo(request: bytes, _: Context) -> bytes:
    return request


def test_a_one_way_send_is_not_waited_for(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as blocker:
        blocker.execute(f"lock table {repository}.element in exclusive mode".encode())
        clerk.send_one_way("1", b"x")  # it returns while the send waits for the lock
        assert (clerk.state, clerk.last_sent) == (ClientState.REQ_SENT, "1")
        assert scalar(conninfo, f"select count(*) from {repository}.element") == 0
        blocker.rollback()
        with serving(conninfo, repository, RAW.handled_by(echo)):
            assert clerk.receive(timeout_s=LIMIT_S).value == b"x"
            for n in range(2, 40):
                clerk.send_one_way(str(n), bytes(n * 10_000), priority=n % 10)
                assert clerk.receive(str(n).encode(), timeout_s=LIMIT_S).rid == str(n)
        clerk.connect()
        assert (clerk.last_sent, clerk.last_received) == ("39", "39")


def test_many_one_way_sends_within_a_window(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with (
        serving(conninfo, repository, RAW.handled_by(echo)),
        qm.clerk("till", RAW, window=20) as clerk,
    ):
        for n in range(20):
            clerk.send_one_way(str(n), b"x")
        found = {clerk.receive(timeout_s=LIMIT_S).rid for _ in range(20)}
        assert found == {str(n) for n in range(20)}


def test_a_refusal_is_told_by_the_next_call(qm: onceq.QueueManager) -> None:
    qm.stop("raw", dequeue=False)
    with qm.clerk("till", RAW) as clerk:
        clerk.send_one_way("1", b"x")
        with pytest.raises(QueueStopped):
            clerk.receive(timeout_s=LIMIT_S)
        with pytest.raises(IllegalState, match="connect"):
            clerk.receive(timeout_s=LIMIT_S)
        clerk.connect()
        assert (clerk.state, clerk.last_sent) == (ClientState.CONNECTED, None)
        clerk.send_one_way("1", b"x")
        clerk.connect()  # which does not ask what became of it, but what is there
        assert clerk.last_sent is None


class _Interrupted(BaseException):
    """Ctrl-C."""


@contextlib.contextmanager
def _interrupted(
    clerk: onceq.Clerk[bytes, bytes], at: type[Op[Any]], *, after: bool
) -> Generator[None]:
    """A block in which Ctrl-C comes just before, or just after, an Op of this kind."""
    link: Any = clerk._link
    local: dict[type[Any], Callable[[Any], Any]] = link._driver._local
    perform = local[at]

    def cut_short(op: Op[Any]) -> None:
        if after:
            perform(op)
        raise _Interrupted

    local[at] = cut_short
    with pytest.raises(_Interrupted):
        yield
    local[at] = perform


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_anywhere_around_a_one_way_send_leaves_a_clerk_that_connects(
    qm: onceq.QueueManager, *, after: bool
) -> None:
    """The connection may hold an answer of which the clerk knows nothing."""
    with qm.clerk("till", RAW) as clerk:
        with _interrupted(clerk, Post, after=after):
            clerk.send_one_way("1", b"x")
        clerk.connect()
        assert clerk.last_sent == ("1" if after else None)
        if not after:
            clerk.send_one_way("1", b"x")
            with _interrupted(clerk, Posted, after=False):
                clerk.connect()
            clerk.connect()
        assert (clerk.state, list(clerk.outstanding)) == (ClientState.REQ_SENT, ["1"])


def test_one_that_is_lost_is_missed_by_the_next_connect(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW) as clerk, psycopg.connect(conninfo) as blocker:
        blocker.execute(f"lock table {repository}.element in exclusive mode".encode())
        clerk.send_one_way("1", b"x")
        waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        wait_until(lambda: scalar(conninfo, waiting) is not None)
        with plain(conninfo) as connection:
            connection.execute(f"select pg_terminate_backend(pid) from ({waiting}) w".encode())
        with pytest.raises(InDoubt):
            clerk.receive(timeout_s=LIMIT_S)
        blocker.rollback()
        clerk.connect()
        assert (clerk.state, clerk.last_sent) == (ClientState.CONNECTED, None)


def test_the_async_twin(conninfo: str, repository: str) -> None:
    async def main() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as qm,
            qm.clerk("till", RAW) as clerk,
        ):
            with serving(conninfo, repository, RAW.handled_by(echo)):
                for n in range(10):
                    await clerk.send_one_way(str(n), b"x")
                    assert (await clerk.receive(timeout_s=LIMIT_S)).rid == str(n)
            await qm.stop("raw", dequeue=False)
            await clerk.send_one_way("11", b"x")
            with pytest.raises(QueueStopped):
                await clerk.where()

    asyncio.run(main())
