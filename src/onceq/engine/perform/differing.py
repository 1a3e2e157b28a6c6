"""What the two drivers do differently: how they wait, and how they send short statements.

Used by both, which are otherwise twins (ADR 21): each function is here plain, and for asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import ExecStatus

from onceq.engine.perform.gate import Way
from onceq.engine.sessions import silence
from onceq.engine.wake.bell import DEAF_S, Bell
from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from onceq.engine.perform.stop import Stop
    from onceq.model import ops

GATE_POLL_S: Final = 0.005
STOP_POLL_S: Final = 0.05

await_claim: Final = Way.await_claim
wait_rung: Final = Bell.wait
doze: Final = Bell.doze


async def async_await_claim(way: Way, stop: Stop) -> bool:
    """See Gate.await_claim."""
    while (may := way.may_claim()) is None and not stop.is_set():  # noqa: ASYNC110 # threads share it
        await asyncio.sleep(GATE_POLL_S)
    return bool(may)


def wait_stop(stop: Stop, seconds: float) -> None:
    """Waits so long, or until a stop is due."""
    stop.wait(seconds)


async def async_wait_stop(stop: Stop, seconds: float) -> None:
    """See wait_stop."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not stop.is_set():  # noqa: ASYNC110 # set by a signal handler
        await asyncio.sleep(min(left, STOP_POLL_S))


async def async_wait_rung(bell: Bell, timeout_s: float, other: int | None = None) -> bool:
    """See Bell.wait."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    others = () if other is None else (other,)
    if bell.fileno() not in await _arrived(timeout_s, bell.fileno(), *others):
        return bell.awoke(timeout_s, rung=False)
    if bell.is_rung():
        return bell.awoke(timeout_s, rung=True)
    await asyncio.sleep(min(DEAF_S, max(0.0, end - loop.time())))
    return bell.awoke(timeout_s, rung=False)


async def async_doze(bell: Bell, timeout_s: float, other: int) -> bool:
    """See Bell.doze."""
    await _arrived(timeout_s, bell.fileno(), other)
    rubbish = bell.wakes.rubbish
    rung = bell.is_rung()
    if bell.wakes.rubbish > rubbish and not rung:
        await asyncio.sleep(min(DEAF_S, timeout_s))
    return rung


async def _arrived(timeout_s: float, *files: int) -> set[int]:
    """Waits until one of these files can be read, at most this long; returns which can."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    found: set[int] = set()

    def note(file: int) -> None:
        found.add(file)
        arrived.set()

    for file in files:
        loop.add_reader(file, note, file)
    try:
        async with asyncio.timeout(timeout_s):
            await arrived.wait()
    except TimeoutError:
        pass
    finally:
        for file in files:
            loop.remove_reader(file)
    return found


def execute_text(connection: psycopg.Connection[Any], text: bytes) -> bytes | None:
    """Executes SQL that has no parameters, directly by libpq.

    Returns what its last row begins with, as text; None: there is none. A cursor of psycopg costs
    more than the statement. Only for short statements: it blocks, unless there is a deadline.
    Raises psycopg.Error.
    """
    if silence.is_bounded(connection):
        return _first(connection.execute(text))
    with connection.lock:
        result = connection.pgconn.exec_(text)
    if result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result)
    return result.get_value(0, 0) if result.ntuples else None


async def async_execute_text(connection: psycopg.AsyncConnection[Any], text: bytes) -> bytes | None:
    """The same, by a cursor."""
    return _first(await connection.execute(text))


def _first(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bytes | None:
    while cursor.nextset():
        pass
    result = cursor.pgresult
    return result.get_value(0, 0) if result is not None and result.ntuples else None


def act(op: ops.Act) -> Any:
    """Performs an Act."""
    answer = op.act()
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidValue("this is awaitable, and nobody awaits it here: use an AsyncClerk")
    return answer


async def async_act(op: ops.Act) -> Any:
    """Performs an Act, which may have to be awaited."""
    answer = op.act()
    return await answer if inspect.isawaitable(answer) else answer
