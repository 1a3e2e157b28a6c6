"""How a new stream begins: every store notes it twice before anything is sent. Pure.

A person may choose that a stable set of them suffices (`Creation.QUORUM`), where no store that this
life ever heard knows of the stream: stores that are silent then count as such that know nothing.

First each notes that the stream is being created, then each that all know of it. A life that dies
in between leaves a stream that any life may go on to create: where a store knows it as being
created, nothing was ever sent, or others have it settled. Source: streams.md 5; ADR 24.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from onceq.streams.model.choice import Bridge, Log, Promised, Stage, seen
from onceq.streams.model.options import Creation
from onceq.streams.model.quorum import StoreList, are_stable


def is_known(has: Promised) -> bool:
    """Whether what a store has tells that a stream is not new: that something may have been sent.

    That it was asked to create the stream does not.
    """
    return has.holds or bool(has.end or has.stable or has.passed or has.positions)


def begun_by_quorum(own: StoreList, answers: Mapping[str, Promised]) -> Log | None:
    """Return the log of a new stream, if those that promised it suffice, though others are silent.

    A stable set of every list seen must have, of stores that keep messages; and none of those that
    answered may know of the stream. None: that is not so.
    """
    keeping = {store for store, one in answers.items() if one.passed is None}
    is_told = any(map(is_known, answers.values()))
    if is_told or not are_stable(seen(own, answers.values()), keeping):
        return None
    return Log(admitted=0, end=0, lists=(own,), firsts=(), positions={})


def is_new(bridge: Bridge) -> bool:
    """Whether an epoch creates its stream."""
    return bridge.firsts[0][0] == bridge.epoch


def settled(bridge: Bridge) -> Bridge:
    """Return the record that all note when all have noted that the stream is being created."""
    return replace(bridge, stage=Stage.SETTLED)


def is_noted(
    bridge: Bridge,
    noted: AbstractSet[str],
    holding: AbstractSet[str],
    creation: Creation = Creation.ALL,
) -> bool:
    """Whether as many stores have noted a bridge record as it needs.

    noted: those that have it in this stage, or a later one; holding: those of them that keep
    messages. A new stream needs all of its list, unless a person has chosen otherwise; any other a
    stable set that has the chosen log, for all of that counts as stable from then on.
    """
    if is_new(bridge) and (creation is Creation.ALL or noted >= bridge.lists[0].stores):
        return noted >= bridge.lists[0].stores
    return are_stable(bridge.lists, holding)
