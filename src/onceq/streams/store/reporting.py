"""What a store tells its log: of its disk when that is full, and of its streams. Pure but so.

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
    """What was told of each stream, and of the disk. directory: on it; empty: there is none."""

    def __init__(self, directory: str = "") -> None:
        self._directory = directory
        self._is_disk_full = False
        self._known: dict[int, _Known] = {}

    def look(self, streams: Iterable[StreamStatistics], *, is_disk_full: bool = False) -> None:
        """Tell what has changed of streams, and of the disk."""
        if is_disk_full != self._is_disk_full:
            self._is_disk_full = is_disk_full
            made = logged.StoreFull if is_disk_full else logged.StoreHasRoom
            telemetry.tell(log, made(directory=self._directory))
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
