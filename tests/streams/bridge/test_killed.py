"""Bridges that are killed at each of their steps: the next life goes on, and all happens once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from proof.harness.processes import start
from tests.streams.bridge.killed_child import run
from tests.streams.bridge.ledgers import Ledger
from tests.streams.bridge.test_relay import Outbox
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.source.running import WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    import onceq
    from tests.streams.net.clusters import Cluster

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
async def child(
    what: str, where: tuple[str, str, str], fault: str = ""
) -> AsyncGenerator[BaseProcess]:
    """A process of a bridge; it is killed at the end of the block, if not before."""
    made = start(run, what, where, fault)
    try:
        yield made
    finally:
        made.kill()
        await asyncio.to_thread(made.join)
        made.close()


@pytest.fixture(autouse=True)
def _warm() -> None:
    """Have the process that forks the others, and a thread, before files are counted."""
    one = start(int)
    one.join()
    one.close()


def directories(home: Path, points: Iterable[str]) -> dict[str, Path]:
    """Make a directory for each point, in which it is counted how often it is reached."""
    made = {point: home / point for point in points}
    for one in made.values():
        one.mkdir()
    return made


async def dies_at(point: str, directory: Path, what: str, where: tuple[str, str, str]) -> None:
    """Run a bridge that is to die at a point, and see that it does."""
    async with child(what, where, f"{point} 1 kill {directory}") as one:
        await asyncio.to_thread(one.join, LONG_S)
        assert one.exitcode == -signal.SIGKILL, point


def stores_of(stores: Cluster) -> str:
    return " ".join(sorted(stores.listed().stores))


def test_a_bridge_into_a_database_that_is_killed(
    conninfo: str, repository: str, tmp_path: Path
) -> None:
    ledger = Ledger(conninfo, repository)
    made = directories(tmp_path, OF_INTO)

    async def live() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await one.wait_registered(WITHIN_S)
            where = (conninfo, repository, stores_of(stores))
            for number, point in enumerate(OF_INTO):
                await send_all(one, texts(7, 7 * number))
                await one.wait_stable(WITHIN_S)
                await dies_at(point, made[point], "into", where)
            async with child("into", where):
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
            where = (conninfo, repository, stores_of(stores))
            for number, point in enumerate(OF_RELAY):
                outbox.put(texts(7, 7 * number))
                await dies_at(point, made[point], "relay", where)
            async with child("relay", where):
                await soon(lambda: outbox.depth() == 0, LONG_S)
            every = {"a", "b", "c"}
            await soon(lambda: stores.having(S, texts(7 * len(OF_RELAY))) == every)

    asyncio.run(live())
