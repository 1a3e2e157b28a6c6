"""How far a change of lists has come, by what stores have noted. Pure. Source: streams.md 5."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from onceq.streams.model.choice import Bridge, Stage
from onceq.streams.model.quorum import are_stable


def advanced(bridge: Bridge, noted: Mapping[str, Stage]) -> Bridge:
    """Return the record of the stage to which a change has come. noted: what each store has."""
    at = {store for store, stage in noted.items() if stage >= bridge.stage}
    if bridge.stage is Stage.JOINT and bridge.lists[-1].stores <= at:
        return replace(bridge, stage=Stage.SETTLING)
    if bridge.stage is Stage.SETTLING and are_stable(bridge.lists, at):
        return settled(bridge)
    return bridge


def settled(bridge: Bridge) -> Bridge:
    """Return the record of a change when a stable set of both lists has noted that it settles.

    That is, that all stores of the new list hold the stream: it alone counts.
    """
    return replace(bridge, stage=Stage.SETTLED, lists=bridge.lists[-1:])
