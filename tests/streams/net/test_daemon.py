"""Stores over TCP: what is acknowledged is kept, what is no frame is closed, memory is bounded."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING

import pytest

from onceq.errors import InvalidValue
from onceq.streams.errors import WhyRefused
from onceq.streams.model import asks, frames
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import decode
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.net import link
from onceq.streams.net.address import Address, address
from onceq.streams.net.wire import ask_frame
from onceq.streams.store import daemon as daemons
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.net.daemons import Server, Source, serving, soon
from tests.streams.store.logs import Ailing
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path

FENCE = asks.Fence(stream=S, epoch=1, life=5, own=ABC, topic="bars", session=9)


def made(home: Path, name: str) -> DiskStore:
    initialize(home / name, chance, segment_bytes=1 << 20)
    return DiskStore(home / name, chance)


async def begun(address: str) -> Source:
    source = await Source.to(address)
    assert isinstance(await source.ask(FENCE), asks.Found)
    assert await source.ask(admission(1)) == asks.Holding(epoch=1, end=0, regid=1)
    return source


def test_what_is_acknowledged_over_tcp_is_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        store = made(tmp_path, "a")
        async with serving(store) as (_, at):
            source = await begun(at)
            for n in range(500):
                source.link.send(data_of(1, n, stable=n))
            await source.until(asks.Holding(epoch=1, end=500))
            source.link.close()
        store.close()
        store = DiskStore(tmp_path / "a", chance)
        assert [decode(one).number for one in store.read(S, range(900))] == [*range(500)]
        store.close()

    asyncio.run(run())


def test_a_store_that_is_told_to_stop_answers_for_what_it_took(tmp_path: Path) -> None:
    async def run() -> None:
        store = made(tmp_path, "a")
        server = Server(store)
        source = await begun(await server.address())
        source.link.send(data_of(1, 0))
        await soon(lambda: store.catalogue.of(S).end == 1)
        await server.end()
        await source.until(asks.Holding(epoch=1, end=1))
        assert await source.heard() is None
        store.close()

    asyncio.run(run())


def test_a_store_copies_what_it_lacks_from_another(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = made(tmp_path, "a"), made(tmp_path, "b")
        async with serving(first) as (_, at), serving(second) as (_, other):
            source = await begun(at)
            sent = [data_of(1, n, bytes(30_000), stable=n) for n in range(60)]
            for one in sent:
                source.link.send(one)
            await source.until(asks.Holding(epoch=1, end=60))
            late = await Source.to(other)
            fence = asks.Fence(stream=S, epoch=2, life=6, own=ABC)
            assert isinstance(await late.ask(fence), asks.Found)
            ask = asks.Admit(
                stream=S,
                life=6,
                log=Log(admitted=1, end=60, lists=(ABC,), firsts=((1, 0),), positions={}),
                bridge=Bridge(epoch=2, stage=Stage.SETTLED, lists=(ABC,), firsts=((1, 0), (2, 60))),
                donors=("127.0.0.1:1", at),
            )
            assert await late.ask(ask) == asks.Holding(epoch=2, end=60, regid=1)
            assert list(second.read(S, range(60))) == sent, "in answers of a mebibyte"
            source.link.close()
            late.link.close()
        first.close()
        second.close()

    asyncio.run(run())


def test_a_damaged_store_heals_itself_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "TICK_S", 0.01)

    async def run() -> None:
        first, second = made(tmp_path, "a"), made(tmp_path, "b")
        other = free_address()
        pair = asks.Fence(stream=S, epoch=1, life=5, own=listed_of(str(other)))
        for store in (first, second):
            store.do(store.catalogue.fence(pair))
            store.admit(admission_of(str(other)))
            for n in range(60):
                store.take(decode(data_of(1, n)), data_of(1, n), 5)
            store.log.commit()
        path = first.files.path(0)
        data = bytearray(path.read_bytes())
        data[data.index(data_of(1, 33)) + 50] ^= 1
        path.write_bytes(data)
        async with serving(second, at=other), serving(first):
            await soon(lambda: len(list(first.read(S, range(60)))) == 60)
        first.close()
        second.close()

    asyncio.run(run())


def free_address() -> Address:
    """Returns an address of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return Address(host="127.0.0.1", port=free.getsockname()[1])


def listed_of(other: str) -> StoreList:
    return listed(f"127.0.0.1:1 {other}")


