"""pyarrow, in one place: it has no types, so everything from it is Any here, explicitly.

Importing this loads pyarrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch."""

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
pcsv: Any = importlib.import_module("pyarrow.csv")

TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Arrow's type for each of Spark's."""


def schema_of(columns: str) -> Any:
    """Returns Arrow's schema for columns in Spark's form: `rid string, aborts int`."""
    pairs = (one.split() for one in columns.split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs])


def batch_of(columns: Iterable[Iterable[Any]], schema: Any) -> RecordBatch:
    """Returns columns, in the order of a schema of Arrow's, as a batch."""
    arrays = [pa.array(values, one.type) for values, one in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
