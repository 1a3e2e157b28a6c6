"""How a receiver gets what it lacks from stores: a Program that goes on while its life does. Pure.

It reads from one store after the other while they give something. When they do not, or its source
sends what comes next meanwhile, it rests before it asks again: the driver ends the rest when the
core lacks something. Source: streams.md 7; spec M25, M26.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.ops import AskStores, WaitUntil
from onceq.streams.receiver.delivering import Delivering, confirmed
from onceq.streams.receiver.ops import ReadStore, Show
from onceq.streams.receiver.placing import Who, has_all

RANGE_MAX: Final = 1 << 20
"""Numbers that are asked for at once; a store gives about 1 MiB of them."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a receiver waits. read_s: for a store, before it asks another. ask_s: for all.

    rest_s: when no store gave anything, before it asks again.
    """

    read_s: float = 0.5
    ask_s: float = 2.0
    rest_s: float = 0.5


def follow(core: Delivering, who: Who, patience: Patience) -> Program[None]:
    """Fetch what the life lacks, for ever, until the driver closes this."""
    turn = 0
    while True:
        if core.told is None or core.is_behind:
            yield from learn(core, who, patience)
        stores = sorted({store for one in core.lists for store in one.stores})
        before, gave = core.next, False
        for _ in stores:
            turn += 1
            gave = yield from _read(core, stores[turn % len(stores)], patience)
            if gave or core.next != before:
                break
        if gave or core.next < before:
            continue
        yield from WaitUntil(within_s=patience.rest_s)
        if core.next == before:
            yield from learn(core, who, patience)


def _read(core: Delivering, store: str, patience: Patience) -> Program[bool]:
    """Read what comes next from a store; return whether it gave anything."""
    before = core.next
    epoch = 0 if core.is_stable_only else core.epoch
    ask = asks.Read(stream=core.stream, epoch=epoch, begin=before, end=before + RANGE_MAX)
    given = yield from ReadStore(store=store, ask=ask, within_s=patience.read_s)
    if given is None or core.next != before:
        return False  # meanwhile the source sent it, or an epoch cut it
    shown = core.given(store, *given)
    if shown:
        yield from Show(shown=tuple(shown))
    return core.next > before  # a part of a message is not shown before the rest has come


def learn(core: Delivering, who: Who, patience: Patience) -> Program[None]:
    """Ask stores of what epoch the stream is, and go back if that cut what was seen."""
    stores = frozenset(store for one in (*core.lists, who.known) for store in one.stores)
    ask = asks.Learn(topic=who.topic, session=who.source)
    answers = yield from AskStores(
        asked=dict.fromkeys(sorted(stores), ask),
        enough=partial(has_all, stores),
        within_s=patience.ask_s,
    )
    told = {
        store: one
        for store, one in answers.items()
        if isinstance(one, asks.Information) and one.stream == core.stream
    }
    known = confirmed(told)
    if known is not None:
        shown = core.inform(known)
        if shown:
            yield from Show(shown=tuple(shown))
