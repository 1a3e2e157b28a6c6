"""Op, the value that names an operation, and Program, the generator that yields them. Pure."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from types import ModuleType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

import msgspec

T = TypeVar("T")

SmallInt: TypeAlias = Annotated[int, "smallint"]
Integer: TypeAlias = Annotated[int, "integer"]
Oid: TypeAlias = Annotated[int, "oid"]
"""Fields that are not bigint in SQL, as an int otherwise is."""
Unsaid: TypeAlias = Annotated[bool, ""]
"""A field that is for the driver, and not said to SQL."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a registrant, in one of its lives. The next life fences this one.

    In an Op it stands for two parameters of the SQL function.
    """

    registrant_id: Integer
    epoch: int


class _Kind(msgspec.StructMeta):
    """Makes each class of Ops a frozen struct, whose fields are given by name."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        members: dict[str, Any],
        *,
        frozen: bool = True,
        changes: str = "",
        in_doubt: bool | None = None,
    ) -> Any:
        made: Any = super().__new__(cls, name, bases, members, frozen=frozen, kw_only=True)
        made.changes = changes
        made.in_doubt = bool(changes) if in_doubt is None else in_doubt
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Op(msgspec.Struct, Generic[T], frozen=True, metaclass=_Kind):
    """An operation whose answer is a T: a subclass with fields, frozen, given by name.

    Two things are of the class: `class Kill(Op[KillAnswer], changes="a request is killed")`.
    changes: what it does, with a fault point before and one after; empty: it has none. in_doubt:
    whether a lost answer leaves its effect unknown; None: if it has fault points.
    """

    changes: ClassVar[str]
    in_doubt: ClassVar[bool]

    def __iter__(self) -> Generator[Op[Any], Any, T]:
        return cast("T", (yield self))


Program: TypeAlias = Generator[Op[Any], Any, T]


def kinds_of(module: ModuleType) -> Iterator[type[Op[Any]]]:
    """The Ops that a module offers."""
    for one in vars(module).values():
        if isinstance(one, type) and issubclass(one, Op) and one is not Op:
            yield one


def name_of(kind: type[Op[Any]]) -> str:
    """Returns an Op's name in SQL and in the oracle: `read_element` for ReadElement."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
