"""A link that is silent, and was not cut: what has a deadline ends by our own clock.

Between client and database stands a proxy that stops passing on; so TCP sees nothing wrong.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq import errors
from onceq.engine.sessions import session, silence
from onceq.manager import async_registrations, registrations
from proof.harness.proxy import Proxy
from tests.given_time import GivenTime
from tests.parts import LIMIT_S, Background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

RAW = onceq.Queue("raw", bytes, bytes)
SILENCE_S = 0.4
TIMEOUT_S = 0.3
LATE_S = 2.0
"""So much later than it should a call may end, of the time that the machine gave this process."""
REGISTRANT_S = 1.0
STEADY_S = 2.0
"""Where an answer is waited for: a database that is busy is not silent."""

Call = Any


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", SILENCE_S)


@pytest.fixture
def proxy(conninfo: str, qm: onceq.QueueManager) -> Iterator[Proxy]:
    qm.declare(RAW)
    with (
        tempfile.TemporaryDirectory(prefix="oq-") as directory,
        Proxy(conninfo, Path(directory)) as made,
    ):
        yield made


def _ends(call: Callable[[], object], error: type[BaseException], after_s: float) -> None:
    """Makes a call in a thread, so that one that waits for ever fails its test."""
    began = time.monotonic()
    with GivenTime() as given, pytest.raises(error):
        Background(call).result()
    assert after_s <= time.monotonic() - began
    assert given.seconds < after_s + LATE_S


async def _ends_async(call: Awaitable[object], error: type[BaseException], after_s: float) -> None:
    began = time.monotonic()
    with GivenTime() as given, pytest.raises(error):
        async with asyncio.timeout(LIMIT_S):
            await call
    assert after_s <= time.monotonic() - began
    assert given.seconds < after_s + LATE_S


WAITS = TIMEOUT_S + SILENCE_S

CLERK_CALLS: dict[str, tuple[Callable[[Call], Any], float]] = {
    "receive": (lambda clerk: clerk.receive(timeout_s=TIMEOUT_S), WAITS),
    "receive_many": (lambda clerk: clerk.receive_many(9, timeout_s=TIMEOUT_S), WAITS),
    "cancel": (lambda clerk: clerk.cancel_last_request(timeout_s=TIMEOUT_S), WAITS),
    "send": (lambda clerk: clerk.send("2", b"", timeout_s=TIMEOUT_S), TIMEOUT_S),
    "transceive": (lambda clerk: clerk.transceive("2", b"", timeout_s=TIMEOUT_S), WAITS),
    "connect": (lambda clerk: clerk.connect(timeout_s=TIMEOUT_S), TIMEOUT_S),
}
MANAGER_CALLS: dict[str, Callable[[Call, Any], Any]] = {
    "dequeue": lambda qm, _: qm.dequeue("raw", timeout_s=TIMEOUT_S),
    "kill": lambda qm, eid: qm.kill(eid, timeout_s=TIMEOUT_S),
}


@pytest.mark.parametrize("name", CLERK_CALLS)
def test_a_call_of_a_clerk_ends_on_a_silent_link_and_is_in_doubt(
    proxy: Proxy, repository: str, name: str
) -> None:
    call, after_s = CLERK_CALLS[name]
    with (
        onceq.open(proxy.conninfo, repository=repository) as qm,
        qm.clerk("till", RAW, window=5) as clerk,
    ):
        clerk.send("1", b"")
        proxy.fall_silent()
        _ends(lambda: call(clerk), errors.InDoubt, after_s)
        proxy.speak()
        clerk.connect(timeout_s=LIMIT_S)  # tells the truth, on another connection
        assert clerk.last_sent in {"1", "2"}


@pytest.mark.parametrize("name", CLERK_CALLS)
def test_a_call_of_an_async_clerk_ends_on_a_silent_link(
    proxy: Proxy, repository: str, name: str
) -> None:
    call, after_s = CLERK_CALLS[name]

    async def main() -> None:
        async with (
            onceq.open_async(proxy.conninfo, repository=repository) as qm,
            qm.clerk("till", RAW, window=5) as clerk,
        ):
            await clerk.send("1", b"")
            proxy.fall_silent()
            await _ends_async(call(clerk), errors.InDoubt, after_s)
            proxy.speak()
            await clerk.connect(timeout_s=LIMIT_S)
            assert clerk.last_sent in {"1", "2"}

    asyncio.run(main())


@pytest.mark.parametrize("name", MANAGER_CALLS)
def test_a_call_of_a_manager_ends_on_a_silent_link(
    proxy: Proxy, repository: str, name: str
) -> None:
    with onceq.open(proxy.conninfo, repository=repository) as qm:
        eid = qm.enqueue(RAW, b"1")
        proxy.fall_silent()
        _ends(lambda: MANAGER_CALLS[name](qm, eid), errors.InDoubt, WAITS)
        proxy.speak()
        assert len(qm.lookup(eid=eid)) == 1


@pytest.mark.parametrize("name", MANAGER_CALLS)
def test_a_call_of_an_async_manager_ends_on_a_silent_link(
    proxy: Proxy, repository: str, name: str
) -> None:
    async def main() -> None:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            eid = await qm.enqueue(RAW, b"1")
            proxy.fall_silent()
            await _ends_async(MANAGER_CALLS[name](qm, eid), errors.InDoubt, WAITS)
            proxy.speak()
            assert len(await qm.lookup(eid=eid)) == 1

    asyncio.run(main())


def _for_the_registrant(monkeypatch: pytest.MonkeyPatch) -> float:
    """Have tagged operations wait a second for it, not ten; return when a dequeue is to end."""
    for module in (registrations, async_registrations):
        monkeypatch.setattr(module, "REGISTRANT_S", REGISTRANT_S)
    return WAITS + REGISTRANT_S


def test_a_tagged_dequeue_on_a_silent_link_may_still_wait_for_its_registrant(
    proxy: Proxy, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may say nothing for so long, and answer: another operation has the registrant.

    So the link is given up later than that of an ordinary dequeue.
    """
    after_s = _for_the_registrant(monkeypatch)
    with onceq.open(proxy.conninfo, repository=repository) as qm:
        handle, *_ = qm.register("raw", "till")
        proxy.fall_silent()
        dequeue = functools.partial(qm.dequeue_tagged, "raw", handle, timeout_s=TIMEOUT_S)
        _ends(dequeue, errors.InDoubt, after_s)
        proxy.speak()


