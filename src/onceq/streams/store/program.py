"""What a store does when it is admitted to a stream: it fetches what it lacks, then notes it. Pure.

A Program: what it yields is done by a driver, over a network or in a simulator. Everything else
that a store is asked is one step (`catalogue`).
"""

from __future__ import annotations

from typing import Any, Final

from onceq.model.ops.base import Op, Program
from onceq.streams.model import asks, frames
from onceq.streams.model.choice import epoch_at
from onceq.streams.model.ops import FetchRange
from onceq.streams.store.catalogue import Needs

TRIES: Final = 3
"""Times that a store fetches again, if it was admitted to something else meanwhile."""
FETCH_S: Final = 2.0


class Perform(Op[asks.Answer | Needs], changes="a store is admitted to a stream"):
    """Have the store be admitted, with copies that it kept; answer, or say what it lacks.

    copied: the numbers of the copies; None: there are none.
    """

    ask: asks.Admit
    copied: Any = None


class Keep(Op[asks.Answer | None], changes="copies are kept"):
    """Keep copies for an admission, which count with it; None: they are. Otherwise: why not."""

    ask: asks.Admit
    copies: tuple[bytes, ...]


def admit(ask: asks.Admit) -> Program[asks.Answer]:
    """Be admitted to a stream; return the answer for the source."""
    copied: range | None = None
    lacking = asks.Lacking(begin=0, end=ask.log.end)
    for _ in range(TRIES):
        answer = yield from Perform(ask=ask, copied=copied)
        if not isinstance(answer, Needs):
            return answer
        lacking = asks.Lacking(begin=answer.begin, end=answer.end)
        fetched = yield from fetch(ask, answer)
        if not isinstance(fetched, range):
            return fetched or lacking
        copied = fetched
    return lacking


def fetch(ask: asks.Admit, needs: Needs) -> Program[range | asks.Answer | None]:
    """Fetch what is needed, from one donor after the other, and keep it; return the numbers.

    None: nobody has some of it. Another answer: why it could not be kept. Only frames of the epoch
    that the chosen log has at their number are taken. What all donors have trimmed is left out:
    then the copies begin later.
    """
    begin, number = needs.end, needs.begin
    if needs.copied:
        begin, number = needs.copied.start, needs.copied.stop
    while number < needs.end:
        found: tuple[bytes, ...] = ()
        for donor in ask.donors:
            wanted = asks.Fetch(stream=ask.stream, begin=number, end=needs.end)
            given = yield from FetchRange(store=donor, ask=wanted, within_s=FETCH_S)
            usable = tuple(_usable(given or (), needs, number))
            found = _earlier(found, usable)
            if found and frames.decode(found[0]).number == number:
                break
        if not found or (begin < number and frames.decode(found[0]).number != number):
            return None
        refused = yield from Keep(ask=ask, copies=found)
        if refused is not None:
            return refused
        begin = min(begin, frames.decode(found[0]).number)
        number = frames.decode(found[-1]).end
    return range(begin, number)


def _usable(given: tuple[bytes, ...], needs: Needs, number: int) -> list[bytes]:
    """Return what can be taken of what was given: in a row, and of the right epochs."""
    taken: list[bytes] = []
    for data in given:
        frame = frames.decode(data)
        follows = frame.number == number if taken else frame.number >= number
        is_of_log = epoch_at(needs.firsts, frame.number) == frame.epoch
        if not follows or not is_of_log or frame.end > needs.end:
            break
        taken.append(data)
        number = frame.end
    return taken


def _earlier(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return what begins with the lesser number."""
    if not one or not other:
        return one or other
    return min(one, other, key=lambda copies: frames.decode(copies[0]).number)
