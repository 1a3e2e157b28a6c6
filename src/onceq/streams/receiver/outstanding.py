"""What a life of a receiver has for its application, in order, and how far that has come. Pure.

Each is shown once, in order, and comes to its end: in order, or not. What has ended without a gap
may be acknowledged, if it is stable: of 0, 1, 5, 2, 4 that is 2. When a later epoch cut what was
seen, numbers come again: nothing from the least one that is still outstanding on is acknowledged.
Source: spec M9, M20 to M23; UM, "ACK Ordering", ume_application_outstanding_maximum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from onceq.streams.model.events import Loss, RolledBack
from onceq.streams.receiver.ops import Message, Shown

BYTES_MAX: Final = 8 << 20
MESSAGE_BYTES: Final = 200
"""What a message takes beside its body, about; also one that has ended above a gap."""


class Outstanding:
    """What is to be shown, and what was shown and has not ended. begin: where the life begins.

    messages_max: with so many it is full; 0: bytes alone say. bytes_max: of their bodies, and what
    they take beside them. Whoever adds to it waits while it is full: so it may have a range more.
    Each that is shown has a place: they count from 0, also where numbers come again.
    """

    def __init__(self, begin: int, *, messages_max: int = 0, bytes_max: int = BYTES_MAX) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self._ended = begin
        self._waiting: deque[Shown] = deque()
        self._shown: dict[int, Shown | None] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._oldest = self._next = 0
        self._least: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + self._next - self._oldest

    @property
    def is_full(self) -> bool:
        """Whether nothing should be added until more has come to its end."""
        is_many = bool(self.messages_max) and len(self) >= self.messages_max
        return is_many or self.bytes >= self.bytes_max

    @property
    def first(self) -> Shown | None:
        """What is to be shown now; None: there is nothing."""
        return self._waiting[0] if self._waiting else None

    def add(self, shown: Iterable[Shown]) -> None:
        """Take what is to be shown behind the rest."""
        for one in shown:
            number = _bounds(one)[0]
            while self._least and self._least[-1] > number:
                self._least.pop()
            self._least.append(number)
            self._waiting.append(one)
            self.bytes += _size(one)

    def show(self) -> int:
        """Note that the first one is shown now; return its place."""
        place = self._next
        self._shown[place] = self._waiting.popleft()
        self._next += 1
        return place

    def end(self, place: int) -> None:
        """Note that what was shown at a place has come to its end; once, or more often."""
        one = self._shown.get(place)
        if one is None:
            return
        if place != self._oldest:
            self._set_aside(place, one)
            return
        self._leave(_bounds(one), _size(one))
        while self._oldest in self._bounds:
            self._leave(self._bounds.pop(self._oldest), MESSAGE_BYTES)

    def end_through(self, place: int) -> None:
        """Note that all that was shown up to a place has come to its end."""
        for one in range(self._oldest, min(place + 1, self._next)):
            self.end(one)

    def _set_aside(self, place: int, one: Shown) -> None:
        """Keep of what has ended above a gap only its numbers."""
        self.bytes -= _size(one) - MESSAGE_BYTES
        self._shown[place] = None
        self._bounds[place] = _bounds(one)

    def _leave(self, bounds: tuple[int, int], size: int) -> None:
        number, self._ended = bounds
        if self._least[0] == number:
            self._least.popleft()
        del self._shown[self._oldest]
        self._oldest += 1
        self.bytes -= size

    def below(self, sure: int) -> int:
        """Return below which number all may be acknowledged. sure: below it, all is stable."""
        ended = min(sure, self._ended)
        return min(ended, self._least[0]) if self._least else ended


def _bounds(one: Shown) -> tuple[int, int]:
    """Return the first number of what is shown, and where the application is behind it."""
    match one:
        case Message(first=first, number=number):
            return first, number + 1
        case Loss(first=first, last=last):
            return first, last + 1
        case RolledBack(first=first):
            return first, first


def _size(one: Shown) -> int:
    return MESSAGE_BYTES + (len(one.body) if isinstance(one, Message) else 0)
