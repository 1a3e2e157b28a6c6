"""What a store gives of some numbers: to receivers, and to other stores."""

from __future__ import annotations

from typing import Final

from onceq.streams.model import asks, frames
from onceq.streams.store.store import Store

RANGE_BYTES: Final = 1 << 20
"""One answer has about so much, and one frame at least."""


def ranged(
    store: Store, ask: asks.Read | asks.Fetch, size_max: int
) -> tuple[asks.Answer, list[bytes]]:
    """Return the answer, and the frames that follow it.

    A receiver is given what is stable, or all if it saw the epoch; another store everything.
    """
    held = store.catalogue.of(ask.stream)
    if held.bridge is None:
        return asks.Forgot(), []
    if not store.keeps and held.bridge.keeps:
        return asks.Noted(epoch=held.bridge.epoch), []
    if isinstance(ask, asks.Read):
        numbers = store.catalogue.readable(ask)
    else:
        numbers = range(max(ask.begin, held.begin), min(ask.end, held.end))
    given: list[bytes] = []
    size, end = 0, numbers.start
    for data in store.read(ask.stream, numbers):
        given.append(data)
        size += len(data)
        end = min(frames.decode(data).end, numbers.stop)
        if size >= size_max:
            break
    is_missing = end < numbers.stop and end in held.damaged
    answer = asks.Range(
        begin=numbers.start,
        end=end,
        frames=len(given),
        missing=is_missing,
        lost=max((one.epoch for one in held.bridge.losses), default=0),
    )
    return answer, given
