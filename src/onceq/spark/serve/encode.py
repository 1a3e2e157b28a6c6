"""From Arrow batches to the lines of CSV that the stage takes, column by column.

Used by the sink on executors. Exact: decimals, timestamps and dates travel as their full text,
numbers in their shortest exact form, bytes as hexadecimal. An unquoted empty field is null; text
is always quoted. It never makes a Python object of a number or a time, except in nested values:
these become JSON, as PostgreSQL's to_jsonb makes it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from onceq.errors import InvalidValue
from onceq.spark.arrow import RecordBatch, pa, pc, pcsv

Lines = tuple[tuple[str, ...], memoryview]
"""Names of columns, and lines of CSV."""

REPLY_BYTES_MAX = 64 << 20
"""Of one reply: it is copied several times in Java, and in the memory of a session by default."""
TOO_LARGE = "TooLarge"
REPLY_COLUMNS = (
    *("attempt", "eid", "reply", "error", "code", "reject", "retry", "after_s", "traceback"),
)
_FLAGS = ("reject", "retry")
_JSON = msgspec.json.Encoder(decimal_format="number")
_OPTIONS = pcsv.WriteOptions(include_header=False)


def replies(batch: RecordBatch, attempt: int) -> Lines:
    """Returns the replies of a batch: its columns of REPLY_COLUMNS, for rows with an eid."""
    is_answer = batch.column("eid").is_valid()
    _refuse_lost(batch.filter(pc.invert(is_answer)))
    batch = _within_limit(batch.filter(is_answer))
    batch = _with_reasons(batch)
    present = [name for name in REPLY_COLUMNS[2:] if name in batch.schema.names]
    columns = [_repeated(attempt, batch.num_rows), batch.column("eid")]
    columns += [_text(batch.column(name), name) for name in present]
    return (*REPLY_COLUMNS[:2], *present), _csv(columns)


def named(batch: RecordBatch, attempt: int) -> Lines:
    """Returns the requests behind rows that were computed from several: column eids."""
    rows = batch.column("eids")
    several = pc.list_flatten(rows)
    if several.null_count:
        raise InvalidValue("a row has null in column 'eids': it names what it is computed from")
    answered = batch.column("eid").take(pc.list_parent_indices(rows)).drop_null()
    eids = pc.unique(pa.concat_arrays([several, answered]))
    return ("attempt", "eid"), _csv([_repeated(attempt, len(eids)), eids])


def table_rows(batch: RecordBatch, attempt: int, tables: Sequence[str]) -> Iterator[Lines]:
    """Yields the rows of each table in a batch, numbered from 1 in the order of `tables`."""
    owners = _owners(batch)
    for number, name in enumerate(tables, 1):
        eids, rows = _exploded(owners, batch.column(name))
        if len(rows) == 0:
            continue
        fields = [_text(field, f"{name}.{row.name}") for field, row in _fields(rows)]
        head = [_repeated(attempt, len(rows)), _repeated(number, len(rows)), eids]
        names = ("attempt", "table_no", "eid", *(f"c{n}" for n in range(1, len(fields) + 1)))
        yield names, _csv([*head, *fields])


def too_large(size: int) -> str:
    """Returns what is said of a reply of this size."""
    return (
        f"the reply has {size} bytes, and that of a Spark server at most {REPLY_BYTES_MAX}: put "
        "what is larger elsewhere, a table or a file, and say in the reply where it is"
    )


def _within_limit(batch: RecordBatch) -> RecordBatch:
    """Returns the batch where a reply that is too large is an error of its request."""
    if "reply" not in batch.schema.names:
        return batch
    sizes = pc.binary_length(batch.column("reply"))
    is_large = pc.fill_null(pc.greater(sizes, REPLY_BYTES_MAX), fill_value=False)
    if not pc.any(is_large).as_py():
        return batch
    names = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    columns["reply"] = pc.if_else(is_large, pa.scalar(None, pa.binary()), batch.column("reply"))
    none = pa.nulls(batch.num_rows, pa.string())
    error, code = (columns.get(name, none).cast(pa.string()) for name in ("error", "code"))
    is_news = pc.and_(is_large, error.is_null())
    said = pa.array([too_large(size) for size in pc.filter(sizes, is_news).to_pylist()])
    columns["error"] = pc.replace_with_mask(error, is_news, said.cast(pa.string()))
    columns["code"] = pc.if_else(is_news, TOO_LARGE, code)
    return pa.RecordBatch.from_pydict(columns)


def _with_reasons(batch: RecordBatch) -> RecordBatch:
    """Returns the batch, in which each request to abort says why: by an error, or only a flag."""
    for flag in _FLAGS:
        if flag in batch.schema.names:
            names = batch.schema.names
            error = batch.column("error") if "error" in names else pa.nulls(batch.num_rows)
            error = error.cast(pa.string())
            is_bare = pc.and_(pc.fill_null(batch.column(flag), fill_value=False), error.is_null())
            said = pc.if_else(is_bare, f"the batch function said {flag}, and no error", error)
            columns = dict(zip(names, batch.columns, strict=True)) | {"error": said}
            batch = pa.RecordBatch.from_pydict(columns)
    return batch


def _refuse_lost(batch: RecordBatch) -> None:
    """Refuses a reply or an error that answers nothing."""
    for name in {"reply", "error"} & set(batch.schema.names):
        if batch.column(name).null_count < batch.num_rows:
            raise InvalidValue(f"a row has a value in column {name!r}, but no eid that it answers")


def _fields(rows: Any) -> list[tuple[Any, Any]]:
    return list(zip(rows.flatten(), rows.type, strict=True))


def _owners(batch: RecordBatch) -> Any:
    """Returns the request that decides about each row: its eid, or the first of its eids."""
    owners = batch.column("eid")
    if "eids" in batch.schema.names:
        rows = batch.column("eids")
        parents = pc.list_parent_indices(rows)
        places = pc.index_in(pa.array(range(len(rows)), parents.type), value_set=parents)
        owners = pc.coalesce(owners, pc.list_flatten(rows).take(places))
    if owners.null_count:
        raise InvalidValue("a row has no eid: it names its request, or several in column 'eids'")
    return owners


def _exploded(eids: Any, column: Any) -> tuple[Any, Any]:
    """Returns eid and row for every row: of a struct, or of each struct in a list."""
    if pa.types.is_struct(column.type):
        present = column.is_valid()
        return eids.filter(present), column.filter(present)
    rows = pc.list_flatten(column)
    owners = eids.take(pc.list_parent_indices(column))
    present = rows.is_valid()
    return owners.filter(present), rows.filter(present)


def _text(column: Any, name: str) -> Any:
    """Returns a column in which every value is exact text in CSV."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
        return pa.array(values, pa.string())
    _refuse_intervals(kind, name)
    if pa.types.is_nested(kind):
        values = [
            None if value is None else _JSON.encode(_plain(value, kind)).decode()
            for value in column.to_pylist()
        ]
        return pa.array(values, pa.string())
    return column.cast(pa.string())


def _refuse_intervals(kind: Any, name: str) -> None:
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise InvalidValue(f"column {name}: an interval cannot be staged; send it as text")
    for number in range(kind.num_fields):
        _refuse_intervals(kind.field(number).type, name)


def _plain(value: Any, kind: Any) -> Any:
    """Returns a nested value in a form that JSON can hold: objects, exact numbers, text."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {_key(key, kind.key_type): _plain(one, kind.item_type) for key, one in value}
    if pa.types.is_nested(kind):
        return [_plain(one, kind.value_type) for one in value]
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]
    return value


def _key(value: Any, kind: Any) -> str:
    """Returns a map's key as the name of a member of an object is written."""
    plain = _plain(value, kind)
    return plain if isinstance(plain, str) else _JSON.encode(plain).decode().strip('"')


def _repeated(value: int, times: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.int64()), times)


def _csv(columns: Sequence[Any]) -> memoryview:
    table = pa.table(list(columns), names=[str(n) for n in range(len(columns))])
    out = io.BytesIO()
    pcsv.write_csv(table, out, _OPTIONS)
    return out.getbuffer()
