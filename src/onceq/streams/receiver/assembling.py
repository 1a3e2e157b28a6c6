"""How a life of a receiver shows messages that take several numbers: each as one, or none of it.

Pure. What is kept of a message whose rest has not come is neither shown nor acknowledged. When a
later epoch cuts a message, all of it comes again, from its first number on. Source: spec M11.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.model.events import Loss, WhyLost
from onceq.streams.model.fragments import (
    ABANDONS,
    MESSAGE_BYTES_MAX,
    Joined,
    Part,
    Parts,
    part_of,
)
from onceq.streams.model.frames import Frame
from onceq.streams.receiver.ops import Message, Shown


class Assembling:
    """The parts of one message that have come, and where those lie that were shown."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._parts = Parts()
        self._why = WhyLost.SKIPPED
        self._joined: list[tuple[int, int]] = []

    @property
    def first(self) -> int | None:
        """The first number of what is kept; None: nothing is."""
        return self._parts.first

    def is_plain(self) -> bool:
        """Whether what comes without flags is shown as it is; note that it comes now."""
        self._why = WhyLost.SKIPPED
        return self._parts.first is None

    def came(self, frame: Frame, number: int, body: bytes, *, is_again: bool) -> Iterator[Shown]:
        """Take what a frame has for a number; yield what is to be shown."""
        part = part_of(frame.flags, number - frame.number, frame.count)
        if part in ABANDONS or self._parts.size + len(body) > MESSAGE_BYTES_MAX:
            yield from self._abandon(number)
        made = self._parts.take(number, body, part, retransmitted=is_again)
        if isinstance(made, Joined):
            yield self._message(frame.epoch, made)
        elif self._parts.first is None:
            yield Loss(stream=self._stream, first=number, last=number, why=self._why)
        if part in {Part.WHOLE, Part.LAST}:
            self._why = WhyLost.SKIPPED

    def _abandon(self, number: int) -> Iterator[Shown]:
        first = self._parts.drop()
        if first is not None:
            why = WhyLost.UNFINISHED
            yield Loss(stream=self._stream, first=first, last=number - 1, why=why)

    def _message(self, epoch: int, one: Joined) -> Message:
        if one.first < one.last:
            self._joined.append((one.first, one.last + 1))
        return Message(
            stream=self._stream,
            epoch=epoch,
            number=one.last,
            body=one.body,
            retransmitted=one.retransmitted,
            parts=one.last - one.first + 1,
        )

    def lost(self, first: int, why: WhyLost) -> int:
        """Note that what comes next is lost, from a number on; return from where on all is.

        That is where the message began of which parts are kept: they are left out, too.
        """
        self._why = why
        kept = self._parts.drop()
        return first if kept is None else kept

    def back(self, number: int, end: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Go back to a number, or to the beginning of the message that it is within.

        Returns where that is, and what was kept, and not shown. end: behind the last that came.
        """
        kept = self._parts.drop()
        unseen = () if kept is None else ((kept, end),)
        within = (first for first, below in (*self._joined, *unseen) if first < number < below)
        begin = next(within, number)
        self._joined = [one for one in self._joined if one[1] <= begin]
        return begin, unseen

    def forget(self, stable: int) -> None:
        """Forget where messages lie that no epoch cuts any more."""
        self._joined = [one for one in self._joined if one[1] > stable]
