"""What a receiver may acknowledge, if it ends messages out of order. Pure.

A store takes an acknowledgement of n as one of everything below n too. So only what has ended
without a gap may be acknowledged: of 0, 1, 5, 2, 4 that is 2, and 3 to 6 come again after a crash.
Source: UM, "ACK Ordering" and "Explicit Acknowledgments"; spec M21, M22.
"""

from __future__ import annotations

from onceq.errors import InvalidValue


class Contiguous:
    """Collects the numbers of messages that have ended, in any order.

    below: everything below this has ended; the highest number that may be acknowledged is one less.
    """

    __slots__ = ("_ended", "below")

    def __init__(self, begin: int = 0) -> None:
        self.below = begin
        self._ended: set[int] = set()

    def end(self, number: int) -> bool:
        """Note that a message has ended; return whether more can be acknowledged now.

        A message that had ended before changes nothing.
        """
        if number < self.below:
            return False
        self._ended.add(number)
        before = self.below
        while self.below in self._ended:
            self._ended.remove(self.below)
            self.below += 1
        return self.below > before

    def waiting(self) -> int:
        """Return how many have ended above a gap, and so must wait."""
        return len(self._ended)


class Ascending:
    """Takes explicit acknowledgements: of 5, 10 and 15, each covers all below it.

    below: everything below this is acknowledged.
    """

    __slots__ = ("below",)

    def __init__(self, begin: int = 0) -> None:
        self.below = begin

    def acknowledge(self, number: int) -> None:
        """Acknowledge a message and all below it. Raises InvalidValue unless they ascend."""
        if number < self.below:
            raise InvalidValue(
                f"{number} is acknowledged after {self.below - 1}, which covered it: acknowledge"
                " in ascending order, or let `Contiguous` find what may be acknowledged"
            )
        self.below = number + 1
