"""How a store frees what all receivers have: as far as a recover set of stores knows it. Pure.

A receiver is registered at a stable set, so that this store may not know of one that still needs a
number. It asks the others: what a recover set in the same epoch agrees that everybody has
acknowledged is nobody's any more. A Program: its driver asks over a network, or in a simulator.
"""

from __future__ import annotations

from typing import Final

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.log import acknowledged_below
from onceq.streams.model.ops import AskStores
from onceq.streams.model.quorum import are_recovered
from onceq.streams.model.tombstones import Positions, agreed
from onceq.streams.store.catalogue import serving
from onceq.streams.store.limits import trimmed
from onceq.streams.store.records import Held, Trimmed

ASK_S: Final = 2.0


def trim(held: Held, own: str, want: int) -> Program[Trimmed | None]:
    """Return what may be given up of a stream below `want`; None: nothing, for all that is known.

    own: the address of this store, as the lists have it.
    """
    bridge, epoch = held.bridge, serving(held)
    if bridge is None or epoch == 0 or want <= held.begin:
        return None
    lists = bridge.governs
    others = {store for one in lists for store in one.stores} - {own}
    ask = asks.Positions(stream=held.stream, epoch=epoch)
    answers = yield from AskStores(
        asked=dict.fromkeys(sorted(others), ask),
        enough=lambda answered: answered.keys() >= others,
        within_s=ASK_S,
    )
    known = {
        store: Positions(below=answer.positions, marks=answer.marks)
        for store, answer in answers.items()
        if isinstance(answer, asks.Known) and answer.epoch == epoch
    }
    known[own] = held.known
    if not are_recovered(lists, known.keys()):
        return None
    counted = agreed(lists, known).below
    return trimmed(held, want, acknowledged_below((counted,), held.stable))
