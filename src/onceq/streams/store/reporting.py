"""What a store tells its log of its streams: when one is full, damaged or overwritten. Pure but so.

It is told what there is from time to time, and logs what has changed since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from onceq import telemetry
from onceq.streams import logged
from onceq.streams.store.statistics import StreamStatistics

log = logging.getLogger(__name__)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of a stream."""

    is_full: bool = False
    damaged: int = 0
    forced: int = 0
    expired: int = 0


class Reporting:
    """What was told of each stream."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def look(self, streams: Iterable[StreamStatistics]) -> None:
        """Tell what has changed of streams."""
        for one in streams:
            known = self._known.get(one.stream, _Known())
            found = _Known(
                is_full=one.is_full, damaged=one.damaged, forced=one.forced, expired=one.expired
            )
            if found != known:
                self._known[one.stream] = found
                _tell(one, known)


def _tell(one: StreamStatistics, known: _Known) -> None:
    stream, topic = f"{one.stream:016x}", one.topic
    if one.is_full and not known.is_full:
        telemetry.tell(
            log,
            logged.StreamFull(
                stream=stream, topic=topic, blocking=one.blocking, receiver=one.blocker
            ),
        )
    if known.is_full and not one.is_full:
        telemetry.tell(log, logged.StreamHasRoom(stream=stream, topic=topic))
    if one.damaged != known.damaged:
        telemetry.tell(log, logged.StreamDamaged(stream=stream, topic=topic, count=one.damaged))
    if one.forced != known.forced:
        telemetry.tell(log, logged.StreamOverwritten(stream=stream, topic=topic, count=one.forced))
    if one.expired != known.expired:
        telemetry.tell(
            log, logged.ReceiversForgotten(stream=stream, topic=topic, count=one.expired)
        )
