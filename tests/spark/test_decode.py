"""What PostgreSQL sends as lines of CSV is in Arrow as it was: every kind of value, and none."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import pytest

from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.spark.read.decode import record_batch, selected
from onceq.spark.read.relations import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "string": (
        "text",
        [
            "\ufeffx",
            "",
            "a,b",
            'a"b""',
            "\n",
            "a\r\nb\r",
            " a ",
            "NULL",
            "\\.",
            "\\N",
            "\x01\x1f",
            "☃",
            "'",
        ],
    ),
    "binary": ("bytea", [b"", b"\x00\xff", b'",\n', bytes(range(256))]),
    "boolean": ("boolean", [True, False]),
    "int": ("integer", [0, -(2**31), 2**31 - 1]),
    "bigint": ("bigint", [0, -(2**63), 2**63 - 1]),
    "timestamp": (
        "timestamptz",
        [
            dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        ],
    ),
}
"""By Spark's type: PostgreSQL's, and values; null is tried with each."""


def read(
    place: tuple[str, str], columns: Sequence[Column], rows: str, values: list[Any]
) -> list[Any]:
    """Select columns from rows, some lines at a time; return the values, row by row."""
    conninfo, repository = place
    route = Route(url="", conninfo=conninfo, repository=repository)
    query = f"select {', '.join(selected(one) for one in columns)} from {rows}"
    with spark_driver(route) as driver:
        batches = [record_batch(columns, some) for some in driver.lines(query, values, 10)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", VALUES)
def test_each_value_comes_as_it_was(conninfo: str, repository: str, kind: str) -> None:
    in_sql, some = VALUES[kind]
    values = [*some, None, some[0]]
    column = Column(name="v", kind=kind, by="v")
    rows = f"unnest(%s::{in_sql}[]) with ordinality u (v, n) order by n"
    assert read((conninfo, repository), [column], rows, [values]) == [(one,) for one in values]


def test_columns_stay_apart(conninfo: str, repository: str) -> None:
    columns = [
        Column(name="a", kind="string", by="a"),
        Column(name="b", kind="binary", by="b"),
        Column(name="c", kind="bigint", by="c"),
    ]
    rows = "(values ('', null::bytea, 7::bigint), (null, '', null), ('x', 'y', 8)) u (a, b, c)"
    found = read((conninfo, repository), columns, rows, [])
    assert found == [("", None, 7), (None, b"", None), ("x", b"y", 8)]


def test_no_rows_are_no_batch(conninfo: str, repository: str) -> None:
    assert (
        read(
            (conninfo, repository),
            [Column(name="a", kind="int", by="1")],
            "pg_class where false",
            [],
        )
        == []
    )
