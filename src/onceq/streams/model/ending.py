"""How a stream ends that a person deregisters, and what is never believed of it again. Pure.

A store that deregisters a stream drops what it has of it, and keeps a **tombstone** by its id: that
is as a promise of more than any epoch, to nobody. Once a stable set of the stream's lists has it,
no epoch can begin or go on, for a recovery needs a recover set: a store that was away is overruled,
whatever it comes back with. One that fewer have may be of a deregistration that came to nothing.
What the source sends next is a stream of another id. Source: streams.md 5; spec M8; ADR 24.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated

import msgspec

from onceq.streams.model.quorum import StoreList, are_stable
from onceq.streams.model.tagged import Tagged

Stream = Annotated[int, msgspec.Meta(ge=0)]


class EndStream(Tagged, frozen=True):
    """Drop what you have of this stream, and keep a tombstone. topic, session: of its source."""

    stream: Stream
    topic: Annotated[str, msgspec.Meta(max_length=255)]
    session: Stream


class Gone(Tagged, frozen=True):
    """The stream was deregistered here: nothing of it is there, and nothing will be taken."""

    stream: Stream


def overruled(
    gone: Mapping[str, AbstractSet[int]], lists: Mapping[int, tuple[StoreList, ...]]
) -> frozenset[int]:
    """Return the streams of which nothing is believed any more.

    gone: by store, the streams of which it has tombstones. lists: of each stream, those by which it
    was stable, as far as any store tells them.
    """
    streams = frozenset(stream for ones in gone.values() for stream in ones)
    return frozenset(
        stream
        for stream in streams & lists.keys()
        if are_stable(lists[stream], {store for store, ones in gone.items() if stream in ones})
    )
