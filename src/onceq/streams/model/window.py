"""The flight of a source: what it has sent and has not landed, and its limits. Pure.

A message lands when it is stable, and as many receivers have confirmed it as the source wants: so
these pace it. Source: UM, "Persistence Flight Size"; spec M16. A size of 1 is one unstable message
at a time.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from onceq.errors import InvalidValue

UNLIMITED: Final = 0
"""A limit that is none."""


class FlightBehavior(enum.StrEnum):
    """What a source does with a message that has no room in flight."""

    BLOCK = "block"
    NOTIFY = "notify"


class Flight:
    """Counts the numbers that have not landed, and their bytes, against two limits.

    messages_max, bytes_max: 0: no such limit. A message that is larger, or takes more numbers, may
    fly alone. behavior: `notify`: messages are sent without room, and the application is told.
    """

    __slots__ = ("_sizes", "behavior", "bytes", "bytes_max", "landed_below", "messages_max")

    def __init__(
        self,
        *,
        messages_max: int,
        bytes_max: int = UNLIMITED,
        begin: int = 0,
        behavior: FlightBehavior = FlightBehavior.BLOCK,
    ) -> None:
        if messages_max < 0 or bytes_max < 0:
            raise InvalidValue("a flight size is 0 (no limit) or more")
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.behavior = behavior
        self.bytes = 0
        self.landed_below = begin
        self._sizes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._sizes)

    def has_room(self, size: int, count: int = 1) -> bool:
        """Whether a message of this many bytes, that takes `count` numbers, may be sent now."""
        if not self._sizes:
            return True
        if self.messages_max and len(self._sizes) + count > self.messages_max:
            return False
        return not self.bytes_max or self.bytes + size <= self.bytes_max

    def send(self, size: int) -> int:
        """Note that a message, or a fragment, was sent; return its number."""
        number = self.landed_below + len(self._sizes)
        self._sizes.append(size)
        self.bytes += size
        return number

    def land(self, below: int) -> int:
        """Note that everything below a number has landed; return how many numbers that frees."""
        freed = 0
        while self._sizes and self.landed_below < below:
            self.bytes -= self._sizes.popleft()
            self.landed_below += 1
            freed += 1
        return freed
