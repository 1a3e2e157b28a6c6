"""What a store says of itself: statistics, as text for Prometheus, and over HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.net import exposing
from onceq.streams.net.address import Address
from onceq.streams.store.exposing import answered, exposed, health
from onceq.streams.store.log.committer import LATEST, Latencies
from onceq.streams.store.metrics import METRICS, text_of
from onceq.streams.store.statistics import (
    DiskStatistics,
    ReceiverStatistics,
    StoreStatistics,
    StreamStatistics,
)
from tests.streams.net.daemons import LOCAL, WITHIN_S, serving, soon
from tests.streams.net.test_daemon import begun, made
from tests.streams.store.test_disk_store import S, data_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STREAM = StreamStatistics(
    stream=0xABC,
    topic='ba"r\\s\n',
    session=0x7E1,
    epoch=3,
    begin=2,
    end=9,
    stable=8,
    size_bytes=700,
    is_full=True,
    blocking=4,
    damaged=1,
    forced=6,
    expired=2,
    receivers=(ReceiverStatistics(regid=4, key="session b5", below=5, lag=3),),
)
DISK = DiskStatistics(
    size_bytes=1 << 28,
    free_bytes=1 << 30,
    segments=4,
    is_full=False,
    unsynced_bytes=90,
    commits=7,
    commits_s=0.25,
    commit_p50_s=0.001,
    commit_p99_s=0.0875,
    forgot=False,
    rounds=2,
)
STORE = StoreStatistics(
    address="127.0.0.1:7401",
    keeps=True,
    links=5,
    refused={"rubbish": 2},
    turned_away=1,
    disk=DISK,
    streams=(STREAM,),
)
LINE = re.compile(r'[a-z_]+(?:\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="[^"]*")*\})? \S+')


def test_the_text_has_a_line_for_each_value() -> None:
    text = text_of(STORE)
    labels = r'topic="ba\"r\\s\n",session="7e1",stream="0000000000000abc"'
    for line in (
        "onceq_store_full 1",
        "onceq_store_links 5",
        'onceq_store_refused_links_total{why="rubbish"} 2',
        "onceq_store_turned_away_links_total 1",
        "onceq_store_disk_bytes 268435456",
        "onceq_store_disk_free_bytes 1073741824",
        "onceq_store_disk_full 0",
        "onceq_store_segments 4",
        "onceq_store_unsynced_bytes 90",
        "onceq_store_forgot 0",
        "onceq_store_scrub_rounds_total 2",
        'onceq_store_commit_seconds{quantile="0.5"} 0.001',
        'onceq_store_commit_seconds{quantile="0.99"} 0.0875',
        "onceq_store_commit_seconds_sum 0.25",
        "onceq_store_commit_seconds_count 7",
        f"onceq_stream_begin{{{labels}}} 2",
        f"onceq_stream_end{{{labels}}} 9",
        f"onceq_stream_stable{{{labels}}} 8",
        f"onceq_stream_bytes{{{labels}}} 700",
        f'onceq_stream_full{{{labels},blocking="session b5"}} 1',
        f"onceq_stream_damaged{{{labels}}} 1",
        f"onceq_stream_forced_total{{{labels}}} 6",
        f'onceq_stream_receiver_lag{{{labels},receiver="session b5"}} 3',
    ):
        assert line in text.splitlines(), line


def test_a_stream_that_waits_for_nobody_names_nobody() -> None:
    known_of_others = ReceiverStatistics(regid=0, key="session b6", below=0, lag=8)
    for one in (
        replace(STREAM, blocking=0, receivers=(known_of_others,)),
        replace(STREAM, blocking=9),
    ):
        assert one.blocker == ""
        (line,) = (
            line
            for line in text_of(replace(STORE, streams=(one,))).splitlines()
            if line.startswith("onceq_stream_full{")
        )
        assert line.endswith(',blocking=""} 1')


def test_the_text_is_of_the_format() -> None:
    lines = text_of(STORE).splitlines()
    for metric in METRICS:
        head = [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        at = lines.index(head[0])
        assert lines[at : at + 2] == head
        assert lines[at + 2].startswith(metric.name)
        assert (metric.kind == "counter") is metric.name.endswith("_total")
    samples = [line for line in lines if not line.startswith("#")]
    assert [line for line in samples if not LINE.fullmatch(line)] == []
    assert len(samples) == len(set(samples))


def test_a_memory_store_says_nothing_of_a_disk() -> None:
    text = text_of(replace(STORE, disk=None, refused={}, streams=()))
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
    assert names == {
        "onceq_store_full",
        "onceq_store_links",
        "onceq_store_turned_away_links_total",
    }


def test_health_says_why_it_takes_no_messages() -> None:
    fine = replace(STORE, streams=(replace(STREAM, is_full=False),))
    assert health(fine) == ("200 OK", "it takes messages")
    assert health(STORE)[0].startswith("503")
    full = replace(fine, disk=replace(DISK, is_full=True))
    assert health(full) == ("503 Service Unavailable", "the disk is full")
    assert full.is_full
    assert not fine.is_full


def test_what_is_not_there_is_said() -> None:
    assert answered("/", lambda: STORE).status == "404 Not Found"


def test_quantiles_are_of_the_latest() -> None:
    one = Latencies()
    assert one.quantile_s(0.5) == 0.0
    for n in range(100):
        one.add(float(n))
    assert (one.quantile_s(0.5), one.quantile_s(0.99), one.quantile_s(1.0)) == (50.0, 99.0, 99.0)
    for _ in range(LATEST):
        one.add(1.0)
    assert one.quantile_s(0.99) == 1.0
    assert (one.count, one.sum_s) == (100 + LATEST, 4_950.0 + LATEST)


async def fetched(at: str, head: str) -> str:
    host, _, port = at.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(WITHIN_S):
        writer.write(head.encode())
        text = (await reader.read()).decode()
    writer.close()
    return text


def test_a_store_that_serves_has_statistics_and_exposes_them(tmp_path: Path) -> None:
    async def run() -> None:
        store = made(tmp_path, "a")
        async with serving(store) as (daemon, at):
            source = await begun(at)
            for n in range(9):
                source.link.send(data_of(1, n, stable=n))
            await source.until(asks.Holding(epoch=1, end=9))
            ask = asks.Register(stream=S, epoch=1, topic="bars", session=0xB5, below=3)
            assert isinstance(await source.ask(ask), asks.Registered)
            found = daemon.statistics()
            assert (found.address, found.links, found.is_full) == (at, 1, False)
            (stream,) = found.streams
            assert (stream.topic, stream.session, stream.end, stream.stable) == ("bars", 9, 9, 8)
            assert stream.receivers == (
                ReceiverStatistics(regid=2, key="session b5", below=3, lag=5),
            )
            assert stream.size_bytes > 9 * len(b"message")
            assert found.disk is not None
            assert found.disk.size_bytes >= 3 << 20
            assert found.disk.free_bytes > 0
            assert (found.disk.segments, found.disk.is_full, found.disk.forgot) == (1, False, False)
            assert found.disk.commits > 0
            assert 0 < found.disk.commit_p50_s <= found.disk.commit_p99_s <= found.disk.commits_s
            async with exposed(LOCAL, daemon.statistics, None) as metrics:
                text = await fetched(str(metrics), "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                head, _, body = text.partition("\r\n\r\n")
                assert head.startswith("HTTP/1.1 200 OK\r\n")
                assert f"Content-Length: {len(body)}" in head
                assert 'onceq_stream_end{topic="bars"' in body
                assert "405" in await fetched(str(metrics), "POST / HTTP/1.1\r\n\r\n")
                text = await fetched(str(metrics), "GET /health HTTP/1.1\r\n\r\n")
                assert text.endswith("it takes messages\n")
            source.link.close()
            await soon(lambda: daemon.serving.links == 0)
        store.close()

    asyncio.run(run())


def test_who_says_too_much_or_nothing_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposing, "REQUEST_S", 0.05)
    monkeypatch.setattr(exposing, "REQUEST_BYTES_MAX", 100)

    async def gone(at: Address, head: str) -> bool:
        """Whether the connection was closed without an answer."""
        try:
            return await fetched(str(at), head) == ""
        except ConnectionResetError:
            return True

    async def run() -> None:
        async with exposed(LOCAL, lambda: STORE, None) as at:
            assert await gone(at, "GET /metrics")
            assert await gone(at, "x" * 5_000)
            assert "200 OK" in await fetched(str(at), "GET /metrics HTTP/1.0\r\n\r\n")

    asyncio.run(run())
