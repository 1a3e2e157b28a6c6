"""Schemas: of a request's type as Spark knows it, and of what a batch function must return.

Used by source, sink and server. It checks before anything runs, so that a wrong batch function is
an error of its author and not of every request. It also says what the values of a table's rows look
like once they are staged: PostgreSQL tries them before the first batch, so that a type that is
wrong for all rows is found there, and not request by request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import inspect as mi
from pyspark.sql import types as st

from onceq.errors import InvalidValue
from onceq.spark.given.tables import TableChange

_SIMPLE: dict[type[Any], st.DataType] = {
    mi.StrType: st.StringType(),
    mi.IntType: st.LongType(),
    mi.FloatType: st.DoubleType(),
    mi.BoolType: st.BooleanType(),
    mi.BytesType: st.BinaryType(),
    mi.DateType: st.DateType(),
    mi.DateTimeType: st.TimestampType(),
    mi.DecimalType: st.DecimalType(38, 18),
    mi.UUIDType: st.StringType(),
}
_EXPECTED: dict[str, st.DataType] = {
    "eid": st.StringType(),
    "eids": st.ArrayType(st.StringType()),
    "reply": st.BinaryType(),
    "error": st.StringType(),
    "code": st.StringType(),
    "reject": st.BooleanType(),
    "retry": st.BooleanType(),
    "after_s": st.DoubleType(),
    "traceback": st.StringType(),
}
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
_OPTIONAL = frozenset({"eids", "error", "code", "reject", "retry", "after_s", "traceback"})


def request_schema(kind: type[Any]) -> st.StructType | None:
    """Returns the Spark type of a request; None if it is bytes or has no such type.

    Decimals are decimal(38, 18); datetimes are instants; UUIDs are strings; enumerations are
    strings or whole numbers.
    """
    if kind is bytes:
        return None
    try:
        found = _spark_type(mi.type_info(kind))
    except RecursionError:  # a recursive type
        return None
    return found if isinstance(found, st.StructType) else None


def _spark_type(info: mi.Type) -> st.DataType | None:
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return simple
    match info:
        case mi.EnumType():
            return _of_values([one.value for one in info.cls])
        case mi.LiteralType():
            return _of_values([one for one in info.values if one is not None])
        case mi.StructType() | mi.DataclassType() | mi.TypedDictType():
            return _struct(info)
        case mi.ListType() | mi.SetType() | mi.FrozenSetType() | mi.VarTupleType():
            element = _spark_type(info.item_type)
            return None if element is None else st.ArrayType(element)
        case mi.DictType(key_type=mi.StrType()):
            value = _spark_type(info.value_type)
            return None if value is None else st.MapType(st.StringType(), value)
        case mi.UnionType():
            present = [kind for kind in info.types if not isinstance(kind, mi.NoneType)]
            return _spark_type(present[0]) if len(present) == 1 else None
        case _:
            return None


def _of_values(values: list[Any]) -> st.DataType | None:
    """Returns the type of an enumeration by its values: all texts, or all whole numbers."""
    kinds: set[type[Any]] = {type(one) for one in values}
    if kinds == {int}:
        return st.LongType()
    return st.StringType() if kinds == {str} else None


def _struct(info: mi.StructType | mi.DataclassType | mi.TypedDictType) -> st.StructType | None:
    fields = [(field.encode_name, _spark_type(field.type)) for field in info.fields]
    known = [st.StructField(name, kind) for name, kind in fields if kind is not None]
    return st.StructType(known) if known and len(known) == len(fields) else None


def check_sink(
    schema: st.StructType, tables: Mapping[str, TableChange]
) -> dict[str, tuple[str, ...]]:
    """Checks what a batch function returns; returns the columns of each table's rows, by table.

    Raises InvalidValue, saying which column is wrong and what it should be.
    """
    for name, expected in _EXPECTED.items():
        if name not in schema.names and name in _OPTIONAL:
            continue
        _check_column(schema, name, expected)
    surplus = set(schema.names) - _EXPECTED.keys() - tables.keys()
    if surplus:
        raise InvalidValue(
            f"the batch returns a column {min(surplus)!r}, which is no table in tables=: drop it"
        )
    return {name: _row_columns(schema, name, change) for name, change in tables.items()}


def _check_column(schema: st.StructType, name: str, expected: st.DataType) -> None:
    if name not in schema.names:
        raise InvalidValue(f"the batch returns no column {name!r} ({expected.simpleString()})")
    found = schema[name].dataType
    if not _is_like(found, expected):
        raise InvalidValue(
            f"the batch returns column {name!r} as {found.simpleString()}, "
            f"not as {expected.simpleString()}"
        )


def _is_like(found: st.DataType, expected: st.DataType) -> bool:
    if isinstance(expected, st.ArrayType) and isinstance(found, st.ArrayType):
        return _is_like(found.elementType, expected.elementType)
    return type(found) is type(expected)


def _row_columns(schema: st.StructType, name: str, change: TableChange) -> tuple[str, ...]:
    found = schema[name].dataType if name in schema.names else None
    row = found.elementType if isinstance(found, st.ArrayType) else found
    if not isinstance(row, st.StructType):
        raise InvalidValue(
            f"table {name!r} needs a column {name!r} of type struct or array of structs: its rows"
        )
    change.check(name, row.names)
    return tuple(row.names)


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
