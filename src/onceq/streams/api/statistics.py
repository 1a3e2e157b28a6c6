"""How far sources and receivers are, as frozen values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.source.feeding import Fed
from onceq.streams.source.sending import Sending

V = TypeVar("V", int, str)


def _frozen(values: Mapping[str, V]) -> Mapping[str, V]:
    """Return a mapping as it is now, which nobody can change."""
    return MappingProxyType(dict(values))


_STATES: Final[tuple[tuple[str, Callable[[Fed], bool]], ...]] = (
    ("full", lambda one: one.is_full),
    ("silent", lambda one: not one.is_responsive),
    ("admitted", lambda one: one.is_admitted),
    ("joining", lambda _: True),
)
"""How a store of a source is: the first that holds."""
STORE_STATES: Final = tuple(name for name, _ in _STATES)


class SourceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a source. stream, epoch: 0 before the first epoch. is_registered: it may send now.

    next_number: of the next message. stable_below: everything before is stable. in_flight: messages
    that are not, with their bytes; retained: what is kept to be sent again. stores: the list.
    session_id: by which stores know its stream. regids: what it is called at stores. forced:
    numbers that were released since a limit was reached, or given up. store_states: of each store
    of its lists, one of STORE_STATES: full: it has no room; silent: it does not answer; admitted:
    it takes what is sent; joining: it does not yet. Nobody can change what is here.
    """

    stream: int
    epoch: int
    is_registered: bool
    next_number: int
    stable_below: int
    in_flight: int
    retained_bytes: int
    stores: str
    session_id: int = 0
    regids: Mapping[str, int] = MappingProxyType({})
    topic: str = ""
    in_flight_bytes: int = 0
    retained: int = 0
    forced: int = 0
    store_states: Mapping[str, str] = MappingProxyType({})


class ReceiverStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a receiver. stream, epoch: 0 before it is registered. regids: its ids at stores.

    next_number: of the next message that it takes. acknowledged_below: everything before may be
    acknowledged. outstanding, outstanding_bytes: what the application has not processed. stores:
    the list. source: where it hears the source; empty: it does not. session_id: its own;
    source_session_id: of the source; 0: there is none, or it is not known yet. delivered: messages
    that were handed to the application. stable_lag: numbers that are stable, for all it knows, and
    that it has not processed. lost: numbers that it did not get, by why; rolled_back: that it was
    shown in vain. reconnects: links to the source after the first.
    """

    stream: int = 0
    epoch: int = 0
    regids: Mapping[str, int] = MappingProxyType({})
    next_number: int = 0
    acknowledged_below: int = 0
    outstanding: int = 0
    outstanding_bytes: int = 0
    stores: str = ""
    source: str = ""
    topic: str = ""
    session_id: int = 0
    source_session_id: int = 0
    delivered: int = 0
    stable_lag: int = 0
    lost: Mapping[str, int] = MappingProxyType({})
    rolled_back: int = 0
    reconnects: int = 0


def source_statistics(core: Sending) -> SourceStatistics:
    """Return how far a source is."""
    fed = core.feeding.stores or dict.fromkeys(core.own.stores, Fed())
    return SourceStatistics(
        stream=0 if core.begun is None else core.begun.stream,
        epoch=core.epoch,
        is_registered=core.is_sending and not core.is_starved,
        next_number=core.next,
        stable_below=core.stable,
        in_flight=len(core.keeping.flight),
        retained_bytes=core.retention.bytes,
        stores=core.own.text(),
        session_id=core.life.session,
        regids=_frozen(core.regids),
        topic=core.life.topic,
        in_flight_bytes=core.keeping.flight.bytes,
        retained=core.next - core.retention.begin,
        forced=core.keeping.forced,
        store_states=_frozen({store: _state(one) for store, one in sorted(fed.items())}),
    )


def _state(one: Fed) -> str:
    return next(name for name, holds in _STATES if holds(one))


def receiver_statistics(inner: AsyncReceiver) -> ReceiverStatistics:
    """Return how far a receiver is."""
    driver, who = inner.driver, inner.who
    if driver is None:
        return ReceiverStatistics(
            topic=who.topic, session_id=who.session, source_session_id=who.source
        )
    core, counting = driver.core, driver.counting
    below = driver.outstanding.below(core.sure)
    return ReceiverStatistics(
        stream=core.stream,
        epoch=core.epoch,
        regids=_frozen(driver.acknowledging.regids),
        next_number=core.next,
        acknowledged_below=below,
        outstanding=len(driver.outstanding),
        outstanding_bytes=driver.outstanding.bytes,
        stores=core.lists[-1].text(),
        source=driver.heard_at,
        topic=who.topic,
        session_id=who.session,
        source_session_id=who.source,
        delivered=counting.delivered,
        stable_lag=max(0, core.stable - below),
        lost=_frozen(counting.lost),
        rolled_back=counting.rolled_back,
        reconnects=driver.reconnects,
    )
