"""From lines of CSV, as PostgreSQL's COPY sends them, to Arrow batches, column by column.

Used by the batch reader on executors; `encode` is its counterpart. Exact: times travel as
microseconds, bytes as hexadecimal; an unquoted empty field is null, a quoted one is empty. Only
bytes become Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onceq.spark.arrow import RecordBatch, pa, pcsv
from onceq.spark.read.relations import Column

_SENT: Final[dict[str, tuple[str, Any]]] = {
    "string": ("{}", pa.string()),
    "int": ("{}", pa.int32()),
    "bigint": ("{}", pa.int64()),
    "boolean": ("{}", pa.bool_()),
    "binary": ("encode({}, 'hex')", pa.string()),
    "timestamp": ("(extract(epoch from {}) * 1000000)::bigint", pa.int64()),
}
"""For each of Spark's types: how a value is selected, and as what it is read."""
_PARSE: Final = pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def selected(column: Column) -> str:
    """Returns the SQL that selects a column in the form in which `record_batch` reads it."""
    return _SENT[column.kind][0].format(column.by)


def record_batch(columns: Sequence[Column], lines: bytes | bytearray) -> RecordBatch:
    """Returns complete lines, at least one, in Arrow's form.

    A line of ours is put before them, and skipped: at the very beginning, Arrow would take
    a U+FEFF of a value for a byte order mark.
    """
    names = [one.name for one in columns]
    given = b"\n" + lines
    table = pcsv.read_csv(
        pa.BufferReader(given),
        pcsv.ReadOptions(
            column_names=names, skip_rows=1, block_size=len(given) + 1, use_threads=False
        ),
        _PARSE,
        pcsv.ConvertOptions(
            column_types={one.name: _SENT[one.kind][1] for one in columns},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    arrays = [
        _as_kind(one.kind, sent.combine_chunks())
        for one, sent in zip(columns, table.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _as_kind(kind: str, sent: Any) -> Any:
    if kind == "timestamp":
        return sent.cast(pa.timestamp("us", "UTC"))
    if kind == "binary":
        values = (None if one is None else bytes.fromhex(one) for one in sent.to_pylist())
        return pa.array(values, pa.binary())
    return sent
