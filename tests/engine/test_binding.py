"""Every row of the binding tables fits the SQL function that it names, to the type."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from onceq.engine.bind.binding import BINDINGS
from onceq.engine.bind.spark_binding import ARCHIVE_BINDINGS, SPARK_BINDINGS
from onceq.engine.bind.statement import NOTHING, Binding
from onceq.engine.perform.driver import PostgresDriver
from onceq.engine.schema.migrate import apply_with
from onceq.model import ops, spark_ops
from tests.parts import driving, plain, rows

if TYPE_CHECKING:
    from types import ModuleType


ALL = {**BINDINGS, **SPARK_BINDINGS, **ARCHIVE_BINDINGS}
FORMER = {"create_queue": 4, "alter_queue": 3}
"""How many former signatures of a function are kept for old code."""


def types_of(row: Binding) -> list[str]:
    """Returns the types of a row's parameters, as PostgreSQL calls them."""
    long = {"timestamptz": "timestamp with time zone"}
    return [long.get(name, name) for _, name in row.parameters]


@pytest.fixture(scope="module")
def binding_schema(conninfo: str) -> str:
    """A repository for all of these tests: they change nothing in it."""
    apply_with(conninfo, "t_binding")
    return "t_binding"


each = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)


def op_classes(module: ModuleType) -> set[type[ops.Op[Any]]]:
    """Returns the Ops that a module offers."""
    classes = vars(module).values()
    return {
        one
        for one in classes
        if inspect.isclass(one) and issubclass(one, ops.Op) and one is not ops.Op
    }


@each
def test_a_binding_prepares_with_its_own_types(
    kind: type[ops.Op[Any]], conninfo: str, binding_schema: str
) -> None:
    row = ALL[kind]
    _prepares(row, conninfo, binding_schema)
    if row.plain is not None:
        _prepares(row.plain, conninfo, binding_schema)


def _prepares(row: Binding, conninfo: str, binding_schema: str) -> None:
    numbers = iter(range(1, len(row.parameters) + 1))
    text = re.sub(r"%[sb]", lambda _: f"${next(numbers)}", row.text(binding_schema))
    with plain(conninfo) as connection:
        connection.execute(f"prepare bound as {text}".encode())
        found = connection.execute(
            "select parameter_types::text[] from pg_prepared_statements where name = 'bound'"
        ).fetchone()
    assert found is not None
    wanted = types_of(row)
    assert found[0] == wanted


@each
def test_a_binding_names_the_types_of_its_function(
    kind: type[ops.Op[Any]], conninfo: str, binding_schema: str
) -> None:
    """A cast between would hide a mistake, and keep a function from being found fast."""
    row = ALL[kind]
    _names_types(row, conninfo, binding_schema)
    if row.plain is not None:
        _names_types(row.plain, conninfo, binding_schema)


def _names_types(row: Binding, conninfo: str, binding_schema: str) -> None:
    function = re.search(r"from \{schema\}\.(\w+)\(", row.sql) or re.search(
        r"\{schema\}\.(\w+)\(\{?", row.sql
    )
    if function is None:
        assert "{schema}." in row.sql  # a view
        return
    query = (
        "select array(select format_type(unnest, null) from unnest(proargtypes))"
        " from pg_proc where pronamespace = %s::regnamespace and proname = %s"
    )
    taken = [one[0] for one in rows(conninfo, query, binding_schema, function[1])]
    wanted = types_of(row)
    assert taken.count(wanted) == 1
    assert len(taken) == 1 + FORMER.get(function[1], 0)


@each
def test_a_binding_reads_fields_that_its_op_has(kind: type[ops.Op[Any]]) -> None:
    row = ALL[kind]
    names = {name.split(".")[0] for name, _ in row.parameters}
    assert names <= set(kind.__struct_fields__)
    plain = () if row.plain is None else row.plain.parameters
    assert all(hasattr(kind, name.split(".")[0]) for name, _ in plain if name != NOTHING)


def test_every_op_is_bound_or_done_by_the_driver(conninfo: str, binding_schema: str) -> None:
    with driving(conninfo, binding_schema) as driver:
        assert isinstance(driver, PostgresDriver)
        local = set(driver._local)
    unbound = (op_classes(ops) | op_classes(spark_ops)) - set(ALL) - local
    assert unbound == set()


def test_a_binding_renders_a_mark_for_each_parameter() -> None:
    row = Binding(
        sql="select {schema}.f({marks})", parameters=(("a", "text"), ("b", "bytea")), decode=list
    )
    assert row.text("r") == "select r.f(%s::text, %s::bytea)"
