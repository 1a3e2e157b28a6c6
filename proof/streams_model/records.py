"""The bridge record with which a life of a source begins an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.streams.model.choice import Bridge, Log, Promised, Stage, fillings, holders, is_addable
from onceq.streams.model.log import chained
from onceq.streams.model.losses import Lost

if TYPE_CHECKING:
    from proof.streams_model.sources import Sender


def record(sender: Sender, epoch: int, log: Log, promised: dict[str, Promised]) -> Bridge:
    """Return the bridge record of an epoch; the change that is wanted begins with it."""
    stage, lists, losses = Stage.SETTLED, log.lists, log.losses
    if not sender.world.rules.losses_are_kept:
        losses = ()
    if log.accepted is not None:
        lists = (sender.own,)
        losses = (*losses, Lost(epoch=epoch, first=log.end, count=log.accepted.below - log.end))
    if log.admitted == 0:
        stage = Stage.CREATING
    elif log.accepted is not None:
        pass
    elif len(lists) == 2:
        stage = Stage.SETTLING
    elif sender.wanted is not None and is_addable(sender.wanted, lists[0], promised):
        stage, lists = Stage.JOINT, (lists[0], sender.wanted)
    unsure = {store for one in lists for store in one.stores} - holders(promised).keys()
    return Bridge(
        epoch=epoch,
        stage=stage,
        lists=lists,
        firsts=chained(log.firsts, epoch, log.end),
        fillings=fillings(sender.known, epoch, unsure if log.admitted else ()),
        losses=losses,
    )
