"""Op, the value that names an operation, and Program, the generator that yields them. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast, dataclass_transform

import msgspec

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Kind(msgspec.StructMeta):
    """Makes each class of Ops a frozen struct, whose fields are given by name."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
        return super().__new__(cls, name, bases, members, frozen=True, kw_only=True)


class Op(msgspec.Struct, Generic[T], metaclass=_Kind):
    """An operation whose answer is a T: a subclass with fields, frozen, given by name."""

    def __iter__(self) -> Generator[Op[Any], Any, T]:
        return cast("T", (yield self))


Program: TypeAlias = Generator[Op[Any], Any, T]
