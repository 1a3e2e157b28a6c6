"""The bridge record with which a life of a source begins an epoch, by the rules that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.streams.model.log import recorded

if TYPE_CHECKING:
    from onceq.streams.model.choice import Bridge, Log, Promised
    from proof.streams_model.sources import Sender


def record(sender: Sender, epoch: int, log: Log, promised: dict[str, Promised]) -> Bridge:
    """Return the bridge record of an epoch; the change that is wanted begins with it."""
    made = recorded(
        log,
        epoch=epoch,
        own=sender.own,
        wanted=sender.wanted,
        promised=promised,
        known=sender.known,
    )
    if sender.world.rules.losses_are_kept:
        return made
    return replace(made, losses=made.losses[len(log.losses) :])
