"""Calls a function for each request of an Arrow batch, and makes an Arrow batch from its answers.

Used by `onceq.spark.serve.handlers`; runs in Spark's Python workers. This is the boundary of the
user's function: whatever it raises becomes the error of that request, and of no other.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
from pyspark.sql import types as st

from onceq.engine.perform.guarded import said_by
from onceq.errors import HandlerFailed, InvalidValue, Reject, Retry
from onceq.model.queue import Queue
from onceq.model.trace import parted
from onceq.server.charges import ERROR_CHARS_MAX
from onceq.server.handlers import decoded
from onceq.server.traces import storable, traced
from onceq.spark.arrow import RecordBatch, batch_of, pa
from onceq.spark.serve.context import Answer, RequestContext
from onceq.spark.serve.encode import REPLY_BYTES_MAX, TOO_LARGE, too_large
from onceq.spark.serve.schema import request_schema

COLUMNS: Final = (
    *("eid", "rid", "registrant", "thread", "aborts", "enqueued_at", "priority", "properties"),
    *("correlation_id", "content_type", "body"),
)
"""What it needs of a request."""
_HEAD: Final = {
    "eid": "string",
    "reply": "binary",
    "error": "string",
    "code": "string",
    "reject": "boolean",
    "retry": "boolean",
    "after_s": "double",
    "traceback": "string",
}
_AS_THEY_ARE: Final = (bytes, dt.datetime, dt.date, Decimal)
_NO_SUCH_VALUE: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)

_ARROW_TYPES: Final[Any] = importlib.import_module("pyspark.sql.pandas.types")  # partly typed

Row = dict[str, Any]


class Answers:
    """A function for a request, with all that is needed to call it elsewhere."""

    def __init__(
        self,
        queue: Queue[Any, Any],
        function: Callable[[Any, RequestContext], Any],
        rows: Mapping[str, type[Any]],
    ) -> None:
        self.queue = queue
        self.function = function
        self.schema = _schema(rows)
        self.tables = tuple(rows)

    def of(self, batch: RecordBatch) -> RecordBatch:
        """Returns the answers to a batch of requests, one row for each."""
        arrow = _ARROW_TYPES.to_arrow_schema(self.schema, timezone="UTC")
        answers = [self._answer(row) for row in batch.to_pylist()]
        for name in self.tables:
            _refuse_misfits(answers, name, arrow.field(name).type)
        return batch_of(([row.get(name) for row in answers] for name in arrow.names), arrow)

    def _answer(self, row: Row) -> Row:
        try:
            request = decoded(self.queue, row["body"], row["content_type"])
        except (InvalidValue, HandlerFailed) as error:
            return _failure(row, error)
        try:
            return {"eid": row["eid"], **self._called(request, row)}
        except Reject as error:
            return _raised(row, error) | {"reject": True}
        except Retry as error:
            return _raised(row, error) | {"retry": True, "after_s": error.after_s}
        except HandlerFailed as error:  # of a reply that cannot be encoded
            return _failure(row, error)
        except Exception as error:  # noqa: BLE001 # the server's handler boundary
            return _raised(row, error)

    def _called(self, request: Any, row: Row) -> Row:
        answer = self.function(request, _context(self.queue.name, row))
        if not isinstance(answer, Answer):
            answer = Answer(reply=answer)
        surplus = answer.rows.keys() - set(self.tables)
        if surplus:
            raise InvalidValue(f"rows for table {min(surplus)!r}, which is not in each(rows=...)")
        rows = {name: [_plain(one) for one in some] for name, some in answer.rows.items()}
        return {"reply": self._encoded(row, answer.reply), **rows}

    def _encoded(self, row: Row, reply: Any) -> bytes | None:
        if reply is None and row["registrant"] is None:  # for a datagram
            return None
        try:
            encoded = self.queue.encode_reply(reply)
        except InvalidValue as error:
            raise HandlerFailed("InvalidReply", str(error)) from error
        if len(encoded) > REPLY_BYTES_MAX:  # before it comes to Java, which may have no room
            raise HandlerFailed(TOO_LARGE, too_large(len(encoded)))
        return encoded


def _properties(queue: str, text: str | None) -> Any:
    try:
        return None if text is None else parted(msgspec.json.decode(text))[0]
    except (msgspec.MsgspecError, RecursionError) as error:  # as a native server reports it
        what = f"the properties of a request in queue {queue!r}"
        raise InvalidValue(f"{what} cannot be read: {error}") from error


def _context(queue: str, row: Row) -> RequestContext:
    return RequestContext(
        queue=queue,
        eid=UUID(row["eid"]),
        rid=row["rid"],
        registrant=row["registrant"],
        thread=row["thread"],
        attempt=row["aborts"] + 1,
        enqueued_at=row["enqueued_at"],
        priority=row["priority"],
        properties=_properties(queue, row["properties"]),
        correlation_id=row["correlation_id"],
        content_type=row["content_type"],
    )


def _failure(row: Row, error: BaseException) -> Row:
    code, text = failure_of(error)
    return {"eid": row["eid"], "error": text, "code": code}


def _raised(row: Row, error: BaseException) -> Row:
    """Returns the failure of a request whose function raised, with the place."""
    trace = traced(error)
    return _failure(row, error) | {"traceback": None if trace is None else trace.text}


def failure_of(error: BaseException) -> tuple[str, str]:
    """Returns code and text of what was raised for a request, in a form that can be kept."""
    code, text = type(error).__name__, said_by(error)
    if isinstance(error, HandlerFailed):
        code, text = error.code, error.text
    return storable(code), storable(text[:ERROR_CHARS_MAX])


def _plain(row: Any) -> Any:
    return msgspec.to_builtins(row, builtin_types=_AS_THEY_ARE)


def _refuse_misfits(answers: Sequence[Row], name: str, kind: Any) -> None:
    """Makes a failure of each answer whose rows for a table are not of the table's type."""
    if _misfit([row.get(name) for row in answers], kind) is None:
        return
    for row in answers:
        error = _misfit([row.get(name)], kind)
        if error is not None:
            failure = _failure(row, InvalidValue(f"a row for table {name!r}: {said_by(error)}"))
            row.clear()
            row.update(failure)


def _misfit(values: list[Any], kind: Any) -> Exception | None:
    try:
        pa.array(values, kind)
    except _NO_SUCH_VALUE as error:
        return error
    return None


def _schema(rows: Mapping[str, type[Any]]) -> st.StructType:
    found = st.StructType()
    for name, kind in _HEAD.items():
        found = found.add(name, kind)
    for name, of_rows in rows.items():
        row = request_schema(of_rows)
        if row is None:
            raise InvalidValue(
                f"rows of table {name!r}: {of_rows!r} is no Struct or dataclass of types of Spark"
            )
        found = found.add(name, st.ArrayType(row))
    return found
