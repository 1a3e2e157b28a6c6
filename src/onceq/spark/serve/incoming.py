"""From the requests that a group holds to Arrow: each body is decoded once, where it is read.

Used by the source on executors. The model's decoder decides, as for every server: a request that is
not of the declared type is aborted, and no batch function sees it. Others are in a column
`request`, if Spark has such a type.
"""

from __future__ import annotations

import base64
import functools
import importlib
import operator
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from msgspec import UNSET
from msgspec import inspect as mi

from onceq.errors import HandlerFailed, InvalidValue
from onceq.model.limits import DECIMAL_DIGITS, DECIMAL_PLACES
from onceq.model.queue import Queue
from onceq.model.spark_ops import SparkRefuse
from onceq.server.handlers import decoded
from onceq.spark.arrow import RecordBatch, batch_of, pa, schema_of
from onceq.spark.serve.answering import failure_of
from onceq.spark.serve.schema import request_schema

if TYPE_CHECKING:
    from pyspark.sql import types as st

SOURCE_SCHEMA: Final = (
    "eid string, rid string, registrant string, thread string, aborts int, priority int,"
    " enqueued_at timestamp, correlation_id string, content_type string, properties string,"
    " body binary"
)
_ARROW: Final = schema_of(SOURCE_SCHEMA)
_CONTENT_TYPE: Final = _ARROW.get_field_index("content_type")
_SMALLEST: Final = Decimal(1).scaleb(-DECIMAL_PLACES)
_DIGITS: Final = Context(prec=DECIMAL_DIGITS)
_BODY: Final = _ARROW.get_field_index("body")
_ARROW_TYPES: Final[Any] = importlib.import_module("pyspark.sql.pandas.types")  # partly typed

Row: TypeAlias = tuple[Any, ...]
Plain: TypeAlias = Callable[[Any], Any]
"""Turns a value into what Arrow takes for it."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Makes Arrow from requests. queue: theirs; None: their bodies are left as they are."""

    queue: Queue[Any, Any] | None

    @property
    def spark_schema(self) -> st.StructType:
        """The columns of a request."""
        schema: st.StructType = _ARROW_TYPES.from_arrow_schema(_ARROW)
        request = self._request_schema()
        return schema if request is None else schema.add("request", request)

    def decoded(self, rows: Sequence[Row]) -> tuple[RecordBatch, SparkRefuse | None]:
        """Returns the requests that are of the type, and the refusal of the others, if any.

        rows: in the order of SOURCE_SCHEMA. The refusal names no group yet.
        """
        if self.queue is None:
            return _record_batch(rows), None
        taken: list[Row] = []
        values: list[Any] = []
        refused: list[tuple[UUID, str, str]] = []
        for row in rows:
            try:
                values.append(decoded(self.queue, row[_BODY], row[_CONTENT_TYPE]))
            except (InvalidValue, HandlerFailed) as error:
                refused.append((row[0], *failure_of(error)))
            else:
                taken.append(row)
        batch = _record_batch(taken)
        schema = self._request_schema()
        if schema is not None:
            column = _structs(mi.type_info(self.queue.request_type), values, _arrow_type(schema))
            batch = batch.append_column("request", column)
        return batch, _refusal(refused)

    def _request_schema(self) -> st.StructType | None:
        return None if self.queue is None else request_schema(self.queue.request_type)


@functools.lru_cache(maxsize=16)
def decoder_of(requests: str) -> Decoder:
    """Returns the decoder of the type that `handlers.told` describes."""
    if not requests:
        return Decoder(None)
    name, kind = pickle.loads(base64.b64decode(requests))  # noqa: S301 - what our own driver wrote
    return Decoder(Queue(name, kind, bytes))


def _refusal(refused: Sequence[tuple[UUID, str, str]]) -> SparkRefuse | None:
    if not refused:
        return None
    eids, codes, errors = zip(*refused, strict=True)
    return SparkRefuse(group=0, eids=list(eids), codes=list(codes), errors=list(errors))


def _record_batch(rows: Sequence[Row]) -> RecordBatch:
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=_ARROW)
    eids, *others = zip(*rows, strict=True)
    return batch_of(([str(eid) for eid in eids], *others), _ARROW)


def _arrow_type(schema: st.StructType) -> Any:
    return _ARROW_TYPES.to_arrow_type(schema, timezone="UTC")


def _structs(info: Any, values: Sequence[Any], kind: Any) -> Any:
    """Returns the values of an object type as an array of structs, made field by field."""
    columns: list[Any] = []
    for (_, part, plain), column in zip(_parts(info), kind, strict=True):
        parts = map(part, values)
        if plain is not None:
            parts = map(_unless_none(plain), parts)
        columns.append(pa.array(parts, column.type, size=len(values)))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _parts(info: Any) -> list[tuple[str, Plain, Plain | None]]:
    """Returns, for each field, its name in JSON, a function to get it, and its own plain."""
    if isinstance(info, mi.TypedDictType):
        names = [(one.encode_name, _item(one.encode_name)) for one in info.fields]
    else:
        names = [(one.encode_name, _attribute(one)) for one in info.fields]
    return [(*name, _plain(one.type)) for name, one in zip(names, info.fields, strict=True)]


def _item(name: str) -> Plain:
    return lambda value: value.get(name)


def _attribute(field: mi.Field) -> Plain:
    if field.required:
        return operator.attrgetter(field.name)
    name = field.name

    def part(value: Any) -> Any:
        found = getattr(value, name)
        return None if found is UNSET else found

    return part


def _plain(info: Any) -> Plain | None:
    """Returns a function that converts a type's values for Arrow; None if Arrow takes them."""
    match info:
        case mi.UUIDType():
            return str
        case mi.EnumType():
            return operator.attrgetter("value")
        case mi.DecimalType():
            return _rescaled
        case mi.UnionType():
            (present,) = (one for one in info.types if not isinstance(one, mi.NoneType))
            return _plain(present)
        case mi.CollectionType():
            return _plain_items(info)
        case mi.DictType():
            return _plain_dict(info)
        case mi.StructType() | mi.DataclassType() | mi.TypedDictType():
            return _plain_object(info)
        case _:
            return None


def _plain_items(info: mi.CollectionType) -> Plain | None:
    plain = _unless_none(_plain(info.item_type))
    if isinstance(info, mi.SetType | mi.FrozenSetType):  # in one order, whichever process reads it
        return lambda values: sorted(map(plain, values), key=repr)
    return lambda values: list(map(plain, values))


def _plain_dict(info: mi.DictType) -> Plain:
    plain = _unless_none(_plain(info.value_type))
    return lambda value: [(key, plain(one)) for key, one in value.items()]


def _plain_object(info: Any) -> Plain:
    parts = [(name, part, _unless_none(plain)) for name, part, plain in _parts(info)]
    return lambda value: {name: plain(part(value)) for name, part, plain in parts}


def _unless_none(plain: Plain | None) -> Plain:
    if plain is None:
        return _as_it_is
    return lambda value: None if value is None else plain(value)


def _as_it_is(value: Any) -> Any:
    return value


def _rescaled(value: Decimal) -> Decimal:
    """Returns a decimal number with all its places: within limits, nothing is lost."""
    return value.quantize(_SMALLEST, context=_DIGITS)
