"""What a life of a source believes of the streams that stores tell: none that is overruled. Pure.

A person may have deregistered a stream while a store was away. Source: streams.md 5; spec M8.
"""

from __future__ import annotations

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.choice import newest
from onceq.streams.model.ending import EndStream, overruled
from onceq.streams.model.ops import AskStores
from onceq.streams.source.epochs import SourceLife, Timing


def believed(
    life: SourceLife, found: dict[str, asks.Found], timing: Timing
) -> Program[tuple[dict[str, asks.Found], frozenset[int]]]:
    """Return what is believed of what stores told, and the streams that were deregistered.

    A store that was away then, and has a stream yet of which a stable set has a tombstone, drops it
    now, and counts as one that knows nothing of it.
    """
    gone = {store: frozenset(one.gone) for store, one in found.items()}
    streams = {one.stream for one in found.values()} | {n for ones in gone.values() for n in ones}
    records = {
        stream: newest(one.has for one in found.values() if one.stream == stream)
        for stream in streams
    }
    lists = {
        stream: (life.own,) if record is None else record.governs
        for stream, record in records.items()
    }
    dead = overruled(gone, lists)
    late = {store: one for store, one in found.items() if one.stream in dead}
    if late:
        yield from AskStores(
            asked={
                store: EndStream(stream=one.stream, topic=life.topic, session=one.session)
                for store, one in late.items()
            },
            enough=lambda answered: answered.keys() >= late.keys(),
            within_s=timing.ask_s,
        )
    return found | {store: asks.Found(gone=one.gone) for store, one in late.items()}, dead
