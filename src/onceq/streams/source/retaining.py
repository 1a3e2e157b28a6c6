"""What a source keeps of what it sent, to send it again: blocks of messages in a row. Pure.

A block is what one frame has. It keeps its bounds for ever: stores that get it in one epoch, and
those that get it again in the next, have the same frames. Only a number that is given up splits
its block, when an epoch begins that sends it as void.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from onceq.errors import TooLarge
from onceq.streams.model.frames import (
    COUNT_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    Frame,
    FrameKind,
    body_of,
    encode,
)

BLOCK_BYTES: Final = 64 << 10
"""A block with so much leaves at once."""
LENGTH_BYTES: Final = 4
MESSAGE_BYTES_MAX: Final = FRAME_BYTES_MAX - HEADER_BYTES - LENGTH_BYTES


class Block(msgspec.Struct, kw_only=True):
    """Messages from `number` on. data: its frame in the epoch in which it was sent last.

    told: what that frame says to be stable.
    """

    number: int
    messages: tuple[bytes, ...]
    is_void: bool = False
    epoch: int = 0
    data: bytes = b""
    told: int = 0

    @property
    def end(self) -> int:
        """The number after its last message."""
        return self.number + len(self.messages)

    @property
    def size(self) -> int:
        """The bytes of its messages, with their lengths."""
        return sum(len(one) + LENGTH_BYTES for one in self.messages)

    def framed(self, *, stream: int, epoch: int, stable: int) -> bytes:
        """Return its frame, the same whoever gets it in this epoch."""
        if self.epoch != epoch or not self.data:
            frame = Frame(
                kind=FrameKind.VOID if self.is_void else FrameKind.MESSAGES,
                stream=stream,
                epoch=epoch,
                number=self.number,
                stable=stable,
                count=len(self.messages),
                body=b"" if self.is_void else body_of(self.messages),
            )
            self.epoch, self.data, self.told = epoch, encode(frame), stable
        return self.data


class Retention:
    """The blocks that may have to be sent again, and the messages that are in none yet.

    begin: what lies before was released, or never sent here.
    """

    def __init__(self, begin: int = 0) -> None:
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

    def add(self, message: bytes) -> Block | None:
        """Take a message; return the block that is sealed, if it does not fit into that.

        Raises TooLarge if it fits into no frame.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise TooLarge(
                f"a message of {len(message)} bytes; at most {MESSAGE_BYTES_MAX} are sent as one"
            )
        size = len(message) + LENGTH_BYTES
        is_over = self._open_bytes + size > BLOCK_BYTES or len(self._open) >= COUNT_MAX
        sealed = self.seal() if is_over else None
        self._open.append(message)
        self._open_bytes += size
        self.bytes += size
        return sealed

    def seal(self) -> Block | None:
        """Make a block of the messages that are in none; None: there are none."""
        if not self._open:
            return None
        block = Block(number=self.sealed, messages=tuple(self._open))
        self._blocks[block.number] = block
        self.sealed, self._open, self._open_bytes = block.end, [], 0
        return block

    def at(self, number: int) -> Block | None:
        """Return the block that begins with a number; None: it was released, or is not sealed."""
        return self._blocks.get(number)

    def blocks(self, begin: int) -> Iterator[Block]:
        """Yield the sealed blocks from a number on."""
        block = self._blocks.get(begin)
        while block is not None:
            yield block
            block = self._blocks.get(block.end)

    def release(self, below: int) -> None:
        """Drop the blocks that end before a number, or with it."""
        while self._blocks:
            block = next(iter(self._blocks.values()))
            if block.end > below:
                return
            self._blocks.popitem(last=False)
            self.begin = block.end
            self.bytes -= block.size

    def void(self, numbers: Collection[int]) -> None:
        """Give up numbers that were never in the log of an epoch which goes on."""
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
            yield Block(number=begin, messages=messages)
        yield Block(number=number, messages=(b"",), is_void=True)
        begin = number + 1
    if begin < block.end:
        yield Block(number=begin, messages=block.messages[begin - block.number :])
