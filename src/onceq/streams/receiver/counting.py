"""What a life of a receiver has handed to its application, counted. Pure."""

from __future__ import annotations

from collections import Counter

from onceq.streams.model.events import Loss
from onceq.streams.receiver.ops import Message, Shown


class Counting:
    """delivered: messages. lost: numbers by why; rolled_back: numbers that were shown in vain."""

    def __init__(self) -> None:
        self.delivered = self.rolled_back = 0
        self.lost: Counter[str] = Counter()

    def note(self, one: Shown) -> None:
        """Count what was handed over."""
        if isinstance(one, Message):
            self.delivered += 1
        elif isinstance(one, Loss):
            self.lost[one.why.value] += one.last - one.first + 1
        else:
            self.rolled_back += one.last - one.first + 1
