"""Receivers over TCP: all that is stable is shown, in order, once, and acknowledged when it was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import IllegalState, InvalidValue
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.catching_up import Patience
from onceq.streams.receiver.driver import Wishes, first_of
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who
from onceq.streams.source import listening
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.records import key_of
from tests.streams.net.clusters import running
from tests.streams.net.daemons import LOCAL, serving, soon
from tests.streams.net.keys import certificates
from tests.streams.source.running import (
    SESSION,
    TOPIC,
    WITHIN_S,
    S,
    core,
    send_all,
    source,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from onceq.streams.model.quorum import StoreList
    from tests.streams.net.clusters import Cluster

KEY = key_of(0, 5)
PATIENCE = Patience(read_s=0.5, ask_s=1.0, rest_s=0.05)


def who(known: StoreList) -> Who:
    return Who(topic=TOPIC, source=SESSION, session=5, key=KEY, known=known)


class Shows:
    """An application: what it was shown, and where it ends."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.shown: list[Shown] = []
        self.stop_at = stop_at
        self.receiver: AsyncReceiver | None = None

    def __call__(self, one: Shown) -> None:
        self.shown.append(one)
        if isinstance(one, Message) and one.number == self.stop_at and self.receiver is not None:
            self.receiver.stop()

    def bodies(self) -> list[bytes]:
        return [one.body for one in self.shown if isinstance(one, Message)]

    def numbers(self) -> list[int]:
        return [one.number for one in self.shown if isinstance(one, Message)]


def receiver(
    known: StoreList, shows: Callable[[Shown], Awaitable[None] | None], **given: Any
) -> AsyncReceiver:
    given.setdefault("patience", PATIENCE)
    given.setdefault("ack_batching_interval_ms", 20)
    made = AsyncReceiver(who(known), shows, wishes=Wishes(**given))
    if isinstance(shows, Shows):
        shows.receiver = made
    return made


async def live(one: AsyncReceiver) -> None:
    async with asyncio.timeout(WITHIN_S):
        await one.run()


def positions(stores: Cluster) -> list[int]:
    """What stores have noted of the receiver."""
    held = [store.catalogue.of(S) for store in stores.stores.values()]
    return [one.positions.get(KEY, 0) for one in held]


async def sent(one: AsyncSource, count: int, begin: int = 0) -> None:
    await one.wait_registered(WITHIN_S)
    await send_all(one, texts(count, begin))
    await one.wait_stable(WITHIN_S)


@pytest.mark.parametrize("is_stable_only", [True, False])
def test_all_is_shown_in_order_and_once_before_and_after_it_has_joined(
    tmp_path: Path, *, is_stable_only: bool
) -> None:
    async def run() -> None:
        async with running(tmp_path) as stores:
            async with source(stores.listed(), listen=LOCAL) as one:
                await sent(one, 500)
                shows = Shows()
                its = receiver(stores.listed(), shows, is_stable_only=is_stable_only)
                living = asyncio.ensure_future(live(its))
                await soon(lambda: len(shows.shown) >= 500)
                assert its.driver is not None
                driver = its.driver
                await soon(lambda: driver._joining.at == one._core.life.address)
                await sent(one, 1_000, 500)
                await soon(lambda: positions(stores) == [1_500] * 3)
                its.stop()
                await living
            assert shows.bodies() == texts(1_500)
            assert shows.numbers() == [*range(1_500)]
            lately = [one for one in shows.shown[500:] if isinstance(one, Message)]
            assert not all(one.retransmitted for one in lately), "the source sent some"
            assert stores.links() == 0

    asyncio.run(run())


class Mine(Exception):
    """An application's own error."""


