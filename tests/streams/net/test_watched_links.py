"""Links to stores that are watched: who is told of them, and of what comes on them unasked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks
from onceq.streams.net import asker as asker_module
from onceq.streams.net.asker import Asker, Watch
from onceq.streams.net.link import Link, wait_closed
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.net.daemons import Source, serving, soon
from tests.streams.net.test_daemon import FENCE
from tests.streams.store.test_disk_store import admission, data_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LOOK = asks.Look(topic="bars", session=9)
WITHIN_S = 60.0


class Watched:
    """An asker, and what was told of its links."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answers: list[asks.Answer] = []
        self.asker = Asker(
            watch=Watch(
                linked=lambda _: self.told.append("linked"),
                unlinked=lambda _, __: self.told.append("unlinked"),
                answered=lambda _, answer: self.answers.append(answer),
            )
        )

    async def begin(self, at: str) -> None:
        """Have a store admitted."""
        assert await self.asker.ask(at, FENCE, WITHIN_S) is not None
        given = await self.asker.ask(at, admission(1), WITHIN_S)
        assert given == (asks.Holding(epoch=1, end=0, regid=1), ())


def test_frames_go_on_the_link_on_which_the_store_promised_and_are_answered() -> None:
    async def run() -> None:
        one = Watched()
        async with serving(MemoryStore()) as (daemon, at):
            one.asker.send(at, data_of(1, 0))
            assert not one.asker.is_linked(at), "nothing is sent where there is no link"
            await one.begin(at)
            one.asker.send(at, data_of(1, 0))
            await soon(lambda: one.answers == [asks.Holding(epoch=1, end=1)])
            assert daemon.serving.links == 1
            assert one.told == ["linked"]
        await soon(lambda: one.told == ["linked", "unlinked"])
        assert not one.asker.is_linked(at)
        await one.asker.connect(at, WITHIN_S)
        assert one.told == ["linked", "unlinked"], "nobody is there"

    asyncio.run(run())


def test_what_is_asked_at_once_after_a_link_was_closed_is_answered_on_another() -> None:
    async def run() -> None:
        one = Watched()
        async with serving(MemoryStore()) as (daemon, at):
            await one.asker.connect(at, WITHIN_S)
            link = one.asker._peers[at]._link
            assert link is not None
            link.abort()
            assert await one.asker.ask(at, LOOK, WITHIN_S) == (asks.Found(), ())
            assert one.told == ["linked", "unlinked", "linked"]
            await one.asker.wait_closed(WITHIN_S)
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


def test_only_the_links_that_are_kept_stay() -> None:
    async def run() -> None:
        one = Watched()
        async with serving(MemoryStore()) as (daemon, at), serving(MemoryStore()) as (_, other):
            for store in (at, other):
                await one.asker.connect(store, WITHIN_S)
            one.asker.keep({at})
            await soon(lambda: not one.asker.is_linked(other))
            assert one.asker.is_linked(at)
            await one.asker.wait_closed(WITHIN_S)
            assert not one.asker.is_linked(at)
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def deaf() -> AsyncGenerator[str]:
    """An address where somebody listens, and takes nothing that is sent."""
    ended, left = asyncio.Event(), asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined] # it is one that reads
        try:
            await ended.wait()
        finally:
            writer.transport.abort()
            left.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0, limit=1 << 10)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        await left.wait()
        server.close()


@pytest.mark.parametrize("sent", [0, 32 << 20])
def test_links_are_closed_when_all_is_sent_or_at_once_if_that_takes_long(sent: int) -> None:
    async def run() -> None:
        async with deaf() as at:
            source = await Source.to(at)
            source.link.send(bytes(sent))
            assert (source.link.buffered > 0) is (sent > 0)
            await wait_closed([source.link], 0.1)
            assert not is_open(source.link)
            assert source.link.buffered == 0
            assert await source.heard() is None

    asyncio.run(run())


def is_open(link: Link) -> bool:
    return link.is_open


def test_a_store_that_takes_nothing_loses_its_link_before_much_is_held_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not answered for is sent again and again, as long as there is a link."""
    monkeypatch.setattr(asker_module, "HELD_BYTES_MAX", 1 << 20)

    async def run() -> None:
        one, ended = Watched(), asyncio.Event()

        async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket
            await ended.wait()
            writer.transport.abort()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await one.asker.connect(at, WITHIN_S)
        held, data = 0, data_of(1, 0) * 1_000
        async with asyncio.timeout(WITHIN_S):
            while one.asker.is_linked(at):
                one.asker.send(at, data)
                link = one.asker._peers[at]._link
                held = max(held, 0 if link is None else link.buffered)
                await asyncio.sleep(0)
        assert 1 << 20 < held <= (1 << 20) + len(data)
        await soon(lambda: one.told == ["linked", "unlinked"])
        ended.set()
        server.close()

    asyncio.run(run())
