"""When a store has heard of each receiver last, and which of them it forgets. Pure.

A receiver that never comes back would keep what it has not acknowledged for ever. So one of which
nothing was heard for its state lifetime is forgotten, also if the store knows of it from others
only. After a restart nobody knows how long that is: it counts as heard then. Source: UM, the
options of a store's repository; spec M8.
"""

from __future__ import annotations

from typing import TypeAlias

from onceq.streams.model import asks
from onceq.streams.store.records import Held, key_of, receiver

Who: TypeAlias = tuple[int, str]
"""A stream, and the key of a receiver's position."""


class Lifetimes:
    """When each receiver was heard last, in seconds. lifetime_s: None: none is forgotten."""

    def __init__(self, lifetime_s: float | None) -> None:
        self._lifetime_s = lifetime_s
        self._heard_s: dict[Who, float] = {}

    def hear(self, who: Who, now_s: float) -> None:
        """Note that a receiver is there."""
        self._heard_s[who] = now_s

    def over(self, held: Held, now_s: float) -> list[str]:
        """Return the keys of the receivers of a stream that are to be forgotten."""
        if self._lifetime_s is None:
            return []
        least_s = now_s - self._lifetime_s
        keys = {*held.positions, *held.marks}
        return [
            key for key in keys if self._heard_s.setdefault((held.stream, key), now_s) < least_s
        ]

    def forget(self, who: Who) -> None:
        """Note that a receiver is forgotten."""
        self._heard_s.pop(who, None)


def who(held: Held, ask: asks.Register | asks.Acknowledge) -> Who | None:
    """Return which receiver of a stream asks; None: it is none that could be known before."""
    if isinstance(ask, asks.Acknowledge):
        known = receiver(held, ask.regid)
        return None if known is None else (held.stream, known.key)
    has_name = bool(ask.session or ask.regid)
    return (held.stream, key_of(ask.regid, ask.session)) if has_name else None
