"""Bridges that are killed at each of their steps: the next life goes on, and all happens once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.engine.faultpoints import VARIABLE
from tests.streams.bridge.ledgers import Ledger
from tests.streams.bridge.test_relay import Outbox
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    import onceq

ROOT = Path(__file__).parents[3]
OF_INTO = (
    *("StreamOpen.after", "StreamMove.before", "StreamMove.after", "Commit.before"),
    *("Commit.after", "into.moved"),
)
OF_RELAY = (
    *("RelayOpen.after", "RelayBegin.before", "RelayBegin.after", "RelayPlan.before"),
    *("RelayPlan.after", "relay.planned", "relay.sent", "RelayFinish.before"),
    "RelayFinish.after",
)
LONG_S = 10 * WITHIN_S


@contextlib.asynccontextmanager
async def child(*arguments: str, fault: str = "") -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of a bridge; it is killed at the end of the block, if not before."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({VARIABLE: fault} if fault else {})}
    command = (sys.executable, "-m", "tests.streams.bridge.killed_child", *arguments)
    made = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.kill()
        await made.wait()


def directories(home: Path, points: Iterable[str]) -> dict[str, Path]:
    """Make a directory for each point, in which it is counted how often it is reached."""
    made = {point: home / point for point in points}
    for one in made.values():
        one.mkdir()
    return made


async def dies_at(point: str, directory: Path, *arguments: str) -> None:
    """Run a child that is to die at a point, and see that it does."""
    async with child(*arguments, fault=f"{point} 1 kill {directory}") as one:
        async with asyncio.timeout(LONG_S):
            assert await one.wait() == -signal.SIGKILL, point


def test_a_bridge_into_a_database_that_is_killed(
    conninfo: str, repository: str, tmp_path: Path
) -> None:
    ledger = Ledger(conninfo, repository)
    made = directories(tmp_path, OF_INTO)

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            arguments = ("into", conninfo, repository, " ".join(sorted(stores.listed().stores)))
            for number, point in enumerate(OF_INTO):
                await send_all(one, texts(7, 7 * number))
                await one.wait_stable(WITHIN_S)
                await dies_at(point, made[point], *arguments)
            async with child(*arguments):
                await soon(lambda: ledger.position() == 7 * len(OF_INTO), LONG_S)

    asyncio.run(live())
    assert ledger.effects() == texts(7 * len(OF_INTO))


def test_a_relay_that_is_killed(
    qm: onceq.QueueManager, conninfo: str, repository: str, tmp_path: Path
) -> None:
    outbox = Outbox(qm, conninfo, repository)
    made = directories(tmp_path, OF_RELAY)

    async def live() -> None:
        async with running(None) as stores:
            arguments = ("relay", conninfo, repository, " ".join(sorted(stores.listed().stores)))
            for number, point in enumerate(OF_RELAY):
                outbox.put(texts(7, 7 * number))
                await dies_at(point, made[point], *arguments)
            async with child(*arguments):
                await soon(lambda: outbox.depth() == 0, LONG_S)
            every = {"a", "b", "c"}
            await soon(lambda: stores.having(S, texts(7 * len(OF_RELAY))) == every)

    asyncio.run(live())
