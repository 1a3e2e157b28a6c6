"""Says for each column of a table's rows what its values look like once they are staged.

Used by `onceq.spark.serve.server`, which lets PostgreSQL try them before the first batch: a type
that is wrong for all rows is found there, and not request by request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAMPLES: Final[tuple[tuple[type[st.DataType] | tuple[type[st.DataType], ...], str], ...]] = (
    (st.BooleanType, "true"),
    (st.IntegralType, "7"),
    ((st.FloatType, st.DoubleType), "7"),
    (st.TimestampType, "2020-02-20 20:20:20Z"),
    (st.TimestampNTZType, "2020-02-20 20:20:20"),
    (st.DateType, "2020-02-20"),
    (st.BinaryType, "\\x00"),
    (st.ArrayType, "[]"),
    ((st.StructType, st.MapType), '{"a":1}'),
)
"""Text may be anything: it has no sample."""


def samples(schema: st.StructType, table: str, columns: Sequence[str]) -> list[str | None]:
    """Returns a text for each column of a table's rows, as the sink stages its values, or None."""
    rows = schema[table].dataType
    if isinstance(rows, st.ArrayType):
        rows = rows.elementType
    if not isinstance(rows, st.StructType):
        return [None] * len(columns)
    return [_sample(rows[name].dataType) for name in columns]


def _sample(kind: st.DataType) -> str | None:
    if isinstance(kind, st.DecimalType):
        return "0" if kind.scale == 0 else f"0.{'0' * kind.scale}"
    return next((text for kinds, text in _SAMPLES if isinstance(kind, kinds)), None)
