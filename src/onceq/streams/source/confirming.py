"""Which receivers have processed what, as they tell the source, and whether they live. Pure.

A receiver is known by its registration, on whatever link it speaks. What it has confirmed counts
for as long as the source lives, also when the receiver is gone. Source: UM, "Confirmed Delivery";
spec M14, M16 to M18.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from onceq.streams.model import asks, events

KNOWN_MAX: Final = 1_024
"""Receivers that are known at once. One more takes the place of a dead one, or does not count."""


class Liveness(enum.Enum):
    """Whether a receiver lives, for all that its source knows."""

    ALIVE = "it speaks"
    DEAD = "its link is gone, or it says nothing for too long"


class Sign(enum.Enum):
    """What tells that."""

    SPOKE = "it confirmed something, or said again what it had confirmed"
    LEFT = "its link is gone"
    SILENT = "it said nothing for too long"


LIVENESS: Final[dict[tuple[Liveness, Sign], Liveness]] = {
    (Liveness.ALIVE, Sign.SPOKE): Liveness.ALIVE,
    (Liveness.ALIVE, Sign.LEFT): Liveness.DEAD,
    (Liveness.ALIVE, Sign.SILENT): Liveness.DEAD,
    (Liveness.DEAD, Sign.SPOKE): Liveness.ALIVE,
    (Liveness.DEAD, Sign.LEFT): Liveness.DEAD,
    (Liveness.DEAD, Sign.SILENT): Liveness.DEAD,
}
"""The life of a receiver after a sign; that it has become DEAD is told."""


class Receiver:
    """One receiver. below: it has processed everything before. link: on which it spoke last."""

    __slots__ = ("below", "life", "link", "spoke_s")

    def __init__(self, below: int) -> None:
        self.below = below
        self.life = Liveness.ALIVE
        self.link = 0
        self.spoke_s = 0.0

    def sees(self, sign: Sign) -> bool:
        """Note a sign; return whether it has died now."""
        before, self.life = self.life, LIVENESS[self.life, sign]
        return before is not self.life and self.life is Liveness.DEAD


class Confirming:
    """The receivers that have confirmed something. unique: of how many a message needs it.

    silent_s: a receiver that says nothing for so long is dead; 0: it may be silent for ever.
    below: every number before has as many confirmations as it needs. first: of this life.
    """

    def __init__(self, unique: int, silent_s: float) -> None:
        self.unique = unique
        self.below = self.first = 0
        self.receivers: dict[int, Receiver] = {}
        self._silent_s = silent_s
        self._epoch = 0
        self._links: dict[int, int] = {}

    def begin(self, epoch: int, first: int) -> None:
        """Begin to count: with the first epoch of a life, and its first number."""
        self._epoch, self.first = epoch, first
        self.below = max(self.below, first)

    def hear(self, link: int, said: asks.Confirm, end: int, now_s: float) -> range:
        """Take a confirmation; return the numbers that it confirms, which may be none.

        end: behind what was sent. What a receiver had of epochs before this life was another's.
        """
        below = min(said.below, end if said.epoch >= self._epoch else self.first)
        one = self._known(said.receiver, min(below, self.first))
        if one is None:
            return range(0)
        one.sees(Sign.SPOKE)
        one.link, one.spoke_s = link, now_s
        self._links[link] = said.receiver
        numbers = range(one.below, below)
        if numbers:
            one.below = below
            self._count()
        return numbers

    def _known(self, receiver: int, below: int) -> Receiver | None:
        one = self.receivers.get(receiver)
        if one is None and self._has_room():
            one = self.receivers[receiver] = Receiver(below)
        return one

    def _has_room(self) -> bool:
        """Whether one more can be known: who is dead, and confirmed the least, is forgotten."""
        if len(self.receivers) < KNOWN_MAX:
            return True
        dead = [
            (one.below, key) for key, one in self.receivers.items() if one.life is Liveness.DEAD
        ]
        if not dead:
            return False
        del self.receivers[min(dead)[1]]
        return True

    def _count(self) -> None:
        if self.unique:
            belows = sorted((one.below for one in self.receivers.values()), reverse=True)
            enough = belows[self.unique - 1] if len(belows) >= self.unique else 0
            self.below = max(self.below, enough)

    def counted(self, numbers: range) -> Iterator[tuple[range, int]]:
        """Yield numbers in rows, each with how many receivers have confirmed it."""
        inner = {one.below for one in self.receivers.values() if one.below in numbers}
        for begin, end in pairwise(sorted({numbers.start, *inner, numbers.stop})):
            count = sum(one.below > begin for one in self.receivers.values())
            yield range(begin, end), count

    def leave(self, link: int) -> int | None:
        """Note that a link is gone; return the receiver that died with it, if one did."""
        receiver = self._links.pop(link, None)
        one = None if receiver is None else self.receivers.get(receiver)
        has_died = one is not None and one.link == link and one.sees(Sign.LEFT)
        return receiver if has_died else None

    def silent(self, now_s: float) -> Iterator[int]:
        """Yield the receivers that have died since they say nothing."""
        for receiver, one in self.receivers.items():
            is_over = bool(self._silent_s) and now_s - one.spoke_s >= self._silent_s
            if is_over and one.sees(Sign.SILENT):
                yield receiver


def dead(stream: int, receiver: int, why: str) -> events.ReceiverDead:
    """Return the event that a receiver has died."""
    return events.ReceiverDead(stream=stream, receiver=receiver, why=why)
