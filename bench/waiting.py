"""What a clerk of a desk weighs while it waits for a reply: what Python has allocated for it.

By tracemalloc, in a process of its own, less what as many callers of a bare future weigh.
Meanwhile a clerk looks by itself after a minute, and not after 1.5 s: traced, a process is so slow
that many would be looking, and not waiting.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import onceq
from bench.results import Result
from bench.workers.base import BODY
from bench.workers.crowd import SPAWN
from bench.workers.onceq_worker import init
from onceq.engine.wake import waiting

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from bench.scene import Scene

QUEUE = onceq.Queue("waiting", bytes, bytes)
CLERKS: Final = 10_000
NAMES = ("waiting/clerk",)
TARGET_BYTES: Final = 2_000
CONNECTIONS: Final = 2
TOGETHER: Final = 200
PACE: Final = waiting.Pace(0.04, 1500.0, 60.0)
LOOK_S: Final = 0.5
"""How often it is looked whether all wait: longer than their first wait."""
LIMIT_S: Final = 300.0


def run(scene: Scene) -> None:
    """Weigh once: the figure has no noise that rounds would show."""
    scene.told.started(NAMES[0])
    count = round(CLERKS * scene.scale)
    with scene.ground("waiting") as ground, ProcessPoolExecutor(1, mp_context=SPAWN) as other:
        conninfo = ground.database("waiting")
        init(conninfo)
        found = other.submit(weighed, conninfo, count).result()
    result = Result(
        name=NAMES[0],
        question=f"a clerk of a desk that waits for a reply, among {count:,}",
        unit="bytes",
        rounds=(found,),
        target=TARGET_BYTES,
        better="less",
    )
    scene.told.found(result)


def weighed(conninfo: str, count: int, repository: str = "onceq") -> float:
    """Return the bytes of a waiting clerk."""
    tracemalloc.start()
    try:
        with patch.dict(waiting.RUNG_PACES, {"reply": PACE}):
            bare = asyncio.run(_futures(count))
            return (asyncio.run(_clerks(conninfo, count, repository)) - bare) / count
    finally:
        tracemalloc.stop()


async def _futures(count: int) -> int:
    async def wait(one: asyncio.Future[None]) -> None:
        await one

    before = _traced()
    loop = asyncio.get_running_loop()
    return await _weight(before, [wait(loop.create_future()) for _ in range(count)])


async def _clerks(conninfo: str, count: int, repository: str) -> int:
    async def begin(clerk: onceq.AsyncClerk[bytes, bytes]) -> None:
        await clerk.connect()
        await clerk.send("1", BODY)

    async with (
        onceq.open_async(conninfo, repository=repository) as qm,
        qm.clerks(connections=CONNECTIONS) as clerks,
    ):
        await qm.declare(QUEUE)
        await begin(clerks.clerk("the first", QUEUE))
        before = _traced()
        crowd = [clerks.clerk(f"client-{one}", QUEUE) for one in range(count)]
        for first in range(0, count, TOGETHER):
            await asyncio.gather(*map(begin, crowd[first : first + TOGETHER]))
        return await _weight(before, [one.receive() for one in crowd])


async def _weight(before: int, waits: Sequence[Coroutine[Any, Any, Any]]) -> int:
    """Return what callers have added when all of them wait."""
    callers = [asyncio.create_task(one) for one in waits]
    async with asyncio.timeout(LIMIT_S):
        while True:
            await asyncio.sleep(LOOK_S)
            if not any(map(_looks, callers)):
                break
    weight = _traced() - before
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return weight


def _looks(caller: asyncio.Task[Any]) -> bool:
    """Return whether a clerk has asked its desk something, or is over."""
    step: Any = caller.get_coro()
    while inspect.iscoroutine(step) and step.cr_code.co_name != "ask":
        step = step.cr_await
    return caller.done() or inspect.iscoroutine(step)


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
