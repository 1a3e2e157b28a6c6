"""How far sources and receivers are, as frozen values."""

from __future__ import annotations

import msgspec

from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.source.sending import Sending


class SourceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a source. stream, epoch: 0 before the first epoch. is_registered: it may send now.

    next_number: of the next message. stable_below: everything before is stable. in_flight: messages
    that are not; retained_bytes: what is kept to be sent again. stores: the list. session_id: by
    which stores know its stream. regids: what it is called at stores.
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
    regids: dict[str, int] = {}


class ReceiverStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a receiver. stream, epoch: 0 before it is registered. regids: its ids at stores.

    next_number: of the next message that it takes. acknowledged_below: everything before may be
    acknowledged. outstanding, outstanding_bytes: what the application has not processed. stores:
    the list. source: where it hears the source; empty: it does not.
    """

    stream: int = 0
    epoch: int = 0
    regids: dict[str, int] = {}
    next_number: int = 0
    acknowledged_below: int = 0
    outstanding: int = 0
    outstanding_bytes: int = 0
    stores: str = ""
    source: str = ""


def source_statistics(core: Sending) -> SourceStatistics:
    """Return how far a source is."""
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
        regids=core.regids,
    )


def receiver_statistics(inner: AsyncReceiver) -> ReceiverStatistics:
    """Return how far a receiver is."""
    driver = inner.driver
    if driver is None:
        return ReceiverStatistics()
    core = driver.core
    return ReceiverStatistics(
        stream=core.stream,
        epoch=core.epoch,
        regids=driver.acknowledging.regids,
        next_number=core.next,
        acknowledged_below=driver.outstanding.below(core.sure),
        outstanding=len(driver.outstanding),
        outstanding_bytes=driver.outstanding.bytes,
        stores=core.lists[-1].text(),
        source=driver.heard_at,
    )
