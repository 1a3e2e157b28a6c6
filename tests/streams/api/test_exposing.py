"""What sources and receivers say of themselves: frozen statistics, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.streams.api.exposing import (
    RECEIVER_METRICS,
    SOURCE_METRICS,
    receiver_text,
    source_text,
)
from onceq.streams.api.statistics import ReceiverStatistics, SourceStatistics
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Shows, sent, soon, town
from tests.streams.net.daemons import soon as soon_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.model.metrics import Metric

SOURCE = SourceStatistics(
    stream=0xABC,
    epoch=3,
    is_registered=True,
    next_number=12,
    stable_below=9,
    in_flight=3,
    in_flight_bytes=30,
    retained=5,
    retained_bytes=50,
    stores="a b c",
    session_id=0x7E1,
    topic="bars",
    forced=2,
    store_states={"a": "admitted", "b": "admitted", "c": "silent"},
)
RECEIVER = ReceiverStatistics(
    topic="bars",
    session_id=0xB5,
    source_session_id=0x7E1,
    delivered=7,
    stable_lag=4,
    lost={"trimmed": 3},
    rolled_back=1,
    outstanding=6,
    outstanding_bytes=60,
    reconnects=2,
)
LISTEN = "127.0.0.1:0"
OF_SOURCE, OF_RECEIVER = 'topic="bars",session="7e1"', 'topic="bars",session="b5",source="7e1"'


def values(text: str) -> dict[str, float]:
    """The samples of a text."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert len(found) == len(lines), "each sample is there once"
    return found


def test_the_text_of_a_source_has_a_line_for_each_value() -> None:
    one = f"{{{OF_SOURCE}}}"
    states = {"full": 0.0, "silent": 1.0, "admitted": 2.0, "joining": 0.0}
    assert values(source_text(SOURCE)) == {
        f"onceq_stream_source_registered{one}": 1,
        f"onceq_stream_source_next_number{one}": 12,
        f"onceq_stream_source_stable_below{one}": 9,
        f"onceq_stream_source_flight_messages{one}": 3,
        f"onceq_stream_source_flight_bytes{one}": 30,
        f"onceq_stream_source_retained_messages{one}": 5,
        f"onceq_stream_source_retained_bytes{one}": 50,
        f"onceq_stream_source_forced_total{one}": 2,
        **{
            f'onceq_stream_source_stores{{{OF_SOURCE},state="{state}"}}': count
            for state, count in states.items()
        },
    }


def test_the_text_of_a_receiver_has_a_line_for_each_value() -> None:
    one = f"{{{OF_RECEIVER}}}"
    lost = {why.value: 0 for why in streams.WhyLost} | {"trimmed": 3}
    assert values(receiver_text(RECEIVER)) == {
        f"onceq_stream_receiver_delivered_total{one}": 7,
        f"onceq_stream_receiver_stable_lag{one}": 4,
        f"onceq_stream_receiver_rolled_back_total{one}": 1,
        f"onceq_stream_receiver_outstanding_messages{one}": 6,
        f"onceq_stream_receiver_outstanding_bytes{one}": 60,
        f"onceq_stream_receiver_reconnects_total{one}": 2,
        **{
            f'onceq_stream_receiver_lost_total{{{OF_RECEIVER},why="{why}"}}': count
            for why, count in lost.items()
        },
    }


def test_the_page_has_each_metric_and_no_other() -> None:
    tables: tuple[tuple[Metric[Any], ...], ...] = (SOURCE_METRICS, RECEIVER_METRICS)
    rows = {one.name: (one.kind, one.text) for table in tables for one in table}
    page = Path("docs/metrics.md").read_text()
    found = re.findall(
        r"^\| `(onceq_stream_\w+)` \| (\w+) \| [^|]*\| ([^|]+) \|$", page, re.MULTILINE
    )
    assert {name: (kind, text) for name, kind, text in found} == rows
    assert all((kind == "counter") is name.endswith("_total") for name, (kind, _) in rows.items())


@pytest.mark.parametrize("of", [SOURCE.regids, ReceiverStatistics().regids])
def test_mappings_of_statistics_cannot_be_changed(of: Mapping[str, int]) -> None:
    with pytest.raises(TypeError):
        of["a"] = 1  # type: ignore[index] # that is what is tried


