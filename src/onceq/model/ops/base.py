"""Op, the value that names an operation, and Program, the generator that yields them. Pure."""

from __future__ import annotations

from collections.abc import Generator
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
"""Fields that are no bigint in SQL."""
Unsaid: TypeAlias = Annotated[bool, ""]
"""A field that is for the driver, and not said to SQL."""


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

    changes: what it does that others can see; it has a fault point before and one after. Empty:
    nothing. in_doubt: whether a lost answer leaves its effect unknown; None: if it changes
    anything. Both are of the class: `class Kill(Op[KillAnswer], changes="a request is killed")`.
    """

    changes: ClassVar[str]
    in_doubt: ClassVar[bool]

    def __iter__(self) -> Generator[Op[Any], Any, T]:
        return cast("T", (yield self))


Program: TypeAlias = Generator[Op[Any], Any, T]
