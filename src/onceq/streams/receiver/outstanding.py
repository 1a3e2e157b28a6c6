"""What a life of a receiver has for its application, in order, and how far that has come. Pure.

It is shown one after the other; what has come to its end may be acknowledged, if it is stable. When
a later epoch cut what was seen, numbers come again: nothing from the least one that is still
outstanding on is acknowledged. Source: spec M9, M23; UM, ume_application_outstanding_maximum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from onceq.streams.model.events import Loss, RolledBack
from onceq.streams.receiver.ops import Message, Shown

BYTES_MAX: Final = 8 << 20
MESSAGE_BYTES: Final = 200
"""What a message takes beside its body, about."""


class Outstanding:
    """What is to be shown. begin: where the life begins.

    messages_max: with so many it is full; 0: bytes alone say. bytes_max: of their bodies, and what
    they take beside them. Whoever adds to it waits while it is full: so it may have a range more.
    """

    def __init__(self, begin: int, *, messages_max: int = 0, bytes_max: int = BYTES_MAX) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self._ended = begin
        self._shown: deque[Shown] = deque()
        self._least: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._shown)

    @property
    def is_full(self) -> bool:
        """Whether nothing should be added until more has come to its end."""
        is_many = bool(self.messages_max) and len(self._shown) >= self.messages_max
        return is_many or self.bytes >= self.bytes_max

    @property
    def first(self) -> Shown | None:
        """What is to be shown now; None: there is nothing."""
        return self._shown[0] if self._shown else None

    def add(self, shown: Iterable[Shown]) -> None:
        """Take what is to be shown behind the rest."""
        for one in shown:
            number = _bounds(one)[0]
            while self._least and self._least[-1] > number:
                self._least.pop()
            self._least.append(number)
            self._shown.append(one)
            self.bytes += _size(one)

    def end(self) -> None:
        """Note that the first one has come to its end: it was shown, and processed."""
        one = self._shown.popleft()
        number, self._ended = _bounds(one)
        if self._least[0] == number:
            self._least.popleft()
        self.bytes -= _size(one)

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
