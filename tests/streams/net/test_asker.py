"""Who asks stores, at which addresses, and by which certificates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from onceq.errors import InvalidValue
from onceq.streams.model import asks
from onceq.streams.model.ops import AskStore, AskStores, FetchRange, WaitUntil
from onceq.streams.model.quorum import listed
from onceq.streams.net.address import Address, address
from onceq.streams.net.asker import Asker
from onceq.streams.net.wire import answer_frame
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.net.daemons import serving, soon
from tests.streams.net.keys import certificates
from tests.streams.store.test_disk_store import S, data_of

if TYPE_CHECKING:
    from pathlib import Path
from tests.streams.net.test_daemon import begun


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:99999", "a b:1", "::1:7"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is no address"):
        address(text)


def test_addresses_are_read_as_they_are_written() -> None:
    for text in ("127.0.0.1:7401", "[::1]:0", "store-1.example:65535"):
        assert str(address(text)) == text


def test_an_asker_performs_the_ops_that_go_to_stores() -> None:
    async def run() -> None:
        asker = Asker()
        async with serving(MemoryStore()) as (daemon, at), serving(MemoryStore()) as (_, other):
            source = await begun(at)
            for n in range(3):
                source.link.send(data_of(1, n))
            await source.until(asks.Holding(epoch=1, end=3))
            ask = asks.Look(topic="bars", session=9)
            found = await asker.perform(AskStore(store=at, ask=ask, within_s=5.0))
            assert found.stream == S
            gone = AskStore(store="127.0.0.1:1", ask=ask, within_s=5.0)
            assert await asker.perform(gone) is None
            fetch = asks.Fetch(stream=S, begin=1, end=9)
            given = await asker.perform(FetchRange(store=at, ask=fetch, within_s=5.0))
            assert given == (data_of(1, 1), data_of(1, 2))
            none = FetchRange(store=other, ask=fetch, within_s=5.0)
            assert await asker.perform(none) is None
            stores = (at, other, "127.0.0.1:1")
            answers = await asker.perform(
                AskStores(
                    asked=dict.fromkeys(stores, ask),
                    enough=lambda answered: len(answered) == 3,
                    within_s=5.0,
                )
            )
            assert answers == {at: found, other: asks.Found()}
            first = await asker.perform(
                AskStores(asked=dict.fromkeys(stores, ask), enough=bool, within_s=5.0)
            )
            assert len(first) >= 1
            assert await asker.perform(WaitUntil(within_s=0.0)) is None
            with pytest.raises(TypeError, match="no Op that goes to stores"):
                await asker.perform("something")
            source.link.close()
            asker.close()
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


def test_an_asker_connects_again_to_a_store_that_came_back() -> None:
    async def run() -> None:
        asker = Asker()
        ask = asks.Look(topic="bars", session=9)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port: int = taken.getsockname()[1]
        at = Address(host="127.0.0.1", port=port)
        for _ in range(2):
            assert await asker.ask(str(at), ask, 5.0) is None
            async with serving(MemoryStore(), at=at):
                assert await asker.ask(str(at), ask, 5.0) == (asks.Found(), ())
        asker.close()

    asyncio.run(run())


def test_a_store_that_says_nothing_is_none_in_time() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(100):
                pass
            writer.close()
            await writer.wait_closed()
            ended.set()

        mute = await asyncio.start_server(listen, "127.0.0.1", 0)
        port: int = mute.sockets[0].getsockname()[1]
        asker = Asker()
        ask = asks.Look(topic="bars", session=9)
        assert await asker.ask(f"127.0.0.1:{port}", ask, 0.5) is None
        asker.close()
        await ended.wait()
        mute.close()

    asyncio.run(run())


def test_with_tls_only_who_is_certified_is_heard(tmp_path: Path) -> None:
    async def run() -> None:
        ours = certificates(tmp_path / "ours")
        theirs = certificates(tmp_path / "theirs", stranger=True)
        ask = asks.Look(topic="bars", session=9)
        async with serving(MemoryStore(), ours) as (daemon, at):
            asker = Asker(ours.connecting())
            assert await asker.ask(at, ask, 60.0) == (asks.Found(), ())
            asker.close()
            for tls in (theirs.connecting(), None):
                stranger = Asker(tls)
                assert await stranger.ask(at, ask, 1.0) is None
                stranger.close()
            await soon(lambda: daemon.serving.links == 0)
            assert daemon.serving.refused == {}

    asyncio.run(run())


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    found = certificates(tmp_path)
    found.key.write_text("no key")
    for made in (found.listening, found.connecting):
        with pytest.raises(InvalidValue, match="cannot be used"):
            made()
    Daemon(MemoryStore(), Address(host="0.0.0.0", port=0), certificates=certificates(tmp_path))


def test_a_store_that_gives_without_end_is_not_believed() -> None:
    async def run() -> None:
        async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(answer_frame(S, 1, asks.Range(begin=0, end=9, frames=1 << 40)))
            for n in range(9):
                writer.write(data_of(1, n, bytes(500_000)))
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            ended.set()

        ended = asyncio.Event()
        server = await asyncio.start_server(give, "127.0.0.1", 0)
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asker = Asker()
        assert await asker.ask(at, asks.Fetch(stream=S, begin=0, end=9), 60.0) is None
        asker.close()
        await ended.wait()
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_binding", [True, False])
def test_a_promise_that_nobody_waits_for_any_more_closes_its_link(*, is_binding: bool) -> None:
    """What a store did not yet heed it then does not heed: the source has gone on without it."""

    async def run() -> None:
        came: list[bytes] = []
        closed = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    came.append(data)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            closed.set()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asker = Asker()
        look = asks.Look(topic="bars", session=9)
        fence = asks.Fence(stream=S, epoch=1, life=5, own=listed(at))
        asking = asyncio.ensure_future(asker.ask(at, fence if is_binding else look, within_s=60.0))
        await soon(lambda: len(came) > 0)
        asking.cancel()
        await asyncio.wait([asking])
        if not is_binding:
            other = asyncio.ensure_future(asker.ask(at, look, within_s=60.0))
            await soon(lambda: len(came) > 1)
            assert not closed.is_set(), "the same link is used again"
            other.cancel()
            await asyncio.wait([other])
            asker.close()
        await closed.wait()
        asker.close()
        server.close()

    asyncio.run(run())
