"""A life of a source from its beginning to its end: recoveries, and the sending between them. Pure.

A Program. What is steady is the core's (`sending`): the driver runs that while an epoch goes on.
"""

from __future__ import annotations

import msgspec

from onceq.model.ops.base import Op, Program
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.quorum import StoreList
from onceq.streams.model.uses import Watch, is_source_in_use
from onceq.streams.source.epochs import Begun, Short, SourceLife, Succeeded, Timing, Used, WhyEnded
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

    It does not begin while another life is live: if stores go on hearing that, it gives up.

    The driver closes this when the source is closed.
    """
    past, watch = Past(wanted=life.own), Watch()
    while True:
        found = yield from recover(life, past, timing)
        match found:
            case Begun():
                over = yield from SendOn(begun=found)
                if over.why in {WhyEnded.SUCCEEDED, WhyEnded.CONFLICT}:
                    return over.why
                past = Past(
                    stream=found.stream,
                    session=found.session,
                    epochs=frozenset({found.epoch}),
                    needed=over.needed,
                    own=over.needed[-1],
                    wanted=over.wanted,
                )
            case Tried():
                past = past.after(found)
                yield from WaitUntil(within_s=timing.interval_s)
            case Short() | Used():
                if (yield from _is_in_use(found, watch, timing)):
                    return WhyEnded.IN_USE
                past = past.told(is_known=isinstance(found, Used) or found.is_known)
            case Succeeded():
                return found


def _is_in_use(found: Short | Used, watch: Watch, timing: Timing) -> Program[bool]:
    """Tell why no epoch can begin, and rest; or return that another life surely is live."""
    if isinstance(found, Short):
        yield from TellShort(short=found)
        yield from WaitUntil(within_s=timing.interval_s)
        return False
    watch.note(found.users)
    if is_source_in_use(found.lists, watch.sure):
        return True
    yield from TellShort(short=Short(used=frozenset(found.users)))
    yield from WaitUntil(within_s=timing.retry_s)
    return False
