"""How an Op becomes SQL: a statement, its parameters, and what its rows mean.

Used by the bindings, `binding.py` and `spark_binding.py`, and by the drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from onceq.engine.bind.decoding import answer_of, columns_of, decoder, without_none
from onceq.model.ops.base import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceq.engine.bind.decoding import Row
    from onceq.model import ops

SQL_TYPES: Final = {
    str: "text",
    bytes: "bytea",
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    UUID: "uuid",
    datetime: "timestamptz",
    date: "date",
}
"""Of the types of fields; others say theirs: `Annotated[int, "integer"]`, and an enum is text."""
NOTHING: Final = ""
"""In place of a field: the parameter is null."""
BINARY_ARRAYS = frozenset({"bytea[]", "bigint[]"})
"""Lists that may be long; psycopg would escape them and send them as text."""


def _no_bells(_: Sequence[Row]) -> list[str]:
    return []


def _never(_: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How an Op becomes SQL.

    sql: with {schema}, and {marks} or a %s for each parameter. parameters: (field of the Op, SQL
    type); a field of a value in the Op has a dot, `who.epoch`. decode: from rows to the answer.
    bells: from rows to the bells to ring once the statement's work has committed. optional: values
    in the Op that may be None; all their parameters are null then. plain: another binding, for the
    Ops of which `is_plain` holds.
    """

    sql: str
    parameters: tuple[tuple[str, str], ...]
    decode: Callable[[Sequence[Row]], Any]
    bells: Callable[[Sequence[Row]], list[str]] = _no_bells
    optional: frozenset[str] = frozenset()
    plain: Binding | None = None
    is_plain: Callable[[Any], bool] = _never
    getters: tuple[Callable[[Any], Any], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        getters = tuple(
            _getter(name, kind, optional=name.partition(".")[0] in self.optional)
            for name, kind in self.parameters
        )
        object.__setattr__(self, "getters", getters)

    def text(self, schema: str) -> str:
        """Returns the statement for a repository."""
        marks = ", ".join(
            f"{'%b' if kind in BINARY_ARRAYS else '%s'}::{kind}" for _, kind in self.parameters
        )
        return self.sql.format(schema=schema, marks=marks)

    def arguments(self, op: ops.Op[Any]) -> list[Any]:
        """Returns the Op's fields as parameters."""
        return [get(op) for get in self.getters]


def _getter(name: str, kind: str, *, optional: bool) -> Callable[[Any], Any]:
    """Returns a function that takes a field from an Op in psycopg's form for this SQL type."""
    if name == NOTHING:
        return lambda _: None
    get = attrgetter(name)
    if optional:
        value = attrgetter(name.partition(".")[0])
        return lambda op: None if value(op) is None else get(op)
    if kind == "jsonb":
        return lambda op: None if get(op) is None else Jsonb(get(op))
    return attrgetter(f"{name}.value") if name == "charge" else get


class Special(TypedDict, total=False):
    """What an Op does not say of its binding.

    function: in SQL, if its name is another than the Op's. sql: instead of a call of a function.
    parameters: if they are not the Op's fields. columns, decode, bells: as for `Binding`, if the
    answer's type does not say them. plain, is_plain: as for `Binding`.
    """

    function: str
    sql: str
    parameters: tuple[tuple[str, str], ...]
    columns: str
    decode: Callable[[Sequence[Row]], Any]
    bells: Callable[[Sequence[Row]], list[str]]
    plain: Special
    is_plain: Callable[[Any], bool]


def bind(kind: type[ops.Op[Any]], special: Special) -> Binding:
    """Returns the binding of an Op: by its name, its fields in their order, and its answer."""
    answer = answer_of(kind)
    columns = special.get("columns") or ("*" if "decode" in special else columns_of(answer))
    function = special.get("function") or name_of(kind)
    types = get_type_hints(kind, include_extras=True)
    return Binding(
        sql=special.get("sql") or f"select {columns} from {{schema}}.{function}({{marks}})",
        parameters=special.get("parameters") or tuple(_parameters(kind)),
        optional=frozenset(name for name, of in types.items() if _value_in(of) not in (None, of)),
        decode=special.get("decode") or decoder(answer),
        bells=special.get("bells", _no_bells),
        plain=bind(kind, special["plain"]) if "plain" in special else None,
        is_plain=special.get("is_plain", _never),
    )


def _parameters(kind: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, str]]:
    """The parameters of an Op, or of a value in it: a field that is a value stands for its own."""
    types = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        value = _value_in(types[name])
        if value is not None:
            yield from _parameters(value, f"{path}{name}.")
        elif of := sql_type(types[name]):
            yield path + name, of


def _value_in(of: Any) -> type[msgspec.Struct] | None:
    """Returns the class of a value that stands for several parameters, if a field is one."""
    kind = without_none(of)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def sql_type(of: Any) -> str:
    """Returns the SQL type of a field's type; empty: it is not said. TypeError: it has none."""
    of = without_none(of)
    if get_origin(of) is Annotated:
        return str(get_args(of)[1])
    if get_origin(of) in (dict, Mapping):
        return "jsonb"
    if get_origin(of) is list:
        each = sql_type(get_args(of)[0])
        return each if each == "jsonb" else f"{each}[]"
    if isinstance(of, type) and issubclass(of, Enum):
        return "text"
    if of not in SQL_TYPES:
        raise TypeError(f"{of} has no SQL type")
    return SQL_TYPES[of]
