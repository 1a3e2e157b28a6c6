"""How a store finds what is damaged in its log, slowly, and heals it from others. Pure.

A Program: its driver reads the log, asks other stores, and waits; or a simulator does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from onceq.model.ops.base import Op, Program
from onceq.streams.model import asks, frames
from onceq.streams.model.ops import FetchRange, WaitUntil

SCRUB_BYTES_S: Final = 8 << 20
"""How much of the log is read in a second."""
ROUND_S: Final = 60.0
"""How long a store rests when it has looked through all of its log."""
FETCH_S: Final = 2.0


class Harmed(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of a stream that cannot be read here. stores: who may have them."""

    stream: int
    numbers: tuple[int, ...]
    stores: tuple[str, ...]


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the log was looked at. harmed: all that is, at the end of a segment.

    is_round: it was the last one.
    """

    size: int
    harmed: tuple[Harmed, ...] = ()
    is_round: bool = False


class LookOn(Op[Looked]):
    """Look through the next piece of the log."""


class Mend(Op[bool], changes="a damaged frame is written again"):
    """Write a frame again that was fetched; answer whether it was taken."""

    stream: int
    data: bytes


def scrub() -> Program[None]:
    """Look through the log for ever, until the driver closes this; heal what is harmed."""
    while True:
        looked = yield from LookOn()
        for one in looked.harmed:
            yield from heal(one)
        yield from WaitUntil(within_s=looked.size / SCRUB_BYTES_S)
        if looked.is_round:
            yield from WaitUntil(within_s=ROUND_S)


def heal(harmed: Harmed) -> Program[frozenset[int]]:
    """Fetch what is harmed from one store after the other; return what nobody gave."""
    left = set(harmed.numbers)
    for store in harmed.stores:
        for numbers in ranges(left):
            begin = numbers.start
            while begin < numbers.stop:
                ask = asks.Fetch(stream=harmed.stream, begin=begin, end=numbers.stop)
                given = yield from FetchRange(store=store, ask=ask, within_s=FETCH_S)
                end = begin
                for data in given or ():
                    if (yield from Mend(stream=harmed.stream, data=data)):
                        frame = frames.decode(data)
                        left -= set(range(frame.number, frame.end))
                        end = max(end, frame.end)
                if end == begin:
                    break  # it does not have the next one
                begin = end
    return frozenset(left)


def ranges(numbers: Iterable[int]) -> list[range]:
    """Return numbers as ranges, ascending."""
    found: list[range] = []
    for number in sorted(numbers):
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found
