"""How an Op is said in SQL: a statement, its parameters, and what its rows mean.

Used by the bindings, `binding.py` and `spark_binding.py`, and by the drivers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceq.model import ops

Row = tuple[Any, ...]

BINARY_ARRAYS = frozenset({"bytea[]", "bigint[]"})
"""Lists that may be long: psycopg would escape and send them as text."""


def _no_bells(_: Sequence[Row]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How an Op is said in SQL.

    sql: with {schema}. and one %s a parameter. parameters: (field of the Op, SQL type).
    decode: rows to answer. writes: a lost connection leaves its effect unknown. bells: rows to the
    bells to ring once what the statement did has committed.
    """

    sql: str
    parameters: tuple[tuple[str, str], ...]
    decode: Callable[[Sequence[Row]], Any]
    writes: bool = True
    bells: Callable[[Sequence[Row]], list[str]] = _no_bells
    getters: tuple[Callable[[Any], Any], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        getters = tuple(_getter(name, kind) for name, kind in self.parameters)
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


def _getter(name: str, kind: str) -> Callable[[Any], Any]:
    """Returns what takes a field out of an Op, as psycopg wants it for this SQL type."""
    get = attrgetter(name)
    if kind == "jsonb":
        return lambda op: None if get(op) is None else Jsonb(get(op))
    return (lambda op: get(op).value) if name == "charge" else get


def call(
    function: str,
    parameters: str,
    decode: Callable[[Sequence[Row]], Any],
    columns: str = "*",
    *,
    writes: bool = True,
    bells: Callable[[Sequence[Row]], list[str]] = _no_bells,
) -> Binding:
    """Returns the binding to a function. parameters: 'field type, field type, ...'."""
    pairs = [part.split(maxsplit=1) for part in parameters.split(",") if part.strip()]
    return Binding(
        sql=f"select {columns} from {{schema}}.{function}({{marks}})",
        parameters=tuple((name, kind) for name, kind in pairs),
        decode=decode,
        writes=writes,
        bells=bells,
    )
