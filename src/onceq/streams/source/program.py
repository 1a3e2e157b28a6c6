"""A life of a source from its beginning to its end: recoveries, and the sending between them. Pure.

A Program. What is steady is the core's (`sending`): the driver runs that while an epoch goes on.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from onceq.model.ops.base import Op, Program
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.quorum import StoreList
from onceq.streams.source.epochs import Begun, Short, SourceLife, Succeeded, Timing, WhyEnded
from onceq.streams.source.recovering import Past, Tried, recover


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch is over. needed: the lists by which it counted at its end; wanted: the one to be."""

    why: WhyEnded
    needed: tuple[StoreList, ...]
    wanted: StoreList | None


class SendOn(Op[Over]):
    """Send in an epoch until it ends."""

    begun: Begun


class TellShort(Op[None]):
    """Tell the application that a recovery cannot be complete now; it is tried again."""

    short: Short


def live(life: SourceLife, timing: Timing) -> Program[Succeeded | WhyEnded]:
    """Live until another life takes over, or a store has a number with another content.

    The driver closes this when the source is closed.
    """
    past = Past(wanted=life.own)
    while True:
        found = yield from recover(life, past, timing)
        match found:
            case Begun():
                over = yield from SendOn(begun=found)
                if over.why in {WhyEnded.SUCCEEDED, WhyEnded.CONFLICT}:
                    return over.why
                past = Past(
                    stream=found.stream,
                    epochs=frozenset({found.epoch}),
                    needed=over.needed,
                    own=over.needed[-1],
                    wanted=over.wanted,
                )
            case Tried(epoch=epoch, is_changing=is_changing):
                epochs = past.epochs | {epoch} if past.epochs else past.epochs
                past = replace(past, epochs=epochs, tried=epoch, puts_off=is_changing)
                yield from WaitUntil(within_s=timing.interval_s)
            case Short():
                yield from TellShort(short=found)
                yield from WaitUntil(within_s=timing.interval_s)
            case Succeeded():
                return found
