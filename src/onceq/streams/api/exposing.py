"""The statistics of sources and receivers as metrics for Prometheus, by two tables.

A source is labelled by its topic and session, a receiver by its topic, its own session and that of
its source, all sessions hexadecimal; 0: it has none. Source: spec M37.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from onceq.model import metrics
from onceq.model.metrics import Labels, Metric, Reading
from onceq.streams.api.statistics import STORE_STATES, ReceiverStatistics, SourceStatistics
from onceq.streams.model.events import WhyLost


def _of_source(one: SourceStatistics) -> Labels:
    return {"topic": one.topic, "session": f"{one.session_id:x}"}


def _of_receiver(one: ReceiverStatistics) -> Labels:
    return {
        "topic": one.topic,
        "session": f"{one.session_id:x}",
        "source": f"{one.source_session_id:x}",
    }


def _source(
    read: Callable[[SourceStatistics], float],
) -> Callable[[SourceStatistics], Iterable[Reading]]:
    return lambda one: [("", _of_source(one), float(read(one)))]


def _receiver(
    read: Callable[[ReceiverStatistics], float],
) -> Callable[[ReceiverStatistics], Iterable[Reading]]:
    return lambda one: [("", _of_receiver(one), float(read(one)))]


def _stores(one: SourceStatistics) -> Iterator[Reading]:
    having = Counter(one.store_states.values())
    for state in STORE_STATES:
        yield "", {**_of_source(one), "state": state}, float(having[state])


def _lost(one: ReceiverStatistics) -> Iterator[Reading]:
    for why in WhyLost:
        yield "", {**_of_receiver(one), "why": why.value}, float(one.lost.get(why.value, 0))


SOURCE_METRICS: Final[tuple[Metric[SourceStatistics], ...]] = (
    Metric(
        name="onceq_stream_source_registered",
        kind="gauge",
        text="1: messages can be sent",
        read=_source(lambda one: one.is_registered),
    ),
    Metric(
        name="onceq_stream_source_next_number",
        kind="gauge",
        text="the number of the next message",
        read=_source(lambda one: one.next_number),
    ),
    Metric(
        name="onceq_stream_source_stable_below",
        kind="gauge",
        text="everything below is stable",
        read=_source(lambda one: one.stable_below),
    ),
    Metric(
        name="onceq_stream_source_flight_messages",
        kind="gauge",
        text="numbers that were sent and are not yet stable, or confirmed",
        read=_source(lambda one: one.in_flight),
    ),
    Metric(
        name="onceq_stream_source_flight_bytes",
        kind="gauge",
        text="their bytes",
        read=_source(lambda one: one.in_flight_bytes),
    ),
    Metric(
        name="onceq_stream_source_retained_messages",
        kind="gauge",
        text="numbers that are kept to be sent again",
        read=_source(lambda one: one.retained),
    ),
    Metric(
        name="onceq_stream_source_retained_bytes",
        kind="gauge",
        text="their bytes",
        read=_source(lambda one: one.retained_bytes),
    ),
    Metric(
        name="onceq_stream_source_forced_total",
        kind="counter",
        text="numbers released since a limit was reached, or given up",
        read=_source(lambda one: one.forced),
    ),
    Metric(
        name="onceq_stream_source_stores",
        kind="gauge",
        text="stores of its lists, by how they are",
        read=_stores,
    ),
)
RECEIVER_METRICS: Final[tuple[Metric[ReceiverStatistics], ...]] = (
    Metric(
        name="onceq_stream_receiver_delivered_total",
        kind="counter",
        text="messages that were handed to the application",
        read=_receiver(lambda one: one.delivered),
    ),
    Metric(
        name="onceq_stream_receiver_stable_lag",
        kind="gauge",
        text="numbers that are stable, for all it knows, and that it has not processed",
        read=_receiver(lambda one: one.stable_lag),
    ),
    Metric(
        name="onceq_stream_receiver_lost_total",
        kind="counter",
        text="numbers that it did not get, by why",
        read=_lost,
    ),
    Metric(
        name="onceq_stream_receiver_rolled_back_total",
        kind="counter",
        text="numbers that it was shown in vain",
        read=_receiver(lambda one: one.rolled_back),
    ),
    Metric(
        name="onceq_stream_receiver_outstanding_messages",
        kind="gauge",
        text="what the application has not processed",
        read=_receiver(lambda one: one.outstanding),
    ),
    Metric(
        name="onceq_stream_receiver_outstanding_bytes",
        kind="gauge",
        text="its bytes",
        read=_receiver(lambda one: one.outstanding_bytes),
    ),
    Metric(
        name="onceq_stream_receiver_reconnects_total",
        kind="counter",
        text="links to its source after the first",
        read=_receiver(lambda one: one.reconnects),
    ),
)


def source_text(one: SourceStatistics) -> str:
    """Return the metrics of a source."""
    return metrics.text_of(SOURCE_METRICS, one)


def receiver_text(one: ReceiverStatistics) -> str:
    """Return the metrics of a receiver."""
    return metrics.text_of(RECEIVER_METRICS, one)
