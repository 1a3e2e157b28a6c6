"""How a source has stores admitted to the epoch that it begins: a Program. Pure.

Stores that are known to hold the stream come first; those that may have forgotten what they
promised wait until a recover set of others is admitted. When a stable set of every list holds the
log, and has noted the bridge record, the epoch has begun; the others are admitted while the source
sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.ops import AskStores
from onceq.streams.source.creating import is_noted, settled
from onceq.streams.source.epochs import Begun, SourceLife, Timing, admission, must_wait

ROUNDS: Final = 4
"""Times that stores are asked to note a stage, before the recovery is begun anew."""


def admit(life: SourceLife, begun: Begun, timing: Timing) -> Program[Begun | None]:
    """Have stores admitted; return the epoch when enough are; None: too few answered in time.

    begun: what is to begin, with nothing noted.
    """
    while True:
        noted = yield from _note(life, begun, timing)
        if not _is_enough(noted):
            return None
        if noted.bridge.stage is not Stage.CREATING:
            return noted
        begun = replace(noted, bridge=settled(noted.bridge))


def _note(life: SourceLife, begun: Begun, timing: Timing) -> Program[Begun]:
    """Have the bridge record noted in its stage; return who has, when these are enough."""
    for _ in range(ROUNDS):
        answers = yield from AskStores(
            asked=_asked(life, begun),
            enough=partial(_would_be_enough, begun),
            within_s=timing.admit_s,
        )
        begun = _heard(begun, answers)
        if _is_enough(begun):
            break
    return begun


def _is_enough(begun: Begun) -> bool:
    at = _at(begun)
    return is_noted(begun.bridge, at, at & begun.ends.keys(), begun.creation)


def _would_be_enough(begun: Begun, answers: Mapping[str, asks.Answer]) -> bool:
    """Whether an epoch can begin with some answers: by what they say, not by how many there are."""
    return _is_enough(_heard(begun, answers))


def _at(begun: Begun) -> set[str]:
    """Return the stores that have noted the stage."""
    return {store for store, stage in begun.noted.items() if stage >= begun.bridge.stage}


def _asked(life: SourceLife, begun: Begun) -> Mapping[str, asks.Admit]:
    bridge = begun.bridge
    stores = {store for one in bridge.lists for store in one.stores} - _at(begun)
    return {
        store: admission(life, begun, store)
        for store in sorted(stores)
        if not must_wait(begun.log, bridge, store, begun.noted.keys())
    }


def _heard(begun: Begun, answers: Mapping[str, asks.Answer]) -> Begun:
    """Return what is known after some answers."""
    noted, ends, refused = dict(begun.noted), dict(begun.ends), set(begun.refused)
    regids = dict(begun.regids)
    for store, answer in answers.items():
        match answer:
            case asks.Holding(end=end, regid=regid):
                noted[store], ends[store] = begun.bridge.stage, end
                regids[store] = regid
            case asks.Noted(regid=regid):
                noted[store], regids[store] = begun.bridge.stage, regid
            case asks.Refused():
                refused.add(store)
            case _:
                pass  # it forgot, has no room, or lacks what nobody gives
    return replace(begun, noted=noted, ends=ends, refused=frozenset(refused), regids=regids)
