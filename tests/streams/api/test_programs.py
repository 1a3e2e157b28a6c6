"""The two programs of the guide: a feed that goes on where the stores are, and one who is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from onceq import streams
from tests.parts import wait_until
from tests.streams.api.towns import BARS, READER, SENDER, WITHIN_S, Bar, Shows, bars, town

if TYPE_CHECKING:
    from pathlib import Path


def feed(given: list[Bar], stores: str, **options: Any) -> int:
    """Send what was not sent before; return how much that was."""
    with (
        streams.open(session_id=SENDER) as context,
        context.source(BARS, stores=stores, listen="127.0.0.1:0", **options) as source,
    ):
        rest = given[source.next_number :]
        for bar in rest:
            source.send(bar)
        source.wait_stable(timeout_s=WITHIN_S)
        assert source.stable_below == source.next_number == len(given)
    return len(rest)


def test_a_feed_that_runs_again_goes_on_where_the_stores_are(tmp_path: Path) -> None:
    with town(tmp_path) as stores:
        assert feed(bars(500), stores.at()) == 500
        assert feed(bars(700), stores.at()) == 200
        assert feed(bars(700), stores.at()) == 0
        shows = Shows(stop_at=699)
        with streams.open(session_id=READER) as context:
            shows.receiver = context.receiver(
                BARS, shows, at=stores.at("a"), deliver="stable", ack_batching_interval_ms=10
            )
            shows.receiver.run()
        assert shows.numbers() == [*range(700)]
        assert shows.values() == bars(700)
        assert all(message.retransmitted for message in shows.shown)
        told = sorted(stores.positions(f"session {READER:x}"))
        assert told[1:] == [700] * 2, "a quorum is told, if one answers late"
        wait_until(lambda: stores.links() == 0, WITHIN_S)


def test_a_receiver_learns_all_from_its_source_and_hears_it(tmp_path: Path) -> None:
    with (
        town(tmp_path) as stores,
        streams.open(session_id=SENDER) as sender,
        sender.source(BARS, stores=stores.at(), listen="127.0.0.1:0") as source,
        streams.open(session_id=READER) as reader,
    ):
        for bar in bars(10):
            source.send(bar)
        at = source.address
        shows = Shows(stop_at=29)

        def show(message: streams.Message[Bar]) -> None:
            shows(message)
            if message.number == 9:
                for bar in bars(20, 10):
                    source.send(bar)

        shows.receiver = reader.receiver(BARS, show, at=at, deliver="stable")
        shows.receiver.run()
        assert shows.values() == bars(30)
        assert len({message.identity for message in shows.shown}) == 30
        last = shows.shown[-1]
        statistics = source.statistics()
        assert last.identity == (statistics.stream, statistics.epoch, 29)
        assert BARS.decode(last.body) == last.value


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async def run(stores: str) -> None:
        async with (
            streams.open_async(session_id=SENDER) as sender,
            sender.source(BARS, stores=stores, listen="127.0.0.1:0", flight_size=10) as source,
            streams.open_async(session_id=READER) as reader,
        ):
            shows = Shows(stop_at=99)

            async def show(message: streams.Message[Bar]) -> None:
                await asyncio.sleep(0)
                shows(message)

            shows.receiver = reader.receiver(BARS, show, at=source.address, deliver="live")
            running = asyncio.ensure_future(shows.receiver.run())
            for bar in bars(100)[source.next_number :]:
                await source.send(bar)
            await source.wait_stable(timeout_s=WITHIN_S)
            await running
            assert shows.values() == bars(100)

    with town(tmp_path) as stores:
        asyncio.run(run(stores.at()))
