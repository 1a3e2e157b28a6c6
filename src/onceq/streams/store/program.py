"""What a store does when it is admitted to a stream: it fetches what it lacks, then notes it. Pure.

A Program: what it yields is done by a driver, over a network or in a simulator. Everything else
that a store is asked is one step (`catalogue`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from onceq.model.ops.base import Op, Program
from onceq.streams.model import asks, frames
from onceq.streams.model.log import epoch_at
from onceq.streams.model.ops import AskStore, FetchRange
from onceq.streams.model.quorum import are_recovered
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
    then the copies begin later, or there are none. That is, if so many have answered that nobody
    else can have it. What was copied before is of no use, if others have trimmed what follows it;
    but who gave it is not believed to have trimmed that meanwhile.
    """
    begin, number = needs.end, needs.begin
    if needs.copied:
        begin, number = needs.copied.start, needs.copied.stop
    givers = set[str]()
    while number < needs.end:
        found = yield from _look_for(ask, needs, number)
        if found is None and not givers and (yield from _have_trimmed_all(ask, needs)):
            return range(needs.end, needs.end)
        if found is None or (found.number != number and givers & found.givers):
            return None
        refused = yield from Keep(ask=ask, copies=found.copies)
        if refused is not None:
            return refused
        begin = min(begin, number) if found.number == number else found.number
        number, givers = found.end, givers | found.givers
    return range(begin, number)


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in a row, and who gives them."""

    copies: tuple[bytes, ...]
    givers: frozenset[str]

    @property
    def number(self) -> int:
        """The first number of them."""
        return frames.decode(self.copies[0]).number

    @property
    def end(self) -> int:
        """The number behind them."""
        return frames.decode(self.copies[-1]).end


def _look_for(ask: asks.Admit, needs: Needs, number: int) -> Program[_Found | None]:
    """Fetch what follows from the first donor that has it, or else from where others begin."""
    found: _Found | None = None
    silent = set[str]()
    for donor in ask.donors:
        wanted = asks.Fetch(stream=ask.stream, begin=number, end=needs.end)
        given = yield from FetchRange(store=donor, ask=wanted, within_s=FETCH_S)
        silent |= {donor} if given is None else set()
        usable = tuple(_usable(given or (), needs, number))
        if usable:
            its = _Found(copies=usable, givers=frozenset({donor}))
            found = its if found is None or its.number < found.number else found
        if found is not None and found.number == number:
            return found
    return found if _are_enough(ask, silent) else None


def _have_trimmed_all(ask: asks.Admit, needs: Needs) -> Program[bool]:
    """Whether donors have given up all that is needed, and nobody else can have it."""
    silent = set[str]()
    for donor in ask.donors:
        wanted = asks.Fetch(stream=ask.stream, begin=needs.end - 1, end=needs.end)
        answer = yield from AskStore(store=donor, ask=wanted, within_s=FETCH_S)
        if not isinstance(answer, asks.Range):
            silent.add(donor)
        elif answer.begin < needs.end:
            return False
    return bool(set(ask.donors) - silent) and _are_enough(ask, silent)


def _are_enough(ask: asks.Admit, silent: AbstractSet[str]) -> bool:
    """Whether those that are not silent would have what is not yet given up, by every list."""
    lists = ask.bridge.governs
    return are_recovered(lists, {store for one in lists for store in one.stores} - silent)


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