def test_an_async_tagged_dequeue_on_a_silent_link_may_still_wait_for_its_registrant(
    proxy: Proxy, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_s = _for_the_registrant(monkeypatch)

    async def main() -> None:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            handle, *_ = await qm.register("raw", "till")
            proxy.fall_silent()
            dequeue = qm.dequeue_tagged("raw", handle, timeout_s=TIMEOUT_S)
            await _ends_async(dequeue, errors.InDoubt, after_s)
            proxy.speak()

    asyncio.run(main())


def test_a_dequeue_in_a_transaction_ends_when_the_managers_own_link_is_silent(
    proxy: Proxy, conninfo: str, repository: str
) -> None:
    with (
        onceq.open(proxy.conninfo, repository=repository) as qm,
        psycopg.connect(conninfo) as mine,
    ):
        assert qm.dequeue("raw", connection=mine) is None
        proxy.fall_silent()
        dequeue = functools.partial(qm.dequeue, "raw", connection=mine, timeout_s=TIMEOUT_S)
        _ends(dequeue, errors.ConnectionLost, WAITS)
        proxy.speak()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_new_connection_to_what_is_silent_ends(
    proxy: Proxy, repository: str, *, asynchronous: bool
) -> None:
    """libpq's own time-out of a connection counts whole seconds, from two on."""
    after_s = float(silence.CONNECT_S_MIN)

    async def main() -> None:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            proxy.fall_silent()
            clerk = qm.clerk("till", RAW)
            await _ends_async(clerk.connect(timeout_s=TIMEOUT_S), errors.CannotConnect, after_s)

    if asynchronous:
        asyncio.run(main())
        return
    with onceq.open(proxy.conninfo, repository=repository) as qm:
        proxy.fall_silent()
        clerk = qm.clerk("till", RAW)
        _ends(lambda: clerk.connect(timeout_s=TIMEOUT_S), errors.CannotConnect, after_s)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_link_that_falls_silent_as_soon_as_it_is_made_cannot_be_used(
    proxy: Proxy, repository: str, monkeypatch: pytest.MonkeyPatch, *, asynchronous: bool
) -> None:
    """Its first question is never answered, and nothing more can be asked of it."""
    connect, connect_async = silence.OwnConnection.connect, silence.AsyncOwnConnection.connect

    def made(*given: Any, **options: Any) -> object:
        connection = connect(*given, **options)
        proxy.fall_silent()
        return connection

    async def made_async(*given: Any, **options: Any) -> object:
        connection = await connect_async(*given, **options)
        proxy.fall_silent()
        return connection

    async def main() -> None:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            monkeypatch.setattr(silence.AsyncOwnConnection, "connect", made_async)
            clerk = qm.clerk("till", RAW)
            await _ends_async(clerk.connect(timeout_s=TIMEOUT_S), errors.CannotConnect, TIMEOUT_S)

    if asynchronous:
        asyncio.run(main())
        return
    with onceq.open(proxy.conninfo, repository=repository) as qm:
        monkeypatch.setattr(silence.OwnConnection, "connect", made)
        clerk = qm.clerk("till", RAW)
        _ends(lambda: clerk.connect(timeout_s=TIMEOUT_S), errors.CannotConnect, TIMEOUT_S)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_client_with_a_ledger_ends_on_a_silent_link(
    proxy: Proxy, repository: str, *, asynchronous: bool
) -> None:
    async def main() -> None:
        async with onceq.open_async(proxy.conninfo, repository=repository) as qm:
            clerk = qm.clerk("till", RAW, ledger=onceq.QueueLedger())
            await clerk.connect()
            await clerk.recover()
            await clerk.send("1", b"")
            proxy.fall_silent()
            await _ends_async(clerk.receive(timeout_s=TIMEOUT_S), errors.InDoubt, WAITS)
            await clerk.close()
            proxy.speak()

    if asynchronous:
        asyncio.run(main())
        return
    with onceq.open(proxy.conninfo, repository=repository) as qm:
        clerk = qm.clerk("till", RAW, ledger=onceq.QueueLedger()).connect()
        clerk.recover()
        proxy.fall_silent()
        _ends(lambda: clerk.send("1", b"", timeout_s=TIMEOUT_S), errors.ConnectionLost, TIMEOUT_S)
        clerk.close()
        proxy.speak()


def test_what_is_late_and_answers_is_waited_for(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends a kill at its deadline by itself, and says that nothing happened."""
    monkeypatch.setattr(silence, "SILENCE_S", STEADY_S)
    timeout_s = 1.1 * STEADY_S
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"1")
    with psycopg.connect(conninfo) as other:
        other.execute(f"select from {repository}.element where eid = %s for update".encode(), [eid])
        with pytest.raises(errors.DeadlineExceeded):
            qm.kill(eid, timeout_s=timeout_s)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"")
        with pytest.raises(errors.ReceiveTimeout):
            clerk.receive(timeout_s=timeout_s)


def test_the_databases_end_of_a_dead_link_ends_and_no_statement_is_limited() -> None:
    given = session.settings(limit_s=60)
    assert given.items() >= session.DEAD_LINK.items()
    assert given["statement_timeout"] == "0"
