"""Receivers that connect to a source: they hear all it sends, and none of them slows it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks, encoding, frames
from onceq.streams.model.frames import Frame, FrameKind, decode
from onceq.streams.net.link import Link
from onceq.streams.net.wire import TO_FRAMES, ask_frame
from onceq.streams.source import listening
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.listening import Heard, Listening
from tests.streams.net.clusters import running
from tests.streams.net.daemons import LOCAL, soon
from tests.streams.source.running import (
    SESSION,
    TOPIC,
    WITHIN_S,
    S,
    send_all,
    source,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.streams.net.clusters import Cluster

LEARN = asks.Learn(topic=TOPIC, session=SESSION)


class Hearing:
    """A receiver's link, and what came on it."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.is_lost = False
        self.link = Link(
            made=lambda _: None, came=lambda _, data: self.data.append(data), lost=self._lost
        )

    def _lost(self, _: Link, __: str) -> None:
        self.is_lost = True

    @classmethod
    async def to(cls, one: AsyncSource, ask: asks.Ask | None = LEARN) -> Hearing:
        made = cls()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: made.link, *address_of(one))
        if ask is not None:
            made.link.send(ask_frame(0, 1, ask))
        return made

    def frames(self) -> list[Frame]:
        return [frame for frame in map(decode, self.data) if frame.kind is FrameKind.MESSAGES]

    def messages(self) -> list[bytes]:
        return [bytes(body) for frame in self.frames() for body in frame.messages()]

    def told(self) -> list[tuple[int, asks.Answer]]:
        """The answers that came, with their tags."""
        found = [frame for frame in map(decode, self.data) if frame.kind is FrameKind.ANSWER]
        return [(frame.number, encoding.answer_of(frame.body)) for frame in found]


def address_of(one: AsyncSource) -> tuple[str, int]:
    host, _, port = one._core.life.address.rpartition(":")
    return host, int(port)


@contextlib.asynccontextmanager
async def listens() -> AsyncGenerator[tuple[Cluster, AsyncSource]]:
    """Stores in memory, and a source that listens."""
    async with running(None) as stores, source(stores.listed(), listen=LOCAL) as one:
        await one.wait_registered(WITHIN_S)
        yield stores, one


def test_a_receiver_hears_what_it_must_know_then_all_and_what_is_stable() -> None:
    async def run() -> None:
        async with listens() as (_, one):
            hearing = await Hearing.to(one)
            await soon(lambda: len(hearing.data) == 1)
            known = one._core.information()
            assert known is not None
            assert hearing.told() == [(1, known)]
            assert (known.stream, known.address.rpartition(":")[0]) == (S, "127.0.0.1")
            await send_all(one, texts(500))
            await one.wait_stable(WITHIN_S)
            await soon(lambda: hearing.messages() == texts(500))
            await soon(lambda: hearing.frames()[-1].stable == 500)
            assert hearing.frames()[-1].count == 0, "nothing else was sent that tells it"
        assert hearing.is_lost

    asyncio.run(run())


def test_one_that_came_before_the_first_epoch_is_told_when_that_begins() -> None:
    async def run() -> None:
        async with running(None) as stores:
            await stores.end("abc")
            async with source(stores.listed(), listen=LOCAL) as one:
                hearing = await Hearing.to(one)
                await soon(lambda: hearing.told() == [(1, asks.Forgot())])
                await stores.start("abc")
                await one.wait_registered(WITHIN_S)
                known = one._core.learn(LEARN)
                one.send(b"first")
                await soon(lambda: hearing.messages() == [b"first"])
                assert hearing.told()[1:] == [(TO_FRAMES, known)]

    asyncio.run(run())


class Slow(Link):
    """A link whose other end takes nothing, until it is told to."""

    def __init__(self) -> None:
        super().__init__(made=lambda _: None, came=lambda *_: None, lost=lambda *_: None)
        self.sent: list[bytes] = []
        self.taken = 0

    @property
    def buffered(self) -> int:
        return sum(map(len, self.sent[self.taken :]))

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def take_all(self) -> None:
        self.taken = len(self.sent)


