"""Inventing asks, answers, frames and what is nearly one. All by chance, and the chance by a seed.

A value is invented by its type, as msgspec tells it: so whatever is added to asks or answers is
invented too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from msgspec import inspect

from onceq.streams.model import asks, encoding
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode

STREAMS: Final = (7, 7, 7, 8, 9)
LIMITS: Final = (0, 1, 1 << 16, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""Numbers at which something may overflow."""
TEXTS: Final = ("", "bars", "a", "127.0.0.1:7401", "session 5", "\u00e9" * 40, "x" * 300)
MANY_MAX: Final = 3
MOSTLY: Final = 0.8


class Invention:
    """What is invented next."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._by: dict[type[Any], Callable[[Any], Any]] = {
            inspect.IntType: lambda _: self.number(),
            inspect.BoolType: lambda _: self.chance.random() < 0.5,
            inspect.NoneType: lambda _: None,
            inspect.StrType: self._text,
            inspect.EnumType: lambda one: self.chance.choice(list(one.cls)),
            inspect.UnionType: lambda one: self._of(self.chance.choice(one.types)),
            inspect.TupleType: lambda one: tuple(self._of(each) for each in one.item_types),
            inspect.VarTupleType: lambda one: tuple(self._many(one.item_type)),
            inspect.FrozenSetType: lambda one: frozenset(self._many(one.item_type)),
            inspect.DictType: self._mapping,
            inspect.StructType: self._struct,
        }

    def number(self) -> int:
        """Return a number: a small one, or one at a limit."""
        return (
            self.chance.choice(LIMITS) if self.chance.random() < 0.1 else self.chance.randrange(12)
        )

    def value(self, kind: Any) -> Any:
        """Return a value of a type."""
        return self._of(inspect.type_info(kind))

    def _of(self, kind: Any) -> Any:
        return self._by[type(kind)](kind)

    def _many(self, kind: Any) -> list[Any]:
        return [self._of(kind) for _ in range(self.chance.randrange(MANY_MAX + 1))]

    def _text(self, kind: inspect.StrType) -> str:
        return self.chance.choice(TEXTS)[: kind.max_length]

    def _mapping(self, kind: inspect.DictType) -> dict[Any, Any]:
        return {self._of(kind.key_type): self._of(kind.value_type) for _ in range(2)}

    def _struct(self, kind: inspect.StructType) -> Any:
        fields = {field.name: self._of(field.type) for field in kind.fields}
        if "stream" in fields:
            fields["stream"] = self.chance.choice(STREAMS)
        if "lost" in fields and self.chance.random() < MOSTLY:
            fields["lost"] = 0  # else a receiver takes nothing of it
        return kind.cls(**fields)

    # what is sent

    def ask(self) -> asks.Ask:
        """Return an ask; often one that a store takes."""
        made: asks.Ask = self.value(self.chance.choice(ASKS))
        return made

    def answer(self) -> asks.Answer:
        """Return an answer."""
        made: asks.Answer = self.value(self.chance.choice(ANSWERS))
        return made

    def frame(self) -> bytes:
        """Return a frame of messages, or of one of the other kinds, with a CRC that is right."""
        chance = self.chance
        messages = [chance.randbytes(chance.randrange(8)) for _ in range(chance.randrange(4))]
        is_right = chance.random() < 0.8
        body = body_of(messages) if is_right else chance.randbytes(chance.randrange(30))
        count = len(messages) if is_right else chance.choice((0, 1, 5, 65_535))
        return encode(
            Frame(
                kind=chance.choice(list(FrameKind)),
                stream=chance.choice(STREAMS),
                epoch=self.number() % (1 << 32),
                number=self.number(),
                stable=self.number(),
                count=count,
                body=body,
            )
        )

    def harmed(self, data: bytes) -> bytes:
        """Return a frame with some bits flipped, all within what its CRC covers."""
        made = bytearray(data)
        for at in self.chance.sample(range(len(made) * 8), self.chance.randint(1, 3)):
            made[at // 8] ^= 1 << at % 8
        return bytes(made)

    def reworded(self, tag: int) -> bytes:
        """Return an ask whose body was changed before its CRC was made."""
        body = self.harmed(encoding.packed(self.ask()))
        kind = FrameKind.ASK
        return encode(Frame(kind=kind, stream=7, epoch=0, number=tag, stable=0, body=body))

    def noise(self) -> bytes:
        """Return bytes that are nothing; sometimes they begin as a frame does."""
        rest = self.chance.randbytes(self.chance.randrange(200))
        head = self.frame()[: self.chance.randrange(44)]
        return head + rest if self.chance.random() < 0.5 else rest


def _members(union: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = union.__args__
    return found


ASKS: Final = _members(asks.Ask)
ANSWERS: Final = _members(asks.Answer)