@pytest.mark.parametrize("is_async", [False, True])
def test_what_raises_is_not_acknowledged_and_comes_again(*, is_async: bool) -> None:
    async def run() -> None:
        seen: list[int] = []

        def plain(one: Shown) -> None:
            assert isinstance(one, Message)
            if one.number == 30:
                raise Mine(one.number)
            seen.append(one.number)

        async def waits(one: Shown) -> None:
            await asyncio.sleep(0)
            plain(one)

        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 50)
            with pytest.raises(Mine, match="30"):
                await live(receiver(stores.listed(), waits if is_async else plain))
            assert seen == [*range(30)]
            assert positions(stores) == [30] * 3
            again = Shows(stop_at=49)
            await live(receiver(stores.listed(), again))
            assert again.numbers() == [*range(30, 50)]
            assert all(one.retransmitted for one in again.shown if isinstance(one, Message))
            assert positions(stores) == [50] * 3

    asyncio.run(run())


def test_what_was_shown_is_acknowledged_while_it_goes_on() -> None:
    async def run() -> None:
        async with running(None) as stores, source(stores.listed(), listen=LOCAL) as one:
            await sent(one, 10)
            shows = Shows()
            its = receiver(stores.listed(), shows)
            living = asyncio.ensure_future(live(its))
            await soon(lambda: positions(stores) == [10] * 3)
            await sent(one, 10, 10)
            await soon(lambda: positions(stores) == [20] * 3)
            its.stop()
            await living
            assert shows.bodies() == texts(20)

    asyncio.run(run())


