"""The streams that a store knows, as a person is told of them, page by page. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from onceq.streams.model import asks, listings
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.records import Held

PAGE_BYTES: Final = 256 << 10
"""With so much there is no more in an answer, which must fit into a frame."""


def listed(held: Held) -> listings.Listed:
    """Return what is told of a stream."""
    bridge = held.bridge
    return listings.Listed(
        stream=held.stream,
        topic=held.topic,
        session=held.session,
        address=held.address,
        epoch=held.promised,
        admitted=0 if bridge is None else bridge.epoch,
        lists=held.hints if bridge is None else bridge.lists,
        begin=held.begin,
        end=held.end,
        stable=held.stable,
        damaged=len(held.damaged),
        receivers=tuple(_receivers(held)),
    )


def _receivers(held: Held) -> Iterator[listings.Registrant]:
    """Yield the receivers that are registered here, and those of which others told."""
    for one in held.receivers:
        below = held.positions.get(one.key, 0)
        yield listings.Registrant(key=one.key, regid=one.regid, session=one.session, below=below)
    registered = {one.key for one in held.receivers}
    for key, below in held.positions.items():
        if key not in registered:
            yield listings.Registrant(key=key, regid=0, session=0, below=below)


def streams(catalogue: Catalogue, ask: asks.Streams) -> listings.Listing:
    """Return the first streams that are asked for, and whether there are more."""
    its = catalogue.streams.values()
    wanted = sorted(one.stream for one in its if one.stream > ask.after and not one.is_gone)
    found: list[listings.Listed] = []
    size = 0
    for stream in wanted:
        if size >= PAGE_BYTES:
            break
        found.append(listed(catalogue.streams[stream]))
        size += len(msgspec.msgpack.encode(found[-1]))
    return listings.Listing(streams=tuple(found), more=len(found) < len(wanted))
