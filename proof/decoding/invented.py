"""Invented types of requests, and bodies for them: most of the type, many with one thing wrong."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import random
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

__all__ = ["Invented", "invent"]

Say: TypeAlias = Callable[[], str]
"""Writes a value of a type as JSON."""
ODD: Final = (
    *('"oops"', '"1"', '""', "1.5", "1.0", "1e3", "-0.0", "1e400", "null", "true", "[]", "{}"),
    *('[{"a":1}]', '"nan"', '"NaN"', '"-Infinity"', '"\\ud800"', '"\\u0000"', '"2026-13-01"'),
    *(str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), str(2**64), "1" * 400),
    *('"0.0000000000000000001"', '"123456789012345678901"', '"1E-19"', "1e20", "1.10", "00"),
    *('"0001-01-01T00:00:00+09:00"', '"9999-12-31T23:59:59-09:00"', '"2026-01-01"'),
    *('"2026-01-01T10:00:00"', '"2026-01-01T10:00:00.1234567+02:00"', '"AAAA"', '"A"'),
    *('"6ba7b8109dad11d180b400c04fd430c8"', '"red"', '"blue"', "7", "-", "[1,]", '{"a":', "'a'"),
)
"""Replacements for a value: of another type, beyond a limit, at one, or not JSON."""
DAMAGE: Final = (b"", b"\xff", b" ", b"}", b'{"', b"\xef\xbb\xbf", b"\x00")


class Colour(enum.Enum):
    """An enumeration of texts."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    """An enumeration of whole numbers."""

    SMALL = 1
    LARGE = 7


class Pair(NamedTuple):
    """A type that Spark does not have."""

    left: int
    right: str


@dataclass(frozen=True, slots=True)
class Invented:
    """A type, and a function that makes a body for it. texts: whether all its values are text."""

    kind: Any
    body: Callable[[bool], bytes]


@dataclass(slots=True)
class _Inventor:
    """odd: how likely a value is not what its type says; 0 in most bodies."""

    chance: random.Random
    odd: float = 0.0
    texts: bool = False
    number: int = 0

    def said(self, say: Say) -> Say:
        """Returns what says a value, or at times another; where all is text, as text."""

        def one() -> str:
            text = self.chance.choice(ODD) if self.chance.random() < self.odd else say()
            if self.texts and text[:1] not in {'"', "{", "["}:
                return msgspec.json.encode(text).decode()
            return text

        return one

    def kind(self, depth: int) -> tuple[Any, Say]:
        """Returns a type and what says a value of it."""
        makers = [self.simple] * 5
        if depth:
            makers += [self.listed, self.mapped, self.optional, self.struct, self.odd_kind]
        kind, say = self.chance.choice(makers)(depth)
        return kind, self.said(say)

    def simple(self, depth: int) -> tuple[Any, Say]:
        del depth  # as the others have it
        c = self.chance
        some: list[tuple[Any, Say]] = [
            (int, lambda: str(c.choice([0, -1, 7, 2**63 - 1, -(2**63), c.getrandbits(40)]))),
            (str, lambda: _json("".join(c.choices(string.printable + "é☃𝄞", k=c.randrange(9))))),
            (float, lambda: c.choice(["0", "-1.5", "1e308", "5e-324", "0.1", str(c.random())])),
            (bool, lambda: c.choice(["true", "false"])),
            (bytes, lambda: _json(base64.b64encode(c.randbytes(c.randrange(9))).decode())),
            (dt.date, lambda: _json(_day(c).isoformat())),
            (dt.datetime, lambda: _json(_moment(c))),
            (Decimal, lambda: _json(_decimal(c))),
            (uuid.UUID, lambda: _json(str(uuid.UUID(int=c.getrandbits(128))))),
            (Colour, lambda: c.choice(['"red"', '"blue"'])),
            (Size, lambda: c.choice(["1", "7"])),
            (Literal["red", "green"], lambda: c.choice(['"red"', '"green"'])),
        ]
        return c.choice(some)

    def listed(self, depth: int) -> tuple[Any, Say]:
        shapes: list[Any] = [list, set, frozenset, tuple]
        shape = self.chance.choice(shapes)
        kind, say = self.simple(0) if shape in (set, frozenset) else self.kind(depth - 1)
        item: Any = (kind, ...) if shape is tuple else kind
        return _of(
            shape, item
        ), lambda: f"[{','.join(say() for _ in range(self.chance.randrange(4)))}]"

    def mapped(self, depth: int) -> tuple[Any, Say]:
        kind, say = self.kind(depth - 1)
        names = ["a", "b b", "ü", ""]
        return _of(dict, (str, kind)), lambda: _object(
            {_json(name): say() for name in self.chance.sample(names, self.chance.randrange(4))}
        )

    def optional(self, depth: int) -> tuple[Any, Say]:
        kind, say = self.kind(depth - 1)
        return kind | None, lambda: "null" if self.chance.random() < 0.3 else say()

    def odd_kind(self, depth: int) -> tuple[Any, Say]:
        """Returns what Spark has no type for: it is decoded nevertheless."""
        some: list[tuple[Any, Say]] = [
            (int | str, lambda: self.chance.choice(["1", '"a"'])),
            (Any, lambda: self.chance.choice(ODD[:12])),
            (tuple[int, str], lambda: '[1,"a"]'),
            (Pair, lambda: '[1,"a"]'),
        ]
        return self.chance.choice(some) if self.chance.random() < 0.2 else self.simple(depth)

    def struct(self, depth: int) -> tuple[Any, Say]:
        """Returns an object type: a Struct, a dataclass or a TypedDict."""
        fields = [(f"f{n}", *self.kind(depth - 1)) for n in range(self.chance.randrange(1, 5))]
        may_miss = [self.chance.random() < 0.3 for _ in fields]
        shape = self.chance.choice([self._struct, self._dataclass, self._typed_dict])
        kind, said_as = shape([field[:2] for field in fields], may_miss)
        says = [
            (said_as(name), say, miss)
            for (name, _, say), miss in zip(fields, may_miss, strict=True)
        ]

        def say() -> str:
            there = {
                _json(name): one() for name, one, miss in says if not (miss and self._tossed())
            }
            if self.odd and self._tossed() and self._tossed() and there:
                there.pop(self.chance.choice(list(there)))
            if self.odd and self._tossed() and self._tossed():
                there['"unknown"'] = self.chance.choice(ODD)
            return _object(there)

        return kind, say

    def _tossed(self) -> bool:
        return self.chance.random() < 0.5

    def _name(self) -> str:
        self.number += 1
        return f"Kind{self.number}"

    def _struct(self, fields: list[tuple[str, Any]], may_miss: list[bool]) -> tuple[Any, Any]:
        sorted_fields: list[Any] = []
        for (name, kind), miss in zip(fields, may_miss, strict=True):
            default = self.chance.choice([None, msgspec.UNSET])
            other = None if default is None else msgspec.UnsetType
            sorted_fields.append((name, kind | other, default) if miss else (name, kind))
        is_upper = self._tossed()
        made = msgspec.defstruct(
            self._name(),
            sorted_fields,
            kw_only=True,
            rename="upper" if is_upper else None,
            forbid_unknown_fields=self._tossed(),
        )
        return made, str.upper if is_upper else str

    def _dataclass(self, fields: list[tuple[str, Any]], may_miss: list[bool]) -> tuple[Any, Any]:
        some: list[Any] = [
            (name, kind | None, dataclasses.field(default=None)) if miss else (name, kind)
            for (name, kind), miss in zip(fields, may_miss, strict=True)
        ]
        return dataclasses.make_dataclass(self._name(), some, kw_only=True), str

    def _typed_dict(self, fields: list[tuple[str, Any]], may_miss: list[bool]) -> tuple[Any, Any]:
        made: Any = TypedDict
        return made(self._name(), dict(fields), total=not all(may_miss)), str


def invent(chance: random.Random) -> Invented:
    """Returns a type of requests, an object in most cases, and what makes bodies for it."""
    inventor = _Inventor(chance)
    make = inventor.struct if chance.random() < 0.95 else inventor.kind
    kind, say = make(2)

    def body(texts: bool) -> bytes:  # noqa: FBT001 # a callback
        inventor.texts = texts
        inventor.odd = chance.choice([0.0, 0.0, 0.05, 0.2])
        found = say().encode("utf-8", "surrogatepass")
        if chance.random() < 0.03:
            place = chance.randrange(len(found) + 1)
            found = found[:place] + chance.choice(DAMAGE) + found[place + chance.randrange(2) :]
        return found

    return Invented(kind, body)


def _of(shape: Any, parts: Any) -> Any:
    return shape[parts]


def _json(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _object(fields: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}:{value}" for name, value in fields.items()) + "}"


def _day(chance: random.Random) -> dt.date:
    return dt.date.fromordinal(
        chance.choice([1, dt.date.max.toordinal(), chance.randrange(1, 10**6)])
    )


def _moment(chance: random.Random) -> str:
    moment = dt.datetime.combine(_day(chance), dt.time(chance.randrange(24), 59, 59, 999_999))
    return moment.isoformat() + chance.choice(["", "Z", "+05:30", "-11:00"])


def _decimal(chance: random.Random) -> str:
    digits = "".join(chance.choices(string.digits, k=chance.randrange(1, 20)))
    return f"{chance.choice(['', '-'])}{digits}.{'0' * chance.randrange(17)}{chance.randrange(100)}"
