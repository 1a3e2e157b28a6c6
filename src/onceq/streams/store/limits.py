"""What a store may give up of a stream, and when it must wait for a receiver instead. Pure.

A store keeps what a registered receiver has not acknowledged, whatever its limits say, unless it
is told to overwrite. What everybody has acknowledged is kept too, for receivers that come later,
until there is more of it than a limit allows, or it is older. What is not stable is never given up.
Source: streams.md 6; spec M28, M39; UM, the options of a store's repository.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.streams.model import asks
from onceq.streams.store.records import Held, Trimmed

if TYPE_CHECKING:
    from onceq.streams.store.weights import Weight


class WhenFull(enum.StrEnum):
    """What a store does when a receiver keeps more of a stream than its limit.

    BLOCK: it takes no more, so that the source waits. OVERWRITE: it gives up what the receiver has
    not got, and tells it.
    """

    BLOCK = "block"
    OVERWRITE = "overwrite"


STATE_LIFETIME_S: Final = 7 * 86_400.0
ROOM: Final = 8
"""One part in so many of its limit a store frees ahead, of what all receivers have: what comes
until it looks again finds room, and the source does not wait."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each stream a store keeps. size_bytes, age_s: at most; None: no limit.

    state_lifetime_s: a receiver that is not connected, and of which nothing was heard for so long,
    is forgotten; None: never.
    """

    size_bytes: int | None = None
    age_s: float | None = None
    when_full: WhenFull = WhenFull.BLOCK
    state_lifetime_s: float | None = STATE_LIFETIME_S


def wanted(
    held: Held, weight: Weight, limits: Limits, now_s: float, *, is_forced: bool = False
) -> int:
    """Return the number below which a store has more of a stream, or older, than it should.

    That is seven eighths of its limit. is_forced: no more than must go is wanted. With as much as
    the limit it is full, and takes nothing: so it may keep a byte less.
    """
    below = held.begin
    if limits.size_bytes is not None:
        room = 0 if is_forced else limits.size_bytes // ROOM
        below = max(below, weight.first_within(limits.size_bytes - 1 - room))
    if limits.age_s is not None:
        below = max(below, weight.first_since(now_s - limits.age_s))
    return min(below, held.stable)


def is_full(weight: Weight, limits: Limits) -> bool:
    """Return whether a store has as much of a stream as it may."""
    return limits.size_bytes is not None and weight.kept >= limits.size_bytes


def trimmed(held: Held, want: int, acknowledged: int) -> Trimmed | None:
    """Return the record of what is given up below `want`; None: nothing can be.

    acknowledged: below it, all registered receivers have acknowledged everything, as a recover set
    of stores knows it: this store alone may not know of one.
    """
    below = min(want, acknowledged)
    return Trimmed(stream=held.stream, below=below) if below > held.begin else None


def overwritten(held: Held, want: int) -> Trimmed | None:
    """Return the record of what is given up below `want`, whoever has not acknowledged it."""
    if want <= held.begin:
        return None
    return Trimmed(stream=held.stream, below=want, forced=slowest(held)[0] < want)


def full(held: Held) -> asks.Full:
    """Return the answer that there is no room, which names the receiver that keeps the oldest."""
    return asks.Full(end=held.end, blocking=slowest(held)[1])


def slowest(held: Held) -> tuple[int, int]:
    """Return the least position of a receiver that is registered here, and its id.

    If none is behind what is stable: that, and 0.
    """
    known = [(held.positions.get(one.key, 0), one.regid) for one in held.receivers]
    return min([(held.stable, 0), *known])
