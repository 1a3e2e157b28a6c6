"""Seeded rubbish: values of every kind, at and beyond every limit, and what looks almost right."""

from __future__ import annotations

import math
import random
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

TEXTS = (
    "", " ", "orders", "Orders", "orders.error", "reply-1", "a" * 63, "a" * 64, "é" * 100,
    "é" * 101, "\0", "a\0b", "\n", "\x7f", "\x85", "\ud800", "a\udfff", "\ufeff", "\u202e",
    "\U0010ffff", "😀" * 50,
    "'; drop table onceq.element; --", '"quoted"', "%s", "{0}", "{schema}", "$1", "\\", "\\u0000",
    "..", "../../etc/passwd", "-", "--help", "null", "None", "true", "NaN", "0", "-1", "1e309",
    "9223372036854775808", "2026-02-30", "infinity", "pg_catalog", "public", "a b", "a/b", "a:b",
    "pg_temp", "information_schema", "a" * 41, "a" * 42,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 4, 9, 10, 255, 256, 1000, 1001, 32_767, 32_768, -32_769, 65_536, 2**31 - 1, 2**31,
    -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40,
)  # fmt: skip
FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-320, 1e308, math.inf, -math.inf, math.nan)
TIMES = (
    datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC),  # noqa: DTZ001 # without a zone, on purpose
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))),
    datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=-23))),
)  # fmt: skip
LENGTHS = (0, 1, 2, 41, 42, 63, 64, 199, 200, 201, 1000, 1001, 65_535, 65_536, 65_537)
LARGE = (1_048_575, 1_048_576, 1_048_577)
"""Of a body; rarely, as they take long."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A value of a class that nobody knows."""

    inner: Any = None


class Rubbish:
    """One source of rubbish; a seed is for ever the same.

    legal: whether what was drawn is legal, set before the call is made; None: it is not judged.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.legal: bool | None = None
        self.chance = random.Random(seed)  # a seed makes it repeatable

    def likely(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self.chance.random() < probability

    def text(self) -> str:
        """Returns a text."""
        if self.likely(0.6):
            return self.chance.choice(TEXTS)
        if self.likely(0.1):
            return self.chance.choice("aaé_.\0😀\ud800") * self.chance.choice(LENGTHS)
        count = self.chance.randint(0, 30)
        kinds = (0x7F, 0x2FF, 0xFFFF, 0x10FFFF)
        return "".join(chr(self.chance.randint(0, self.chance.choice(kinds))) for _ in range(count))

    def data(self) -> bytes:
        """Returns bytes."""
        if self.likely(0.002):
            return bytes(self.chance.choice(LARGE))
        if self.likely(0.05):
            return bytes(self.chance.choice(LENGTHS))
        if self.likely(0.3):
            return self.json_text().encode("utf-8", "surrogatepass")
        return self.chance.randbytes(self.chance.randint(0, 40))

    def number(self) -> int:
        """Returns a whole number."""
        return self.chance.choice(NUMBERS)

    def time(self) -> datetime:
        """Returns a time."""
        return self.chance.choice(TIMES)

    def eid(self) -> uuid.UUID:
        """Returns an id of no element."""
        return uuid.UUID(int=self.chance.getrandbits(128))

    def value(self, depth: int = 0) -> Any:
        """Returns a value of any kind."""
        makers: list[Any] = [self.text, self.data, self.number, self.time, self.eid]
        makers += [lambda: self.chance.choice(FLOATS), lambda: None, lambda: self.likely(0.5)]
        makers += [lambda: Odd(1), lambda: Decimal("1e400"), lambda: object]
        if depth < 3:
            makers += [lambda: self.several(depth), lambda: tuple(self.several(depth))]
            makers += [lambda: {self.text(): self.value(depth + 1) for _ in range(2)}]
            makers += [lambda: {1: self.value(depth + 1)}, lambda: {self.text()}]
        if self.likely(0.001):
            return self.nested(self.chance.choice((63, 64, 65, 500, 2000, 100_000)))
        return self.chance.choice(makers)()

    def several(self, depth: int = 0) -> list[Any]:
        """Returns a list of values."""
        return [self.value(depth + 1) for _ in range(self.chance.randint(0, 3))]

    def nested(self, depth: int) -> Any:
        """Returns lists in lists."""
        found: Any = 1
        for _ in range(depth):
            found = [found]
        return found

    def json_text(self) -> str:
        """Returns what is JSON, or almost."""
        depth = self.chance.choice((1, 64, 65, 1000, 3000)) if self.likely(0.05) else 2
        inner = self.chance.choice(('"a"', "1", "null", "NaN", "1e999", '"\\ud800"', "", "{", "\0"))
        opened, closed = self.chance.choice((("[", "]"), ('{"a":', "}")))
        return opened * depth + inner + closed * self.chance.choice((depth, depth, depth - 1))

    def either(self, right: Any, probability: float = 0.5) -> Any:
        """Returns something right with this probability, otherwise rubbish."""
        return right if self.likely(probability) else self.value()

    def sized(self, right: bytes, most: int, probability: float = 0.5) -> Any:
        """Returns bytes just below, at or above a limit, now and then; or as `either`."""
        if self.likely(0.05):
            return bytes(most + self.chance.choice((-1, 0, 1)))
        return self.either(right, probability)

    def keywords(self, likely: dict[str, Any], probability: float = 0.5) -> dict[str, Any]:
        """Returns some keywords, each with what is right or with rubbish."""
        return {
            name: self.either(right, probability)
            for name, right in likely.items()
            if self.likely(0.4)
        }
