"""What a source does while it sends: a core without links, threads or a clock. Pure.

It numbers messages, and sends them to all stores of its lists in blocks. `sending_epochs` takes it
through its epochs, and `keeping` has how long messages are kept. Source: streams.md 5 and 7; spec
M9 to M18.
"""

from __future__ import annotations

from typing import Any

from onceq.streams.errors import FlightFull, NotRegistered
from onceq.streams.model import asks
from onceq.streams.source import telling
from onceq.streams.source.acts import Act
from onceq.streams.source.sending_epochs import Epochs


class Sending(Epochs):
    """The messages of one life of a source, from its first epoch to its last. See Epochs."""

    def learn(self, ask: asks.Learn) -> asks.Answer:
        """Answer a receiver. Raises FrameRefused for one of another stream."""
        return telling.answered(self.life, ask, self.information())

    def kept(self, bytes_max: int) -> list[bytes]:
        """Return the frames that were sent to receivers and are kept: the last ones, so many bytes.

        None if stores keep them: there a receiver gets what it missed.
        """
        if self.keeping.is_kept or not self.is_sending:
            return []
        return self.spreading.again(bytes_max)

    def not_registered(self) -> NotRegistered:
        """Return the error that nothing can be sent now."""
        return telling.not_registered(self.rest, self.life.accepts)

    def has_room(self, size: int) -> bool:
        """Whether a message of so many bytes can be taken now, or must wait for room in flight.

        Raises NotRegistered, SourceSucceeded or NumberConflict if none can, and TooLarge.
        """
        standing = self.standing
        if standing.ended is not None:
            telling.refuse_if_over(standing.ended, self.life)
        if standing.begun is None or self.is_starved:
            raise self.not_registered()
        return self.keeping.has_room(size)

    def send(self, message: bytes, given: Any = None) -> int:
        """Take a message; return its number, the last one if it takes several.

        given: comes with each event of it. It leaves with `flush`, or `feed` if a block is full.
        Raises as has_room, and FlightFull unless the flight only notifies: nothing was taken.
        """
        return self.take(message, given)[1]

    def take(self, message: bytes, given: Any = None) -> tuple[int, int]:
        """As `send`; return the first and the last number of the message."""
        has_room = self.has_room(len(message))
        if not has_room and self.keeping.blocks:
            raise FlightFull(
                f"{len(self.keeping.flight)} messages are not yet stable, or confirmed: wait, or"
                " raise flight_size"
            )
        return self.keeping.take(message, given, has_room=has_room)

    @property
    def is_due(self) -> bool:
        """Whether a block is full, and was not sent: `feed` sends it."""
        return self.keeping.retention.sealed > self.spreading.published and self.is_sending

    def feed(self, now_s: float) -> list[Act]:
        """Send the blocks that are full."""
        self._now_s = now_s
        return list(self.spreading.feed(self._now_s)) if self.is_sending else []

    def flush(self, now_s: float) -> list[Act]:
        """Send what was taken."""
        self.retention.seal()
        return self.feed(now_s)

    @property
    def is_untold(self) -> bool:
        """Whether receivers were not told of all that is stable: a tick soon tells it."""
        return self.is_sending and self.spreading.told < self.stable
