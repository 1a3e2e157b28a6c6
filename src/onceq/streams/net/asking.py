"""What a person asks stores: which streams there are, and to forget a receiver, or a stream."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from onceq.streams.errors import NotRegistered, RegistrationInUse
from onceq.streams.model import asks, listings
from onceq.streams.model.choice import newest, seen
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.quorum import StoreList, are_stable, stores_of
from onceq.streams.model.uses import InUse
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
    IN_USE = "hears a live source of it: end that, and ask again"
    FULL = "has no room to note it: give it some, and ask again"


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


_ENDED: Final[Mapping[type[asks.Answer], Deregistered]] = {
    Gone: Deregistered.DONE,
    InUse: Deregistered.IN_USE,
    asks.Full: Deregistered.FULL,
}


async def stream_deregistered(
    asker: Asker, own: StoreList, named: asks.Look, within_s: float
) -> Mapping[str, Deregistered]:
    """Have all stores of a stream drop it, and keep a tombstone; return what came of it at each.

    own: stores to begin with; the stream's own are asked, too. If some of them have not heard of an
    earlier deregistration, that is what they are told, and what was sent since stays. Raises
    RegistrationInUse while a life of its source is live, NotRegistered if so few answer that it
    might come to nothing: nothing has happened then. Nobody knows it: all say UNKNOWN.
    """
    stores, found = own.stores, dict[str, asks.Found]()
    for _ in range(2):
        found |= await _looked(asker, stores - found.keys(), named, within_s)
        lists = seen(own, (one.has for one in found.values()))
        stores = stores_of(lists)
    streams = _to_end(found)
    silent = dict.fromkeys(stores, Deregistered.SILENT)
    if not streams:
        return silent | dict.fromkeys(found, Deregistered.UNKNOWN)
    _refuse(own, found, streams, named)
    ends = [
        EndStream(stream=stream, topic=named.topic, session=named.session)
        for stream in sorted(streams)
    ]
    names = sorted(found)
    done = await asyncio.gather(*(_ended(asker, store, ends, within_s) for store in names))
    return silent | dict(zip(names, done, strict=True))


async def _looked(
    asker: Asker, stores: AbstractSet[str], named: asks.Look, within_s: float
) -> dict[str, asks.Found]:
    names = sorted(stores)
    given = await asyncio.gather(*(asker.ask(store, named, within_s) for store in names))
    answers = {store: one[0] for store, one in zip(names, given, strict=True) if one is not None}
    return {store: one for store, one in answers.items() if isinstance(one, asks.Found)}


def _to_end(found: Mapping[str, asks.Found]) -> set[int]:
    """Return the streams to deregister: those of which only some have a tombstone, or else all."""
    gone = {stream for one in found.values() for stream in one.gone}
    late = {stream for stream in gone if any(stream not in one.gone for one in found.values())}
    return late or {one.stream for one in found.values() if one.stream}


def _refuse(
    own: StoreList, found: Mapping[str, asks.Found], streams: AbstractSet[int], named: asks.Look
) -> None:
    """Raise why streams cannot be deregistered now, if they cannot."""
    what = f"the stream of topic {named.topic!r} and session {named.session:#x}"
    its = {store: one for store, one in found.items() if one.stream in streams}
    used = sorted(store for store, one in its.items() if one.used is not None)
    if used:
        raise RegistrationInUse(
            f"{what} has a live source, as {' '.join(used)} hears: nothing was done. End the"
            " source, or wait until it is silent for its activity_timeout_ms, and ask again"
        )
    record = newest(one.has for one in its.values())
    if not are_stable((own,) if record is None else record.governs, found.keys()):
        raise NotRegistered(
            f"only {' '.join(sorted(found)) or 'none'} of the stores of {what} answers, which may"
            " be overruled by the others: nothing was done. Start more of them, and ask again"
        )


async def _ended(
    asker: Asker, store: str, ends: Iterable[EndStream], within_s: float
) -> Deregistered:
    """Have a store drop streams; return the first that came of it but that it did."""
    for one in ends:
        given = await asker.ask(store, one, within_s)
        came = (
            Deregistered.SILENT
            if given is None
            else _ENDED.get(type(given[0]), Deregistered.NOT_NOW)
        )
        if came is not Deregistered.DONE:
            return came
    return Deregistered.DONE