def test_a_source_counts_its_flight_what_it_keeps_and_its_stores() -> None:
    key = 'topic="raw",session="7e1"'
    with (
        town() as stores,
        streams.open(session_id=SENDER) as context,
        context.source(RAW, stores=stores.at()) as source,
    ):
        source.send(b"12345")
        source.wait_stable(WITHIN_S)
        admitted = f'onceq_stream_source_stores{{{key},state="admitted"}}'
        soon(lambda: values(source.metrics())[admitted] == 3)
        stores.end("bc")
        soon(lambda: set(source.statistics().store_states.values()) == {"admitted", "silent"})
        with pytest.raises(TypeError):
            source.statistics().regids["x"] = 1  # type: ignore[index] # as above
        soon(lambda: not source.statistics().is_registered)
        found = values(source.metrics())
        assert found[f'onceq_stream_source_stores{{{key},state="silent"}}'] == 2
        assert found[f"onceq_stream_source_registered{{{key}}}"] == 0
        assert found[f"onceq_stream_source_next_number{{{key}}}"] == 1
        assert found[f"onceq_stream_source_stable_below{{{key}}}"] == 1
        stores.start("bc")
        source.wait_registered(WITHIN_S)


def test_a_source_counts_what_it_was_forced_to_release_or_gave_up() -> None:
    given: Any = {
        "flight_size": 0,
        "flight_size_bytes": 400,
        "retransmit_retention_size_limit": 800,
        "retention_unique_confirmations": 1,
        "flight_size_behavior": "notify",
    }
    with (
        town(names="a") as stores,
        streams.open(session_id=SENDER) as context,
        context.source(RAW, stores=stores.at("a"), **given) as source,
    ):
        for _ in range(20):
            source.send(bytes(100))
            source.wait_stable(WITHIN_S)
        soon(lambda: source.statistics().forced >= 10)
        one = source.statistics()
        assert one.retained == 20 - one.forced
        assert one.in_flight_bytes == 100 * one.in_flight


def test_a_receiver_counts_what_it_was_shown_and_what_not() -> None:
    key = 'topic="raw",session="b5",source="7e1"'
    shows = Shows(5)
    with town(names="a") as stores, streams.open(session_id=READER) as context:
        sent(context, stores.at("a"), [b"%d" % n for n in range(6)])
        shows.receiver = context.receiver(
            RAW, shows, at=stores.at("a"), retransmit_request_maximum=2
        )
        before = values(shows.receiver.metrics())
        assert (
            before['onceq_stream_receiver_delivered_total{topic="raw",session="b5",source="0"}']
            == 0
        )
        shows.receiver.run()
        one = shows.receiver.statistics()
        assert dict(one.lost) == {"skipped": 6 - len(shows.shown)}
        found = values(shows.receiver.metrics())
        skipped = f'onceq_stream_receiver_lost_total{{{key},why="skipped"}}'
        assert found[skipped] == 6 - len(shows.shown)
        assert found[f"onceq_stream_receiver_delivered_total{{{key}}}"] == len(shows.shown)
        assert found[f"onceq_stream_receiver_stable_lag{{{key}}}"] == one.stable_lag


def test_for_asyncio_the_same_and_links_that_were_lost_are_counted() -> None:
    texts: list[str] = []

    async def life(context: streams.AsyncStreamContext, at: str, shows: Shows) -> None:
        """A life of the source: it sends one message, which the receiver hears from it."""
        async with context.source(RAW, stores=at, listen=LISTEN) as source:
            if shows.receiver is None:
                shows.receiver = context.receiver(RAW, shows, at=source.address, session_id=READER)
                shows.running = asyncio.ensure_future(shows.receiver.run())
            await soon_here(lambda: bool(shows.receiver.statistics().source))
            number = await source.send(b"x")
            await soon_here(lambda: len(shows.shown) == number + 1)
            texts.append(source.metrics())

    async def run(at: str) -> None:
        async with streams.open_async(session_id=SENDER) as context:
            shows = Shows(1)
            for _ in range(2):
                await life(context, at, shows)
            await shows.running
            texts.append(shows.receiver.metrics())
            assert shows.receiver.statistics().reconnects >= 1

    with town(names="a") as stores:
        asyncio.run(run(stores.at("a")))
    assert 'onceq_stream_source_next_number{topic="raw",session="7e1"} 2' in texts[1]
    assert (
        values(texts[2])[
            'onceq_stream_receiver_delivered_total{topic="raw",session="b5",source="7e1"}'
        ]
        == 2
    )
