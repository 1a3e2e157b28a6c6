"""Of what epochs the numbers of a stream are, for who reads some of it: Programs. Pure.

A store that was given up, and is back with its disk, shows what was lost, under numbers that are
void now. Who follows a stream is told of that; who reads by numbers knows it by these epochs, and
believes no store that knows of fewer losses, and no message of another epoch. Source: ADR 24; spec
M34, M38.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec.structs import asdict, replace

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.choice import Firsts
from onceq.streams.model.log import agreed_below, epoch_at
from onceq.streams.model.losses import Losses, is_lost
from onceq.streams.model.ops import AskStores
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.placing import Position, Who, has_all, place


class Epochs(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader knows of a log. firsts: every epoch's first number, as in a bridge record.

    losses: that were accepted up to the last epoch.
    """

    firsts: Firsts
    losses: Losses = ()

    @property
    def last(self) -> int:
        """The epoch in which this was known."""
        return self.firsts[-1][0]

    @property
    def lost(self) -> int:
        """The last epoch that was begun without what was stable; 0: none."""
        return max((one.epoch for one in self.losses), default=0)

    def at(self, number: int) -> int:
        """Return the epoch of a number."""
        return epoch_at(self.firsts, number)

    def is_lost(self, number: int) -> bool:
        """Whether a number is void since it was lost."""
        return is_lost(number, self.losses)

    def alike_below(self, begin: int, end: int) -> int:
        """Return to before which number, at most `end`, all are of one epoch, and lost or not."""
        bounds = [first for _, first in self.firsts]
        bounds += [bound for one in self.losses for bound in (one.first, one.below)]
        return min((end, *(bound for bound in bounds if bound > begin)))

    def replaces(self, known: Epochs, below: int) -> bool:
        """Whether the log has another epoch than was known at some number below one."""
        agreed = agreed_below(known.firsts, self.firsts)
        return agreed is not None and agreed < below


class Placed(Position, frozen=True, kw_only=True):
    """Where a stream was found, and what was lost of it up to that epoch."""

    losses: Losses = ()

    @property
    def epochs(self) -> Epochs:
        """What is known of its log."""
        return Epochs(firsts=self.firsts, losses=self.losses)


def stores_of(found: Position) -> tuple[str, ...]:
    """Return the stores of the lists that a stream has now."""
    return tuple(sorted({store for one in found.lists for store in one.stores}))


def find(who: Who, within_s: float, known: Epochs | None, least: int = 0) -> Program[Placed | None]:
    """Find a stream, as `place`; None: too few stores have answered in one epoch.

    known: of its log, if it was found before: what is of a former epoch then, is not believed.
    least: nor is what is of a former one than this, of which the reader has had something.
    """
    least = max(least, 0 if known is None else known.last)
    position = yield from _believed(who, within_s, least)
    if position is None:
        return None
    if known is not None and known.firsts == position.firsts:
        losses: Losses | None = known.losses
    else:
        losses = yield from _losses(who, position, within_s)
    return None if losses is None else Placed(**asdict(position), losses=losses)


def _believed(who: Who, within_s: float, least: int) -> Program[Position | None]:
    """Find a stream in an epoch, or a later one. Those that were given up name others to ask."""
    position = yield from place(who, within_s)
    if position is not None and position.epoch < least:
        listed = stores_of(position)
        if who.known.stores >= {*listed}:
            return None
        position = yield from place(replace(who, known=StoreList(groups=(listed,))), within_s)
    return position if position is not None and position.epoch >= least else None


def lacking(who: Who, within_s: float, least: int) -> Program[Mapping[str, str]]:
    """Ask why stores do not tell where a stream is; return it of each, in words for people.

    Also of those that they list. least: the epoch in which one must be, at least, to be believed.
    """
    stores, answers = who.known.stores, dict[str, asks.Found]()
    ask = asks.Look(topic=who.topic, session=who.source)
    while left := stores - answers.keys():
        given = yield from AskStores(
            asked=dict.fromkeys(sorted(left), ask),
            enough=partial(has_all, left),
            within_s=within_s,
        )
        came = {store: one for store, one in given.items() if isinstance(one, asks.Found)}
        if not came:
            break
        answers |= came
        bridges = [one.has.bridge for one in came.values() if one.has.bridge is not None]
        stores |= {store for one in bridges for each in one.lists for store in each.stores}
    words = {store: _why(answers.get(store), least) for store in sorted(stores)}
    return {store: why for store, why in words.items() if why}


def _why(told: asks.Found | None, least: int) -> str:
    """Return why a store is not believed; nothing if it is. told: None: it does not answer."""
    if told is None:
        return "it does not answer"
    epoch = told.has.admitted
    if epoch == 0:
        return "it does not have the stream"
    if epoch < least:
        return (
            f"it is in epoch {epoch}, and {least} or a later one is expected: it was given up, or"
            " is behind"
        )
    is_in_it = epoch == told.promised
    return "" if is_in_it else f"it has promised epoch {told.promised}, and is not in it yet"


def _losses(who: Who, found: Position, within_s: float) -> Program[Losses | None]:
    """Ask what was lost of a stream; None: no store has told of the epoch that was found."""
    stores = stores_of(found)
    ask = asks.Learn(topic=who.topic, session=who.source)
    answers = yield from AskStores(
        asked=dict.fromkeys(stores, ask),
        enough=partial(has_all, frozenset(stores)),
        within_s=within_s,
    )
    of = found.stream, found.firsts
    informed = [one for one in answers.values() if isinstance(one, asks.Information)]
    return next((one.losses for one in informed if (one.stream, one.firsts) == of), None)
