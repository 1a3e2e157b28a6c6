"""What a receiver tells its source, and what the source then knows, over TCP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from onceq.streams.model import asks, events
from onceq.streams.receiver.confirming import Confirming, registered_as
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.releasing import Policy
from onceq.streams.source.sending import Sending
from tests.streams.net.clusters import running
from tests.streams.net.daemons import LOCAL, soon
from tests.streams.receiver.test_driver import receiver
from tests.streams.source.running import TIMING, WITHIN_S, Heard, S, core

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from onceq.streams.receiver.async_receiver import AsyncReceiver
    from tests.streams.net.clusters import Cluster


def said(below: int, epoch: int = 1) -> asks.Confirm:
    return asks.Confirm(stream=S, epoch=epoch, receiver=5, below=below)


def due(one: Confirming, below: int, **given: Any) -> asks.Confirm | None:
    at: dict[str, Any] = {"epoch": 1, "link": 1, "now_s": 0.0, **given}
    found = one.due(below, **at)
    if found is not None:
        one.said(found, link=at["link"], now_s=at["now_s"])
    return found


def test_what_is_processed_is_said_once_on_each_link_and_in_each_epoch() -> None:
    one = Confirming(S, 5, 0.0)
    assert due(one, 3, epoch=0) is None, "it follows none yet"
    assert due(one, 3) == said(3)
    assert due(one, 3, now_s=99.0) is None
    assert due(one, 4) == said(4)
    assert due(one, 4, link=2) == said(4)
    assert due(one, 4, link=2, epoch=2) == said(4, 2)


def test_a_keepalive_is_said_when_nothing_was_confirmed_for_a_while() -> None:
    one = Confirming(S, 5, 2.0)
    assert due(one, 3) == said(3)
    assert due(one, 3, now_s=1.9) is None
    assert due(one, 3, now_s=2.0) == said(3)
    assert due(one, 3, now_s=3.0) is None


def test_a_receiver_is_known_by_its_session_or_by_its_registration() -> None:
    assert registered_as(5, {"a": 1}) == 5
    assert registered_as(0, {"b": 2, "a": 1}) == registered_as(0, {"a": 1})
    assert registered_as(0, {"a": 1}) != registered_as(0, {"a": 2})


@contextlib.asynccontextmanager
async def sending(**policy: Any) -> AsyncGenerator[tuple[Cluster, AsyncSource, Heard]]:
    """Stores in memory, and a source that listens and is heard."""
    async with running(None) as stores:
        made, heard = core(stores.listed()), Heard()
        flight = made.keeping.flight
        one = AsyncSource(
            Sending(made.life, flight, TIMING, policy=Policy(**policy)),
            listen=LOCAL,
            on_event=heard,
        )
        async with one:
            await one.wait_registered(WITHIN_S)
            yield stores, one, heard


@contextlib.asynccontextmanager
async def living(one: AsyncReceiver) -> AsyncGenerator[None]:
    """A receiver that runs within a block."""
    running_ = asyncio.ensure_future(one.run())
    try:
        yield
    finally:
        one.stop()
        async with asyncio.timeout(WITHIN_S):
            await running_


def confirmed(heard: Heard) -> set[int]:
    told = heard.of(events.Confirmed)
    return {number for one in told for number in range(one.first, one.last + 1)}


def test_what_a_receiver_has_processed_is_confirmed_and_then_released() -> None:
    async def run() -> None:
        async with sending(retention_unique_confirmations=1) as (stores, one, heard):
            shown: list[Shown] = []
            first = one.send(b"0", "zero")
            assert heard.of(events.SequenceNumbers) == [
                events.SequenceNumbers(stream=S, first=first, last=first, given="zero")
            ], "before send returns"
            await one.wait_stable(WITHIN_S)
            assert one._core.retention.begin == 0
            async with living(receiver(stores.listed(), shown.append)):
                await soon(lambda: confirmed(heard) == {0})
                (told,) = heard.of(events.Confirmed)
                assert (told.receiver, told.unique, told.given) == (5, 1, "zero")
                await soon(lambda: one._core.retention.begin == 1)
            await soon(lambda: len(heard.of(events.ReceiverDead)) == 1)

    asyncio.run(run())


def test_a_receiver_that_does_not_confirm_is_not_known_to_its_source() -> None:
    async def run() -> None:
        async with sending() as (stores, one, heard):
            shown: list[Shown] = []
            made = receiver(stores.listed(), shown.append, allow_confirmed_delivery=False)
            async with living(made):
                one.send(b"0")
                await soon(lambda: len(shown) == 1)
                one.send(b"1")
                await soon(lambda: len(shown) == 2)
            assert not one._core.keeping.confirming.receivers
            assert heard.of(events.ReceiverDead) == []

    asyncio.run(run())


def test_a_receiver_that_waits_says_that_it_lives() -> None:
    async def run() -> None:
        async with sending() as (stores, one, _):
            made = receiver(stores.listed(), lambda _: None, receiver_liveness_interval_ms=20)
            async with living(made):
                known = one._core.keeping.confirming.receivers
                await soon(lambda: 5 in known)
                first_s = known[5].spoke_s
                await soon(lambda: known[5].spoke_s > first_s + 0.05)

    asyncio.run(run())


def test_a_large_message_comes_as_one_live_and_from_stores() -> None:
    async def run() -> None:
        async with sending(fragment_size=1_000) as (stores, one, heard):
            large = b"".join(b"%09d " % number for number in range(450))
            assert one.send(large) == 4
            await one.wait_stable(WITHIN_S)
            shown: list[Shown] = []
            async with living(receiver(stores.listed(), shown.append)):
                await soon(lambda: len(shown) == 1)
                assert one.send(large) == 9
                await soon(lambda: len(shown) == 2)
            assert [(one.number, one.parts) for one in shown if isinstance(one, Message)] == [
                (4, 5),
                (9, 5),
            ]
            assert {one.body for one in shown if isinstance(one, Message)} == {large}
            numbers = heard.of(events.SequenceNumbers)
            assert [(one.first, one.last) for one in numbers] == [(0, 4), (5, 9)]

    asyncio.run(run())
