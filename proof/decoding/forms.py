"""What each server makes of a body, in comparable terms.

A native server calls `decoded`; Spark's `each` decodes in `Answers`; an Arrow batch or a DataFrame
gets a column `request`, made where bodies are read.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

import msgspec

from onceq.errors import HandlerFailed, InvalidValue
from onceq.server.charges import code_of, text_of
from onceq.server.handlers import decoded
from onceq.server.traces import storable
from onceq.spark.arrow import pa
from onceq.spark.serve.answering import COLUMNS, Answers
from onceq.spark.serve.incoming import Decoder

if TYPE_CHECKING:
    from onceq.model.queue import Queue
    from onceq.spark.arrow import RecordBatch

Body: TypeAlias = tuple[bytes, str]
"""A body, and its content type."""
Failure: TypeAlias = tuple[str, str]
"""A code, and a text."""

_AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Accepted(msgspec.Struct):
    """A request that was taken."""

    value: Any


Fate: TypeAlias = "Accepted | Failure"


def native(queue: Queue[Any, Any], bodies: Sequence[Body]) -> list[Fate]:
    """Returns what a native server does with each body."""
    fates: list[Fate] = []
    for body, content_type in bodies:
        try:
            fates.append(Accepted(decoded(queue, body, content_type)))
        except (InvalidValue, HandlerFailed) as error:
            fates.append((storable(code_of(error)), storable(text_of(error))))
    return fates


def each(queue: Queue[Any, Any], bodies: Sequence[Body]) -> list[Fate]:
    """Returns what Spark does with each body by a function for a request."""
    seen: dict[str, Any] = {}

    def take(request: Any, context: Any) -> bytes:
        seen[context.rid] = request
        return b""

    given: dict[str, Any] = dict.fromkeys(COLUMNS) | {"aborts": 0, "enqueued_at": _AT}
    rows = [
        given | {"eid": str(uuid4()), "rid": str(n), "body": body, "content_type": content_type}
        for n, (body, content_type) in enumerate(bodies)
    ]
    answers = Answers(queue, take, {}).of(pa.RecordBatch.from_pylist(rows)).to_pylist()
    return [
        Accepted(seen[str(n)]) if one["error"] is None else (one["code"], one["error"])
        for n, one in enumerate(answers)
    ]


def columns(
    queue: Queue[Any, Any], bodies: Sequence[Body]
) -> tuple[RecordBatch, list[int], dict[int, Failure]]:
    """Returns what a batch function is given of the bodies, their places, and what is refused."""
    eids = [uuid4() for _ in bodies]
    rows = [
        (eid, "", None, None, 0, 5, _AT, None, content_type, None, body)
        for eid, (body, content_type) in zip(eids, bodies, strict=True)
    ]
    batch, refusal = Decoder(queue).decoded(rows)
    places = {str(eid): place for place, eid in enumerate(eids)}
    refused: dict[int, Failure] = {}
    if refusal is not None:
        said = zip(refusal.eids, refusal.codes, refusal.errors, strict=True)
        refused = {places[str(eid)]: (code, error) for eid, code, error in said}
    return batch, [places[eid] for eid in batch["eid"].to_pylist()], refused


def same(value: Any, column: Any) -> bool:
    """Returns whether a Python value equals the one in a column of Spark's."""
    if value is None or value is msgspec.UNSET:
        return column is None
    if isinstance(column, dict):
        known = _fields(value)
        return known.keys() <= column.keys() and all(
            same(known.get(name), one) for name, one in column.items()
        )
    if isinstance(value, dict):  # a map comes back as pairs
        return isinstance(column, list) and same_list(
            [part for pair in value.items() for part in pair],
            [part for pair in column for part in pair],
        )
    if isinstance(value, (set, frozenset)):
        some = sorted(map(_plain, value), key=repr)
        return same_list(some, sorted(column, key=repr))
    if isinstance(value, (list, tuple)):
        return isinstance(column, list) and same_list(list(value), column)
    plain = _plain(value)
    return type(plain) is type(column) and (plain == column or repr(plain) == repr(column))


def same_list(values: list[Any], column: list[Any]) -> bool:
    """Returns whether lists are the same, part by part."""
    return len(values) == len(column) and all(map(same, values, column))


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        kind = type(value)
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        return {said: getattr(value, name) for said, name in names}
    return dict(value) if isinstance(value, dict) else dict(vars(value))


def _plain(value: Any) -> Any:
    match value:
        case enum.Enum():
            return value.value
        case UUID():
            return str(value)
        case dt.datetime():
            if value.tzinfo is None:
                return value.replace(tzinfo=dt.UTC)
            return value.astimezone(dt.UTC)
        case _:
            return value
