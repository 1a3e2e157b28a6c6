"""What a store says of itself: how far its streams and their receivers are, and how it fares. Pure.

All are frozen: as it was when it was asked. Numbers are exclusive bounds, as everywhere but in
events. Source: spec M37.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onceq.streams.store import limits
from onceq.streams.store.records import Held, Receiver
from onceq.streams.store.store import Store


class ReceiverStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver that is registered here. below: what it has acknowledged.

    lag: so many numbers are stable, and it has not acknowledged them.
    """

    regid: int
    key: str
    below: int
    lag: int


class StreamStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A stream. size_bytes: of what the store has of it, at most.

    blocking: the id of the receiver for which a full stream waits; 0: it does not wait. damaged:
    numbers that cannot be read here. forced: numbers that were given up, since the process began,
    though a receiver had not acknowledged them. expired: receivers that were forgotten since then,
    for nothing was heard of them.
    """

    stream: int
    topic: str
    session: int
    epoch: int
    begin: int
    end: int
    stable: int
    size_bytes: int
    is_full: bool
    blocking: int
    damaged: int
    forced: int
    expired: int
    receivers: tuple[ReceiverStatistics, ...]

    @property
    def blocker(self) -> str:
        """The name, at all stores, of the receiver for which it waits; empty: for none."""
        found = (one.key for one in self.receivers if one.regid == self.blocking)
        return next(found, "") if self.blocking else ""


class DiskStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The disk of a store. size_bytes: what it takes there; free_bytes: what is left for it.

    is_full: there is no room for more messages. commits: since the process began, each a write and
    a sync; p50_s, p99_s: of the latest 1,024. forgot: its last segment was damaged when it began.
    rounds: how often all of the log was looked through.
    """

    size_bytes: int
    free_bytes: int
    segments: int
    is_full: bool
    unsynced_bytes: int
    commits: int
    commits_s: float
    commit_p50_s: float
    commit_p99_s: float
    forgot: bool
    rounds: int


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A store that serves. disk: None: it is in memory. links: how many are connected.

    refused: links that were closed for what came on them, by why, since the process began.
    turned_away: links that were closed since there were too many.
    """

    address: str
    keeps: bool
    links: int
    refused: Mapping[str, int]
    turned_away: int
    disk: DiskStatistics | None
    streams: tuple[StreamStatistics, ...]

    @property
    def is_full(self) -> bool:
        """Whether it takes no messages of some stream."""
        is_disk_full = self.disk is not None and self.disk.is_full
        return is_disk_full or any(one.is_full for one in self.streams)


def of_streams(store: Store) -> tuple[StreamStatistics, ...]:
    """Return what there is to say of all streams of a store."""
    its = store.catalogue.streams.values()
    return tuple(_of_stream(store, held) for held in its if not held.is_gone)


def _of_stream(store: Store, held: Held) -> StreamStatistics:
    is_full = store.is_blocked(held)
    return StreamStatistics(
        stream=held.stream,
        topic=held.topic,
        session=held.session,
        epoch=held.promised,
        begin=held.begin,
        end=held.end,
        stable=held.stable,
        size_bytes=store.weights.of(held.local).kept,
        is_full=is_full,
        blocking=limits.slowest(held)[1] if is_full else 0,
        damaged=len(held.damaged),
        forced=store.forced[held.stream],
        expired=store.expired[held.stream],
        receivers=tuple(_of_receiver(held, one) for one in held.receivers),
    )


def _of_receiver(held: Held, one: Receiver) -> ReceiverStatistics:
    below = held.positions.get(one.key, 0)
    return ReceiverStatistics(
        regid=one.regid, key=one.key, below=below, lag=max(0, held.stable - below)
    )
