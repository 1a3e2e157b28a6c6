"""The checker itself: takes events, and asks each part for what is wrong with each stream.

Invariants: no order of files is assumed, no clock is looked at, and nothing is known of how streams
work, only what they promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceq.streams.history.facts import Stream, streams_of
from onceq.streams.history.files import events_of, paths_of
from onceq.streams.history.kinds import Delivered, StreamEvent
from onceq.streams.history.log import Log
from onceq.streams.history.receivers import judge_readers
from onceq.streams.history.rules import Broken
from onceq.streams.history.sources import judge_sources
from onceq.streams.history.stores import judge_stores

JUDGES: Final = (judge_sources, judge_readers, judge_stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of checking events. counts: of each kind.

    sent: numbers that stay; stable: of these; delivered: shown to receivers, again and again.
    """

    violations: list[Broken]
    events: int
    streams: int
    sent: int
    stable: int
    delivered: int
    counts: dict[str, int]


def check(events: Iterable[StreamEvent]) -> Report:
    """Return what events in memory show."""
    counts: Counter[str] = Counter()
    shown = Counter[str]()

    def counted() -> Iterator[StreamEvent]:
        for event in events:
            counts[type(event).__name__] += 1
            if isinstance(event, Delivered):
                shown["numbers"] += event.last - event.first + 1
            yield event

    found = streams_of(counted())
    logs = [Log(stream) for stream in found]
    return Report(
        violations=[
            broken
            for stream, log in zip(found, logs, strict=True)
            for broken in _judge(stream, log)
        ],
        events=counts.total(),
        streams=len(found),
        sent=sum(log.owners.count for log in logs),
        stable=sum(log.stable_below for log in logs),
        delivered=shown["numbers"],
        counts=dict(counts),
    )


def check_files(given: Iterable[Path]) -> Report:
    """Return what files show, and those in folders.

    Raises FileNotFoundError where there is none, msgspec.DecodeError for a line that is no event.
    """
    return check(events_of(paths_of(given)))


def _judge(stream: Stream, log: Log) -> Iterator[Broken]:
    for judge in JUDGES:
        yield from judge(stream, log)
