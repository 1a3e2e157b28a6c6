"""The Ops of receivers beside those of all streams. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from onceq.model.ops.base import Op
from onceq.streams.model import asks, events


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a receiver is shown it. epoch and number are its identity in the stream.

    retransmitted: it came from a store, and an earlier life may have seen it. parts: how many
    numbers it takes, of which `number` is the last.
    """

    stream: int
    epoch: int
    number: int
    body: bytes
    retransmitted: bool = False
    parts: int = 1

    @property
    def first(self) -> int:
        """The first of its numbers."""
        return self.number - self.parts + 1


Shown: TypeAlias = Message | events.Loss | events.RolledBack


class ReadStore(Op["tuple[asks.Answer, tuple[bytes, ...]] | None"]):
    """Read a range from a store; answer what it says, and the frames; None: not in time."""

    store: str
    ask: asks.Read
    within_s: float


class Show(Op[None]):
    """Show the application what came, in order."""

    shown: tuple[Shown, ...]
