"""How an Op becomes SQL: a statement, its parameters, and what its rows mean.

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
"""Lists that may be long; psycopg would escape them and send them as text."""


def _no_bells(_: Sequence[Row]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """How an Op becomes SQL.

    sql: with {schema}. and one %s for each parameter. parameters: (field of the Op, SQL type).
    decode: from rows to the answer. bells: from rows to the bells to ring once the statement's
    work has committed.
    """

    sql: str
    parameters: tuple[tuple[str, str], ...]
    decode: Callable[[Sequence[Row]], Any]
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
    """Returns a function that takes a field from an Op in psycopg's form for this SQL type."""
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
    bells: Callable[[Sequence[Row]], list[str]] = _no_bells,
) -> Binding:
    """Returns the binding to a function. parameters: 'field type, field type, ...'."""
    pairs = [part.split(maxsplit=1) for part in parameters.split(",") if part.strip()]
    return Binding(
        sql=f"select {columns} from {{schema}}.{function}({{marks}})",
        parameters=tuple((name, kind) for name, kind in pairs),
        decode=decode,
        bells=bells,
    )
