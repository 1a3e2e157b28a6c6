"""Stores that start again while a source has nothing to send, or after it has ended.

They learn what is stable all the same: a receiver that is shown only that gets the last messages.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from onceq.streams.store.disk_store import DiskStore
from tests.streams.net.clusters import running
from tests.streams.net.daemons import soon
from tests.streams.receiver.test_driver import Shows, live, receiver
from tests.streams.source.running import WITHIN_S, S, send_all, source, texts

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.source.async_source import AsyncSource
    from tests.streams.net.clusters import Cluster


def stable_at(stores: Cluster) -> dict[str, int]:
    """What each store that runs knows to be stable."""
    return {name: stores.stores[name].catalogue.of(S).stable for name in stores.servers}


async def known(stores: Cluster, below: int) -> None:
    """Wait until all three know that everything below is stable."""
    await soon(lambda: stable_at(stores) == dict.fromkeys("abc", below))


async def sent(one: AsyncSource, stores: Cluster, count: int) -> None:
    """Send so many messages, of which the last frame cannot tell that it is stable itself."""
    await one.wait_registered(WITHIN_S)
    await send_all(one, texts(count))
    await one.wait_stable(WITHIN_S)
    await known(stores, count)


def _says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have stores write nothing of what is stable but what frames say."""
    monkeypatch.setattr(DiskStore, "stable_unsaid", lambda _: {}, raising=False)


async def shown(stores: Cluster, count: int) -> None:
    """Let a receiver of what is stable read from the stores, until it has so many messages."""
    shows = Shows(stop_at=count - 1)
    await live(receiver(stores.listed(), shows))
    assert shows.bodies() == texts(count)


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_store_that_starts_again_behind_an_idle_source_is_told_what_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wiped: bool
) -> None:
    """Its own disk does not say it: the source does."""
    _says_nothing(monkeypatch)

    async def run() -> None:
        async with running(tmp_path) as stores, source(stores.listed()) as one:
            await sent(one, stores, 20)
            await stores.end("c")
            if is_wiped:
                shutil.rmtree(tmp_path / "c")
            await stores.start("c")
            await known(stores, 20)

    asyncio.run(run())


def test_stores_that_start_again_one_after_the_other_are_told_what_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says_nothing(monkeypatch)

    async def run() -> None:
        async with running(tmp_path) as stores, source(stores.listed()) as one:
            await sent(one, stores, 20)
            for name in "abc":
                await stores.end(name)
                await stores.start(name)
                await soon(one.is_registered)
            await known(stores, 20)
            await shown(stores, 20)

    asyncio.run(run())


def test_stores_that_start_again_when_the_source_has_ended_know_what_is_stable(
    tmp_path: Path,
) -> None:
    """Nobody tells them any more: it is on their disks."""

    async def run() -> None:
        async with running(tmp_path) as stores:
            async with source(stores.listed()) as one:
                await sent(one, stores, 20)
            await stores.end("abc")
            await stores.start("abc")
            assert stable_at(stores) == dict.fromkeys("abc", 20)
            await shown(stores, 20)
            for name in "abc":
                await stores.end(name)
                await stores.start(name)
            assert stable_at(stores) == dict.fromkeys("abc", 20)

    asyncio.run(run())


def test_a_short_life_waits_for_a_store_that_copies_what_it_lacks(tmp_path: Path) -> None:
    """Of three, two are enough: a life that ends then leaves the third as empty as it was."""

    async def run() -> None:
        async with running(tmp_path) as stores:
            async with source(stores.listed()) as one:
                await one.wait_registered(WITHIN_S)
                await send_all(one, texts(100))
                assert await one.wait_everywhere(WITHIN_S) == frozenset()
                assert stores.having(S, texts(100)) == set("abc")
            await stores.end("c")
            shutil.rmtree(tmp_path / "c")
            await stores.start("c")
            async with source(stores.listed()) as one:
                await one.wait_registered(WITHIN_S)
                await send_all(one, texts(1, 100))
                await one.wait_stable(WITHIN_S)
                assert await one.wait_everywhere(WITHIN_S) == frozenset()
            assert stores.having(S, texts(101)) == set("abc")
            await stores.end("c")
            async with source(stores.listed()) as one:
                await one.wait_registered(WITHIN_S)
                assert await one.wait_everywhere(WITHIN_S) == {str(stores.addresses["c"])}

    asyncio.run(run())
