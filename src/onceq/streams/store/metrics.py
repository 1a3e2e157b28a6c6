"""The statistics of a store as metrics for Prometheus, by a table. Pure.

A stream is labelled by its topic, its source's session and its id, both hexadecimal; a receiver by
the name that it has at all stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from onceq.model import metrics
from onceq.model.metrics import Metric, Reading, plainly
from onceq.streams.store.statistics import DiskStatistics, StoreStatistics, StreamStatistics


def _disk(read: Callable[[DiskStatistics], Any]) -> Callable[[StoreStatistics], Iterable[Reading]]:
    return lambda store: [] if store.disk is None else [("", {}, float(read(store.disk)))]


def _streams(
    read: Callable[[StreamStatistics], Any],
) -> Callable[[StoreStatistics], Iterable[Reading]]:
    return lambda store: [("", _labels(one), float(read(one))) for one in store.streams]


def _labels(one: StreamStatistics) -> dict[str, str]:
    return {"topic": one.topic, "session": f"{one.session:x}", "stream": f"{one.stream:016x}"}


def _full(store: StoreStatistics) -> Iterator[Reading]:
    for one in store.streams:
        yield "", {**_labels(one), "blocking": one.blocker}, float(one.is_full)


def _lags(store: StoreStatistics) -> Iterator[Reading]:
    for stream in store.streams:
        for one in stream.receivers:
            yield "", {**_labels(stream), "receiver": one.key}, float(one.lag)


def _refused(store: StoreStatistics) -> Iterator[Reading]:
    for why, count in store.refused.items():
        yield "", {"why": why}, float(count)


def _commits(store: StoreStatistics) -> Iterator[Reading]:
    if store.disk is not None:
        yield "", {"quantile": "0.5"}, store.disk.commit_p50_s
        yield "", {"quantile": "0.99"}, store.disk.commit_p99_s
        yield "_sum", {}, store.disk.commits_s
        yield "_count", {}, float(store.disk.commits)


METRICS: Final[tuple[Metric[StoreStatistics], ...]] = (
    Metric(
        name="onceq_store_full",
        kind="gauge",
        text="1: it takes no messages of some stream",
        read=plainly(lambda one: one.is_full),
    ),
    Metric(
        name="onceq_store_links",
        kind="gauge",
        text="how many are connected",
        read=plainly(lambda one: one.links),
    ),
    Metric(
        name="onceq_store_refused_links_total",
        kind="counter",
        text="links closed for what came on them",
        read=_refused,
    ),
    Metric(
        name="onceq_store_turned_away_links_total",
        kind="counter",
        text="links closed since there were too many",
        read=plainly(lambda one: one.turned_away),
    ),
    Metric(
        name="onceq_store_disk_bytes",
        kind="gauge",
        text="what the store takes on its disk, with what is reserved",
        read=_disk(lambda one: one.size_bytes),
    ),
    Metric(
        name="onceq_store_disk_free_bytes",
        kind="gauge",
        text="what is left on the disk",
        read=_disk(lambda one: one.free_bytes),
    ),
    Metric(
        name="onceq_store_disk_full",
        kind="gauge",
        text="1: no room for more messages",
        read=_disk(lambda one: one.is_full),
    ),
    Metric(
        name="onceq_store_segments",
        kind="gauge",
        text="files of the log",
        read=_disk(lambda one: one.segments),
    ),
    Metric(
        name="onceq_store_unsynced_bytes",
        kind="gauge",
        text="appended, and not yet on the disk",
        read=_disk(lambda one: one.unsynced_bytes),
    ),
    Metric(
        name="onceq_store_forgot",
        kind="gauge",
        text="1: damaged when it began, so that it knew nothing",
        read=_disk(lambda one: one.forgot),
    ),
    Metric(
        name="onceq_store_scrub_rounds_total",
        kind="counter",
        text="how often all of the log was looked through",
        read=_disk(lambda one: one.rounds),
    ),
    Metric(
        name="onceq_store_commit_seconds",
        kind="summary",
        text="a write and a sync; quantiles are of the latest 1,024",
        read=_commits,
    ),
    Metric(
        name="onceq_stream_begin",
        kind="gauge",
        text="the first number that the store has",
        read=_streams(lambda one: one.begin),
    ),
    Metric(
        name="onceq_stream_end",
        kind="gauge",
        text="the number behind the last that the store has",
        read=_streams(lambda one: one.end),
    ),
    Metric(
        name="onceq_stream_stable",
        kind="gauge",
        text="all below is stable, for all that the store knows",
        read=_streams(lambda one: one.stable),
    ),
    Metric(
        name="onceq_stream_bytes",
        kind="gauge",
        text="what the store has of the stream, at most",
        read=_streams(lambda one: one.size_bytes),
    ),
    Metric(
        name="onceq_stream_full",
        kind="gauge",
        text="1: over its limit, and waits for the receiver `blocking`; 0: it does not wait",
        read=_full,
    ),
    Metric(
        name="onceq_stream_damaged",
        kind="gauge",
        text="numbers that cannot be read here",
        read=_streams(lambda one: one.damaged),
    ),
    Metric(
        name="onceq_stream_forced_total",
        kind="counter",
        text="numbers given up though a receiver had not acknowledged them",
        read=_streams(lambda one: one.forced),
    ),
    Metric(
        name="onceq_stream_receiver_lag",
        kind="gauge",
        text="numbers that are stable, and that the receiver has not acknowledged",
        read=_lags,
    ),
)


def text_of(store: StoreStatistics) -> str:
    """Return all metrics that the store has something to say of."""
    return metrics.text_of(METRICS, store)
