"""How a store deregisters a stream, and what it answers of one from then on. Pure.

What is asked of such a stream has one answer, whatever it is. Frames are refused by the tables of
the model, as those of a life that was overtaken: the tombstone is a promise to nobody.
"""

from __future__ import annotations

from typing import Any

from onceq.streams.model import asks
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.store import records
from onceq.streams.store.catalogue import STREAMS_MAX, Catalogue, Step


def refused(catalogue: Catalogue, ask: Any) -> Gone | None:
    """Return what is answered to an ask about a stream that was deregistered; None: it was not."""
    held = catalogue.streams.get(getattr(ask, "stream", 0))
    return Gone(stream=held.stream) if held is not None and held.is_gone else None


def deregister(catalogue: Catalogue, ask: EndStream) -> Step:
    """Drop a stream, and keep a tombstone, also where it is not known: others may tell of it."""
    if ask.stream not in catalogue.streams and len(catalogue.streams) >= STREAMS_MAX:
        return Step(answer=asks.Full(end=0))
    note = records.Ended(stream=ask.stream, topic=ask.topic, session=ask.session)
    is_gone = catalogue.of(ask.stream).is_gone
    return Step(records=() if is_gone else (note,), answer=Gone(stream=ask.stream))
