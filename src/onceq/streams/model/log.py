"""Of what epochs the numbers of a log are, and what follows for stores and receivers. Pure.

Two logs have the same messages as far as they have the same epochs, for an identity (epoch, number)
has one content. Source: streams.md 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onceq.streams.model.choice import (
    Bridge,
    Firsts,
    Log,
    Promised,
    Stage,
    fillings,
    holders,
    is_addable,
)
from onceq.streams.model.losses import Losses, Lost, still_stable
from onceq.streams.model.quorum import StoreList


def chained(firsts: Firsts, epoch: int, end: int) -> Firsts:
    """Return the epochs of a log that goes on at `end` in a new epoch.

    An epoch in which nothing was sent leaves no trace, but for the one that created the stream.
    """
    sent = tuple(one for one in firsts[1:] if one[1] < end)
    return (*firsts[:1], *sent, (epoch, end))


def recorded(
    log: Log,
    *,
    epoch: int,
    own: StoreList,
    wanted: StoreList | None,
    promised: Mapping[str, Promised],
    known: Mapping[str, int],
) -> Bridge:
    """Return the bridge record of an epoch that is to begin with a log.

    own: the list of the life; wanted: to change to, or None: that begins with it if enough stores
    of the new list have promised. known: fillings that stores told.
    """
    stage, lists = _stage(log, own, wanted, promised)
    unsure = {store for one in lists for store in one.stores} - holders(promised).keys()
    losses = log.losses
    if log.accepted is not None:
        lost = Lost(epoch=epoch, first=log.end, count=log.accepted.below - log.end)
        losses = (*losses, lost)
    return Bridge(
        epoch=epoch,
        stage=stage,
        lists=lists,
        firsts=chained(log.firsts, epoch, log.end),
        fillings=fillings(known, epoch, unsure if log.admitted else ()),
        losses=losses,
        keeps=log.keeps,
    )


def _stage(
    log: Log, own: StoreList, wanted: StoreList | None, promised: Mapping[str, Promised]
) -> tuple[Stage, tuple[StoreList, ...]]:
    if log.admitted == 0:
        return Stage.CREATING, log.lists
    if log.accepted is not None:  # of the old list there may never be a stable set again
        return Stage.SETTLED, (own,)
    old = log.lists[0]
    if old != log.lists[-1]:
        return Stage.SETTLING, log.lists
    if wanted is not None and is_addable(wanted, old, promised, keeps=log.keeps):
        return Stage.JOINT, (old, wanted)
    return Stage.SETTLED, log.lists


def epoch_at(firsts: Firsts, number: int) -> int:
    """Return the epoch in which a number of a log was sent."""
    return max(epoch for epoch, first in firsts if first <= number)


def agreed_below(one: Firsts, other: Firsts) -> int | None:
    """Return the first number that two logs have of different epochs; None: there is none.

    Below it they have the same messages, for an identity (epoch, number) has one content.
    """
    numbers = sorted({first for firsts in (one, other) for _, first in firsts})
    return next((n for n in numbers if epoch_at(one, n) != epoch_at(other, n)), None)


def kept_below(has: Promised, log: Log, losses: Losses = ()) -> int:
    """Return below which number a store keeps its own when it is admitted; the rest it copies.

    It keeps what it has of the same epochs as the chosen log. Whatever it copies must be of these
    epochs too, so that it does not matter who gives it. losses: that were accepted up to then.
    """
    stable = sure = still_stable(has.stable, has.admitted, losses)
    if has.bridge is not None and has.whole and log.firsts:
        agreed = agreed_below(has.bridge.firsts, log.firsts)
        sure = has.end if agreed is None else max(agreed, stable)
    return min(sure, has.end, log.end)


def merged(of_stores: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the greatest position of each receiver that any of some stores knows."""
    positions: dict[str, int] = {}
    for one in of_stores:
        for receiver, position in one.items():
            positions[receiver] = max(position, positions.get(receiver, 0))
    return positions


def acknowledged_below(of_stores: Iterable[Mapping[str, int]], stable: int) -> int:
    """Return below which number all registered receivers have acknowledged everything.

    of_stores: the positions that a recover set of stores knows; a registration that is complete is
    known to one of them. stable: the bound, and the answer if nobody is registered.
    """
    return min((stable, *merged(of_stores).values()))


def rolled_back(firsts: Firsts, *, epoch: int, begin: int, end: int) -> int | None:
    """Return the number to which a life of a receiver goes back; None: it goes on.

    It stands at `end`, began at `begin`, and is informed of `epoch`. Each later epoch cut what was
    before it at its first number: with two of them, the lesser one counts.
    """
    first = max(min((first for later, first in firsts if later > epoch), default=end), begin)
    return first if first < end else None


def in_vain(first: int, end: int, losses: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return from which number to before which one a life saw messages in vain; None: it saw none.

    It goes back from `end` to `first`. losses: ranges that it was told as lost, and so did not see.
    """
    ranges = sorted(losses)
    for begin, below in ranges:
        first = below if begin <= first < below else first
    for begin, below in reversed(ranges):
        end = begin if begin < end <= below else end
    return (first, end) if first < end else None
