"""How a new stream begins: every store notes it twice before anything is sent. Pure.

First each notes that the stream is being created, then each that all know of it. A life that dies
in between leaves a stream that any life may go on to create: where a store knows it as being
created, nothing was ever sent, or others have it settled. Source: streams.md 5; ADR 24.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from onceq.streams.model.choice import Bridge, Stage
from onceq.streams.model.quorum import are_stable


def is_new(bridge: Bridge) -> bool:
    """Whether an epoch creates its stream."""
    return bridge.firsts[0][0] == bridge.epoch


def settled(bridge: Bridge) -> Bridge:
    """Return the record that all note when all have noted that the stream is being created."""
    return replace(bridge, stage=Stage.SETTLED)


def is_noted(bridge: Bridge, noted: AbstractSet[str], holding: AbstractSet[str]) -> bool:
    """Whether as many stores have noted a bridge record as it needs.

    noted: those that have it in this stage, or a later one; holding: those of them that keep
    messages. A new stream needs all of its list; any other a stable set that has the chosen log,
    for all of that counts as stable from then on.
    """
    if is_new(bridge):
        return noted >= bridge.lists[0].stores
    return are_stable(bridge.lists, holding)
