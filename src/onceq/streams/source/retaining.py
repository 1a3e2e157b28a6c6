"""What a source keeps of what it sent, to send it again: blocks of messages in a row. Pure.

A block is what one frame has. It keeps its bounds for ever: stores that get it in one epoch, and
those that get it again in the next, have the same frames. Only a number that is given up splits
its block, when an epoch begins that sends it as void. A fragment is alone in its block. Void
numbers have no messages, and cost no bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from onceq.errors import InvalidValue
from onceq.streams.model.fragments import CONTINUED, CONTINUES, FRAGMENT_BYTES_MAX, split
from onceq.streams.model.frames import (
    COUNT_MAX,
    LENGTH_BYTES,
    Frame,
    FrameKind,
    body_of,
    encode,
)

BLOCK_BYTES: Final = 64 << 10
"""A block with so much leaves at once."""


class Block(msgspec.Struct, kw_only=True):
    """Messages from `number` on. data: its frame in the epoch in which it was sent last.

    voids: so many numbers it has that are void; then it has no messages. told: what that frame says
    to be stable. flags: see `fragments`. since_s: when it was first sent; None: not yet.
    """

    number: int
    messages: tuple[bytes, ...] = ()
    voids: int = 0
    flags: int = 0
    since_s: float | None = None
    epoch: int = 0
    data: bytes = b""
    told: int = 0

    @property
    def end(self) -> int:
        """The number after its last message."""
        return self.number + len(self.messages) + self.voids

    @property
    def size(self) -> int:
        """The bytes of its messages, with their lengths."""
        return sum(map(len, self.messages)) + LENGTH_BYTES * len(self.messages)

    def framed(self, *, stream: int, epoch: int, stable: int) -> bytes:
        """Return its frame, the same whoever gets it in this epoch."""
        if self.epoch != epoch or not self.data:
            frame = Frame(
                kind=FrameKind.VOID if self.voids else FrameKind.MESSAGES,
                stream=stream,
                epoch=epoch,
                number=self.number,
                stable=stable,
                count=len(self.messages) + self.voids,
                flags=self.flags,
                body=body_of(self.messages),
            )
            self.epoch, self.data, self.told = epoch, encode(frame), stable
        return self.data


class Retention:
    """The blocks that may have to be sent again, and the messages that are in none yet.

    begin: what lies before was released, or never sent here. bytes: that are kept, with the lengths
    of messages. fragment_size: what is larger takes several numbers.
    """

    def __init__(self, begin: int = 0, *, fragment_size: int = FRAGMENT_BYTES_MAX) -> None:
        if not 0 < fragment_size <= FRAGMENT_BYTES_MAX:
            raise InvalidValue(
                f"fragment_size is {fragment_size}: give 1 to {FRAGMENT_BYTES_MAX} bytes"
            )
        self.fragment_size = fragment_size
        self.begin = begin
        self.bytes = 0
        self.sealed = begin
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._open: list[bytes] = []
        self._open_bytes = 0

    @property
    def next(self) -> int:
        """The number of the next message."""
        return self.sealed + len(self._open)

    def begin_at(self, begin: int, voids_below: int = 0) -> None:
        """Begin with a number; nothing was taken yet. voids_below: up to there all is void."""
        self.begin = self.sealed = begin
        while self.sealed < voids_below:
            self._keep(Block(number=self.sealed, voids=min(voids_below - self.sealed, COUNT_MAX)))

    def add(self, message: bytes) -> int:
        """Take a message that fits into a fragment; return its number.

        What is open is sealed if it does not fit.
        """
        size, count = len(message) + LENGTH_BYTES, len(self._open)
        if self._open_bytes + size > BLOCK_BYTES or count >= COUNT_MAX:
            self.seal()
            count = 0
        self._open.append(message)
        self._open_bytes += size
        self.bytes += size
        return self.sealed + count

    def add_parts(self, message: bytes) -> list[int]:
        """Take a larger message, each fragment in a block; return their sizes."""
        parts = list(split(message, self.fragment_size))
        self.seal()
        for part, flags in parts:
            self._keep(Block(number=self.sealed, messages=(part,), flags=flags))
            self.bytes += len(part) + LENGTH_BYTES
        return [len(part) for part, _ in parts]

    def _keep(self, block: Block) -> None:
        self._blocks[block.number] = block
        self.sealed = block.end

    def seal(self) -> None:
        """Make a block of the messages that are in none, if there are any."""
        if self._open:
            self._keep(Block(number=self.sealed, messages=tuple(self._open)))
            self._open, self._open_bytes = [], 0

    def whole(self, number: int) -> range:
        """Return the numbers of the message that has this one, as far as they are kept."""
        first, last = number, number
        while (block := self._blocks.get(first)) and block.flags & CONTINUES:
            first -= 1
        while (block := self._blocks.get(last)) and block.flags & CONTINUED:
            last += 1
        return range(max(first, self.begin), last + 1)

    def at(self, number: int) -> Block | None:
        """Return the block that begins with a number; None: it was released, or is not sealed."""
        return self._blocks.get(number)

    def blocks(self, begin: int) -> Iterator[Block]:
        """Yield the sealed blocks from a number on."""
        block = self._blocks.get(begin)
        while block is not None:
            yield block
            block = self._blocks.get(block.end)

    def release(self, below: int, bytes_min: int = 0) -> None:
        """Drop the blocks that end before a number, or with it, while more bytes are kept."""
        while self._blocks and self.bytes > bytes_min:
            block = next(iter(self._blocks.values()))
            if block.end > below:
                return
            self._blocks.popitem(last=False)
            self.begin = block.end
            self.bytes -= block.size

    def void(self, numbers: Collection[int]) -> None:
        """Give up numbers that were never in the log of an epoch which goes on."""
        if not numbers:
            return
        blocks = list(self._blocks.values())
        self._blocks.clear()
        for block in blocks:
            touched = [one for one in range(block.number, block.end) if one in numbers]
            for part in _split(block, touched) if touched else (block,):
                self._blocks[part.number] = part
        self.bytes = self._open_bytes + sum(one.size for one in self._blocks.values())


def _split(block: Block, numbers: Collection[int]) -> Iterator[Block]:
    """Yield the parts of a block, of which some numbers are void."""
    begin = block.number
    for number in numbers:
        if begin < number:
            messages = block.messages[begin - block.number : number - block.number]
            yield Block(number=begin, messages=messages, since_s=block.since_s)
        yield Block(number=number, voids=1)
        begin = number + 1
    if begin < block.end:
        messages = block.messages[begin - block.number :]
        yield Block(number=begin, messages=messages, since_s=block.since_s)
