"""Which answers wait for the disk, and when each may be sent. Pure.

An answer waits for the position behind what it says. Those to asks are sent each; of those to the
frames of a stream on a link, only the last that may be sent, for it covers the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from onceq.streams.model import asks
from onceq.streams.net.wire import TO_FRAMES, answer_frame

Key: TypeAlias = tuple[int, int]
"""A link and a stream."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that waits for a position."""

    position: int
    stream: int
    tag: int
    answer: asks.Answer


class Answers:
    """The answers that wait, by their links. synced: before it, all is on the disk."""

    def __init__(self, synced: int) -> None:
        self.synced = synced
        self._asked: dict[int, deque[Waiting]] = {}
        self._framed: dict[Key, deque[Waiting]] = {}

    def add(self, link: int, one: Waiting) -> Iterator[tuple[int, bytes]]:
        """Take an answer; yield it, with its link, if it waits for nothing."""
        if one.tag == TO_FRAMES:
            waiting = self._framed.setdefault((link, one.stream), deque())
        else:
            waiting = self._asked.setdefault(link, deque())
        if not waiting and one.position <= self.synced:
            yield link, encoded(one)
            return
        if waiting and one.tag == TO_FRAMES and waiting[-1].answer == one.answer:
            return  # it was said, and will be sent
        waiting.append(one)

    def sync(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Note how far all is on the disk; yield what may now be sent, with its link."""
        self.synced = max(self.synced, position)
        for link, waiting in self._asked.items():
            while waiting and waiting[0].position <= self.synced:
                yield link, encoded(waiting.popleft())
        for (link, _), waiting in self._framed.items():
            yield from ((link, encoded(one)) for one in self._last(waiting))

    def _last(self, waiting: deque[Waiting]) -> Iterator[Waiting]:
        """Yield what may be sent of the answers to frames: of several of one kind, the last."""
        last: Waiting | None = None
        while waiting and waiting[0].position <= self.synced:
            one = waiting.popleft()
            if last is not None and type(last.answer) is not type(one.answer):
                yield last
            last = one
        if last is not None:
            yield last

    def forget(self, link: int) -> None:
        """Nobody is there any more to be answered on a link."""
        self._asked.pop(link, None)
        for key in [key for key in self._framed if key[0] == link]:
            del self._framed[key]

    def waiting(self, link: int) -> int:
        """Return how many answers to asks wait on a link."""
        return len(self._asked.get(link, ()))


def encoded(one: Waiting) -> bytes:
    """Return the frame of an answer."""
    return answer_frame(one.stream, one.tag, one.answer)