def admission_of(other: str) -> asks.Admit:
    lists = (listed_of(other),)
    return asks.Admit(
        stream=S,
        life=5,
        log=Log(admitted=0, end=0, lists=lists, firsts=(), positions={}),
        bridge=Bridge(epoch=1, stage=Stage.SETTLED, lists=lists, firsts=((1, 0),)),
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n......", WhyRefused.RUBBISH),
        (data_of(1, 0)[:-1] + b"?", WhyRefused.RUBBISH),
        (
            frames.HEADER.pack(frames.MAGIC, 1, 1, 0, 0, 1 << 21, 1, 1, 1, 1, 1),
            WhyRefused.OVERSIZE,
        ),
        (data_of(1, 0)[:2] + b"\x07" + data_of(1, 0)[3:], WhyRefused.OTHER_VERSION),
    ],
    ids=["http", "crc", "oversize", "version"],
)
def test_what_is_no_frame_closes_its_connection_and_no_other(data: bytes, why: WhyRefused) -> None:
    async def run() -> None:
        async with serving(MemoryStore()) as (daemon, at):
            source, stranger = await begun(at), await Source.to(at)
            stranger.link.send(data)
            assert await stranger.heard() is None
            assert daemon.serving.refused == {why: 1}
            source.link.send(data_of(1, 0))
            assert await source.heard() == asks.Holding(epoch=1, end=1)
            source.link.close()
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


def test_who_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred asks for a megabyte each, and nothing taken: the store holds a few of them."""
    monkeypatch.setattr(link, "WRITE_BYTES_MAX", 1 << 20)

    async def run() -> None:
        async with serving(MemoryStore()) as (daemon, at):
            source = await begun(at)
            for n in range(12):
                source.link.send(data_of(1, n, bytes(100_000)))
            await source.until(asks.Holding(epoch=1, end=12))
            loop = asyncio.get_running_loop()
            idle = socket.create_connection(address_of(at))
            idle.settimeout(0)
            ask = asks.Fetch(stream=S, begin=0, end=10)
            asked = b"".join(ask_frame(S, tag, ask) for tag in range(1, 101))
            await loop.sock_sendall(idle, asked)
            await soon(lambda: len(daemon._links) == 2)
            await soon(lambda: any(one._is_full for one in daemon._links.values()))
            await asyncio.sleep(0.2)
            buffered = max(
                one._transport.get_write_buffer_size()
                for one in daemon._links.values()
                if one._transport is not None
            )
            assert buffered < 4 << 20
            source.link.send(data_of(1, 12))
            await source.until(asks.Holding(epoch=1, end=13))
            got = 0
            while got < 100 * 10 * 100_000:
                got += len(await loop.sock_recv(idle, 1 << 20))
            idle.close()
            source.link.close()
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


def address_of(text: str) -> tuple[str, int]:
    found = address(text)
    return found.host, found.port


def test_a_disk_that_fails_ends_the_store(tmp_path: Path) -> None:
    async def run() -> None:
        initialize(tmp_path / "a", chance, segment_bytes=1 << 20)
        files = Ailing(tmp_path / "a")
        store = DiskStore(tmp_path / "a", chance, files=files)
        server = Server(store)
        source = await begun(await server.address())
        files.sync_fails = True
        source.link.send(data_of(1, 0))
        assert await source.heard() is None, "nothing was acknowledged"
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            await server.running
        store.close()

    asyncio.run(run())


class Unforeseen(Ailing):
    """A disk that meets what nobody thought of, when it is told to."""

    def sync(self, handle: int) -> None:
        if self.sync_fails:
            raise ZeroDivisionError
        super().sync(handle)


def test_whatever_goes_wrong_as_it_commits_ends_the_store(tmp_path: Path) -> None:
    """It would take frames, and never answer."""

    async def run() -> None:
        initialize(tmp_path / "a", chance, segment_bytes=1 << 20)
        files = Unforeseen(tmp_path / "a")
        store = DiskStore(tmp_path / "a", chance, files=files)
        server = Server(store)
        source = await begun(await server.address())
        files.sync_fails = True
        source.link.send(data_of(1, 0))
        assert await source.heard() is None, "nothing was acknowledged"
        with pytest.raises(ZeroDivisionError):
            await server.running
        store.close()

    asyncio.run(run())


def test_more_than_it_can_bear_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "LINKS_MAX", 2)

    async def run() -> None:
        async with serving(MemoryStore()) as (daemon, at):
            two = [await begun(at), await Source.to(at)]
            third = await Source.to(at)
            assert await third.heard() is None
            assert daemon.turned_away == 1
            for one in two:
                one.link.close()
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


def test_nobody_is_listened_to_from_elsewhere_without_tls() -> None:
    for host in ("0.0.0.0", "192.168.1.7", "::", "stores.example"):
        with pytest.raises(InvalidValue, match="without TLS anybody"):
            Daemon(MemoryStore(), Address(host=host, port=7401))
    for host in ("127.0.0.1", "127.3.4.5", "::1", "localhost"):
        Daemon(MemoryStore(), Address(host=host, port=7401))


def test_both_ends_send_at_once_and_notice_that_the_other_is_gone() -> None:
    async def run() -> None:
        async with serving(MemoryStore()) as (daemon, at):
            source = await begun(at)
            for one in (source.link, *daemon._links.values()):
                assert one._transport is not None
                found = one._transport.get_extra_info("socket")
                assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
                read = [found.getsockopt(socket.IPPROTO_TCP, option) for option in options]
                assert read == [3, 3, 10_000]
            source.link.close()
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())
