"""Op, the value that names an operation, and Program, the generator that yields them. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")


class Op(Generic[T]):
    """An operation whose answer is a T."""

    __slots__ = ()

    def __iter__(self) -> Generator[Op[Any], Any, T]:
        return cast("T", (yield self))


Program: TypeAlias = Generator[Op[Any], Any, T]
