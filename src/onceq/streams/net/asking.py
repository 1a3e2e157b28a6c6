"""What a person asks stores: which streams there are, and to forget a receiver."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Mapping

from onceq.streams.model import asks, listings
from onceq.streams.net.asker import Asker


async def listed(asker: Asker, store: str, within_s: float) -> tuple[listings.Listed, ...] | None:
    """Return the streams that a store knows, by their ids; None: it does not answer in time."""
    found: list[listings.Listed] = []
    while True:
        ask = asks.Streams(after=found[-1].stream if found else 0)
        given = await asker.ask(store, ask, within_s)
        if given is None or not isinstance(given[0], listings.Listing):
            return None
        found += given[0].streams
        if not given[0].more:
            return tuple(found)


async def listed_all(
    asker: Asker, stores: Collection[str], within_s: float
) -> Mapping[str, tuple[listings.Listed, ...]]:
    """Return what stores know, all asked at once; those that do not answer are left out."""
    names = sorted(stores)
    found = await asyncio.gather(*(listed(asker, store, within_s) for store in names))
    return {store: one for store, one in zip(names, found, strict=True) if one is not None}


class Deregistered(enum.Enum):
    """What came of asking a store to forget a receiver."""

    DONE = "deregistered"
    UNKNOWN = "did not know it"
    NOT_NOW = "is between two epochs: ask again"
    SILENT = "does not answer: ask again"


async def deregistered(
    asker: Asker, of_stream: Mapping[str, listings.Listed], key: str, within_s: float
) -> Mapping[str, Deregistered]:
    """Have stores forget a receiver, by its name at all stores; return what came of it at each.

    Those that do not know it note that it is gone: they may learn it from others.
    """
    names = sorted(of_stream)
    known = {
        store: any(receiver.key == key for receiver in of_stream[store].receivers)
        for store in names
    }
    if not any(known.values()):
        return dict.fromkeys(names, Deregistered.UNKNOWN)
    found = await asyncio.gather(
        *(_deregistered(asker, store, of_stream[store], key, within_s=within_s) for store in names)
    )
    done = dict(zip(names, found, strict=True))
    others = {store: Deregistered.UNKNOWN for store in names if not known[store]}
    return done | {store: one for store, one in others.items() if done[store] is Deregistered.DONE}


async def _deregistered(
    asker: Asker, store: str, known: listings.Listed, key: str, *, within_s: float
) -> Deregistered:
    ask = asks.Deregister(stream=known.stream, key=key)
    given = await asker.ask(store, ask, within_s)
    if given is None:
        return Deregistered.SILENT
    return Deregistered.DONE if isinstance(given[0], asks.Holding) else Deregistered.NOT_NOW