def test_one_that_is_slow_slows_nobody_and_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it cannot hold is skipped by the source, and comes from stores."""
    monkeypatch.setattr(listening, "BUFFERED_BYTES_MAX", 1 << 20)

    async def run() -> None:
        go = asyncio.Event()
        bodies: list[bytes] = []

        async def shows(one: Shown) -> None:
            assert isinstance(one, Message)
            await go.wait()
            bodies.append(one.body)
            if len(bodies) == end:
                its.stop()

        end = -1
        text = [b"%06d" % number + bytes(10_000) for number in range(20)]
        async with running(None) as stores, source(stores.listed(), listen=LOCAL) as one:
            await sent(one, 1)
            its = receiver(stores.listed(), shows, application_outstanding_maximum=10)
            living = asyncio.ensure_future(live(its))
            await soon(lambda: its.driver is not None and its.driver._joining.at != "")
            assert its.driver is not None
            held = 0
            async with asyncio.timeout(WITHIN_S):
                while one._driver.receivers.skipped == 0:
                    await send_all(one, text)
                    await one.wait_stable(WITHIN_S)
                    held = max(held, len(its.driver.outstanding))
            assert held <= 10 + 200, (
                "a range of stores, of about 1 MiB, is the most it gets at once"
            )
            end = one.next_number
            go.set()
            await living
            assert len(bodies) == end
            assert bodies == texts(1) + text * ((end - 1) // len(text))

    asyncio.run(run())


def test_it_follows_the_source_to_where_its_next_life_listens() -> None:
    async def run() -> None:
        async with running(None) as stores:
            shows = Shows(stop_at=29)
            its = receiver(stores.listed(), shows)
            living: asyncio.Future[None] | None = None
            for life in range(3):
                async with source(stores.listed(), listen=LOCAL) as one:
                    await sent(one, 5, 10 * life)
                    living = living or asyncio.ensure_future(live(its))
                    await soon(lambda: is_at(its, one))
                    await sent(one, 5, 10 * life + 5)
                    await shown(shows, 10 * life + 10)
            assert living is not None
            await living
            assert shows.bodies() == texts(30)

    asyncio.run(run())


async def shown(shows: Shows, count: int) -> None:
    await soon(lambda: len(shows.shown) == count)


def is_at(its: AsyncReceiver, one: AsyncSource) -> bool:
    """Whether a receiver has joined a life of the source."""
    return its.driver is not None and its.driver._joining.at == one._core.life.address


def test_it_leaves_a_life_that_was_succeeded_elsewhere() -> None:
    async def run() -> None:
        async with running(None) as stores, source(stores.listed(), listen=LOCAL) as zombie:
            await sent(zombie, 5)
            shows = Shows(stop_at=9)
            its = receiver(stores.listed(), shows)
            living = asyncio.ensure_future(live(its))
            await soon(lambda: is_at(its, zombie))
            async with source(stores.listed(), listen=LOCAL) as one:
                await one.wait_registered(WITHIN_S)
                await soon(lambda: is_at(its, one))
                await sent(one, 5, 5)
                await living
            assert shows.bodies() == texts(10)

    asyncio.run(run())


def test_it_reads_on_though_stores_die_and_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as stores:
            async with source(stores.listed()) as one:
                await sent(one, 300)
            await soon(lambda: stores.having(S, texts(300)) == set("abc"))
            await stores.end("ab")
            shows = Shows(stop_at=299)
            its = receiver(stores.listed(), shows)
            living = asyncio.ensure_future(live(its))
            await asyncio.sleep(0.1)
            assert its.driver is None, "it is registered at a stable set"
            await stores.start("a")
            await living
            assert shows.bodies() == texts(300)

    asyncio.run(run())


def test_it_ends_when_it_is_stopped_or_cancelled_whatever_it_does() -> None:
    async def run() -> None:
        async with running(None) as stores:
            await stores.end("abc")
            early = receiver(stores.listed(), Shows())
            living = asyncio.ensure_future(live(early))
            await asyncio.sleep(0.05)
            early.stop()
            await living
            with pytest.raises(IllegalState, match="once"):
                await early.run()
            await stores.start("abc")
            async with source(stores.listed(), listen=LOCAL) as one:
                await sent(one, 5)
                shows = Shows()
                its = receiver(stores.listed(), shows)
                living = asyncio.ensure_future(its.run())
                await soon(lambda: len(shows.shown) == 5)
                living.cancel()
                await asyncio.wait([living])
                assert living.cancelled()
                assert positions(stores) == [5] * 3

    asyncio.run(run())


def test_a_call_back_may_choose_where_it_begins() -> None:
    async def run() -> None:
        async with running(None) as stores, source(stores.listed()) as one:
            await sent(one, 10)
            shows = Shows(stop_at=9)
            await live(receiver(stores.listed(), shows, choose=lambda found: found.high - 2))
            assert shows.numbers() == [7, 8, 9]

            def refuses(_: object) -> int:
                raise Mine("chosen")

            with pytest.raises(Mine, match="chosen"):
                await live(receiver(stores.listed(), shows, choose=refuses))

    asyncio.run(run())


def test_a_source_beyond_this_machine_is_not_joined_without_certificates() -> None:
    async def run() -> None:
        async with running(None) as stores:
            own = stores.listed()
            async with AsyncSource(core(own, at="192.0.2.1:7500")) as one:
                await sent(one, 1)
                with pytest.raises(InvalidValue, match="certificates"):
                    await live(receiver(own, Shows()))

    asyncio.run(run())


def test_with_tls_all_goes_as_without(tmp_path: Path) -> None:
    async def run() -> None:
        ours = certificates(tmp_path / "ours")
        async with serving(MemoryStore(), ours) as (daemon, at):
            own = listed(at)
            async with AsyncSource(core(own), listen=LOCAL, certificates=ours) as one:
                await sent(one, 5)
                shows = Shows(stop_at=9)
                its = AsyncReceiver(
                    who(own), shows, wishes=Wishes(patience=PATIENCE), certificates=ours
                )
                shows.receiver = its
                living = asyncio.ensure_future(live(its))
                await soon(lambda: is_at(its, one))
                await sent(one, 5, 5)
                await living
                assert shows.bodies() == texts(10)
            await soon(lambda: daemon.serving.links == 0)

    asyncio.run(run())


@pytest.mark.parametrize(
    "given", [{"ack_batching_interval_ms": 0}, {"application_outstanding_maximum": -1}]
)
def test_wishes_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Wishes(**given)


def test_of_what_goes_on_side_by_side_nothing_is_left() -> None:
    async def run() -> None:
        ended: list[str] = []

        async def goes_on() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("cancelled")

        async def raises() -> None:
            await asyncio.sleep(0)
            raise Mine

        with pytest.raises(Mine):
            await first_of(goes_on(), raises(), goes_on())
        assert ended == ["cancelled"] * 2

    asyncio.run(run())