def test_one_that_takes_nothing_is_skipped_and_told_how_far_all_is_when_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "BUFFERED_BYTES_MAX", 1_000)
    monkeypatch.setattr(listening, "RESUMED_BYTES_MAX", 250)
    said: list[tuple[int, asks.Confirm]] = []
    receivers = Listening(
        Heard(
            learn=lambda _: asks.Forgot(),
            kept=list,
            confirmed=lambda link, one: said.append((link, one)),
            left=lambda *_: None,
        )
    )
    quick, slow = Slow(), Slow()
    for link in (quick, slow):
        receivers._made(link)
        receivers._came(link, ask_frame(0, 1, LEARN))
    for number in range(5):
        receivers.publish(b"%d" % number * 600)
        quick.take_all()
    assert (len(quick.sent), len(slow.sent), receivers.skipped) == (6, 3, 1)
    confirm = asks.Confirm(stream=S, epoch=1, receiver=5, below=1)
    receivers._came(slow, ask_frame(S, TO_FRAMES, confirm))
    assert said == [(2, confirm)], "it is heard all the same"
    receivers._came(slow, ask_frame(0, 1, LEARN))
    receivers.look()
    assert len(slow.sent) == 3
    slow.take_all()
    receivers.look()
    assert encoding.answer_of(decode(slow.sent[3]).body) == asks.Forgot()
    receivers.publish(b"next")
    assert (len(slow.sent), slow.sent[4], receivers.skipped) == (5, b"next", 1)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n......",
        ask_frame(0, 1, asks.Learn(topic=TOPIC, session=SESSION + 1)),
        ask_frame(0, 1, asks.Look(topic=TOPIC, session=SESSION)),
        frames.encode(Frame(kind=FrameKind.MESSAGES, stream=S, epoch=1, number=0, stable=0)),
    ],
    ids=["http", "another stream", "not a receiver's", "frames"],
)
def test_who_sends_something_else_is_closed_and_nobody_else(data: bytes) -> None:
    async def run() -> None:
        async with listens() as (_, one):
            hearing, stranger = await Hearing.to(one), await Hearing.to(one, None)
            stranger.link.send(data)
            await soon(lambda: stranger.is_lost)
            one.send(b"0")
            await soon(lambda: hearing.messages() == [b"0"])
            assert stranger.data == []

    asyncio.run(run())


def test_one_that_has_asked_nothing_hears_nothing() -> None:
    async def run() -> None:
        async with listens() as (_, one):
            silent, hearing = await Hearing.to(one, None), await Hearing.to(one)
            await soon(lambda: len(hearing.data) == 1)
            one.send(b"0")
            await soon(lambda: hearing.messages() == [b"0"])
            assert silent.data == []

    asyncio.run(run())


def test_more_than_it_can_bear_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "RECEIVERS_MAX", 2)

    async def run() -> None:
        async with listens() as (_, one):
            two = [await Hearing.to(one), await Hearing.to(one)]
            await soon(lambda: all(hearing.data for hearing in two))
            third = await Hearing.to(one)
            await soon(lambda: third.is_lost)
            assert one._driver.receivers.turned_away == 1
            one.send(b"0")
            await soon(lambda: all(hearing.messages() == [b"0"] for hearing in two))

    asyncio.run(run())


def test_nobody_is_listened_to_when_it_is_closed() -> None:
    async def run() -> None:
        async with running(None) as stores:
            one = source(stores.listed(), listen=LOCAL)
            await one.start()
            await one.wait_registered(WITHIN_S)
            hearing = await Hearing.to(one)
            await soon(lambda: len(hearing.data) == 1)
            one.send(b"last")
            await one.close()
            await soon(lambda: hearing.is_lost)
            assert hearing.messages() == [b"last"]
            with pytest.raises(ConnectionRefusedError):
                await Hearing.to(one)

    asyncio.run(run())
