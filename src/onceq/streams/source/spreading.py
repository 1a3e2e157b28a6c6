"""How a source sends to receivers and stores at once, and tells them what is stable. Pure.

Whoever gets a block in an epoch gets the same bytes. Source: streams.md 7; spec M9.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.source import acts, telling
from onceq.streams.source.acts import Act
from onceq.streams.source.feeding import Feeding
from onceq.streams.source.keeping import Keeping
from onceq.streams.source.retaining import Block


class Spreading:
    """published: all before was sent to receivers; told: they know that all before is stable."""

    def __init__(self, keeping: Keeping, feeding: Feeding) -> None:
        self.published = self.told = 0
        self._keeping = keeping
        self._feeding = feeding
        self._epoch = 0

    def begin(self, epoch: int, end: int) -> None:
        """Begin an epoch. end: of the log that it goes on with."""
        self._epoch, self.published, self.told = epoch, end, end

    def feed(self, now_s: float) -> Iterator[Act]:
        """Send to receivers and stores what was not yet sent to them."""
        keeping = self._keeping
        yield from acts.told(keeping.told())
        for block in keeping.retention.blocks(self.published):
            keeping.sent(block)
            yield acts.Publish(data=self._framed(block))
            self.published, self.told = block.end, max(self.told, block.told)
        for store, fed, block in self._feeding.blocks(keeping.retention):
            data = self._framed(block)
            fed.send(block, len(data), now_s)
            fed.told = max(fed.told, block.told)
            yield acts.Send(store=store, data=data)

    def again(self, bytes_max: int) -> list[bytes]:
        """Return the frames that were published and are kept, as many of the last as have room."""
        retention = self._keeping.retention
        blocks = [one for one in retention.blocks(retention.begin) if one.end <= self.published]
        data: list[bytes] = []
        for block in reversed(blocks):
            data.append(self._framed(block))
            bytes_max -= len(data[-1])
            if bytes_max < 0:
                data.pop()
                break
        return data[::-1]

    def _framed(self, block: Block) -> bytes:
        keeping = self._keeping
        return block.framed(stream=keeping.stream, epoch=self._epoch, stable=keeping.stable)

    def tell_stable(self, *, is_last: bool = False) -> Iterator[Act]:
        """Tell what is stable to who was not told by a frame. is_last: nobody else tells it."""
        stable = self._keeping.stable
        for store, fed in self._feeding.untold(stable, is_last=is_last):
            yield acts.Send(store=store, data=self._empty(fed.sent))
        if self.told < stable:
            self.told = stable
            yield acts.Publish(data=self._empty(self.published))

    def _empty(self, number: int) -> bytes:
        keeping = self._keeping
        return telling.empty_frame(keeping.stream, self._epoch, number, keeping.stable)
