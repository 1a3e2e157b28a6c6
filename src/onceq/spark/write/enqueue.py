"""The batch writer of the data source `onceq`: rows of a DataFrame become elements of a queue.

Used by Spark, through `onceq.spark.source`. Tasks enqueue for themselves, some thousand rows in a
transaction. A row is recognised by its rid, so a task that is run twice, or a job that is
run again after its death, enqueues what is missing and nothing else. There is nothing to commit,
and nothing to take back. Source: spec P3, P9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.spark_driver import SparkDriver, executor_driver
from onceq.errors import InvalidValue, QueueFull
from onceq.model.names import check_id
from onceq.model.ops.waiting import when_there_is_room
from onceq.model.reserved import refuse
from onceq.model.spark_ops import SparkEnqueue
from onceq.spark.arrow import RecordBatch, pa, pc
from onceq.spark.write.writing import WritingOptions

ROWS: Final = 10_000
BODIES_BYTES: Final = 8 << 20
"""Limits of one transaction, roughly."""
ROOM_S: Final = 600.0
"""How long a row waits for room in a queue that is full."""
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "rid": (StringType,),
    "body": (BinaryType, StringType),
    "priority": _WHOLE,
    "not_before": (TimestampType,),
    "expires_at": (TimestampType,),
    "correlation_id": (StringType,),
    "content_type": (StringType,),
    "properties": (StringType,),
}
"""The columns that a row may have, and their types."""
NEEDED: Final = ("rid", "body")


@dataclass
class Enqueued(WriterCommitMessage):
    """What a task has enqueued: those of its rows that were not known yet."""

    rows: int
    new: int


class OnceqBatchWriter(DataSourceArrowWriter):
    """Enqueues on executors."""

    def __init__(self, options: WritingOptions, schema: StructType) -> None:
        self.options = options
        check_columns(schema, is_request=options.registrant_id is not None)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Enqueues the rows of a task, each chunk of them in a transaction."""
        rows = new = 0
        with executor_driver(self.options.route) as driver:
            for batch in iterator:
                for chunk in chunks(batch):
                    new += self.enqueue(driver, chunk)
                    rows += chunk.num_rows
        return Enqueued(rows, new)

    def enqueue(self, driver: SparkDriver, chunk: RecordBatch) -> int:
        """Enqueues a chunk in a transaction; returns how many of its rows were not known yet.

        What a full queue does not take together goes in halves, and one row waits for room, up to
        ROOM_S: then QueueFull. The rows before it are enqueued; written again, they are known.
        """
        op = self.op(chunk)
        faultpoint("bulk.read")
        try:
            new = driver.run(when_there_is_room(op, ROOM_S if chunk.num_rows == 1 else 0.0))
        except QueueFull:
            if chunk.num_rows == 1:
                raise
            middle = chunk.num_rows // 2
            new = self.enqueue(driver, chunk.slice(0, middle))
            return new + self.enqueue(driver, chunk.slice(middle))
        faultpoint("bulk.enqueued")
        return new

    def op(self, chunk: RecordBatch) -> SparkEnqueue:
        """Returns the Op that enqueues a chunk. InvalidName, InvalidValue, which name the row."""
        columns = {name: _values(chunk, name) for name in COLUMNS if name in chunk.schema.names}
        check_rows(columns)
        return SparkEnqueue(
            registrant_id=self.options.registrant_id,
            epoch=self.options.epoch,
            queue=self.options.queue,
            send_no=self.options.send_no or 0,
            rids=columns["rid"],
            bodies=columns["body"],
            priorities=columns.get("priority"),
            not_before=columns.get("not_before"),
            expires_at=columns.get("expires_at"),
            correlation_ids=columns.get("correlation_id"),
            content_types=columns.get("content_type"),
            properties=columns.get("properties"),
            content_type=self.options.content_type,
        )


def check_columns(schema: StructType, *, is_request: bool) -> None:
    """Checks the columns of a DataFrame. Raises InvalidValue."""
    found = {field.name: field.dataType for field in schema.fields}
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise InvalidValue(f"the DataFrame has no column {missing[0]!r}: each row needs it")
    for name, kind in found.items():
        if name not in COLUMNS:
            raise InvalidValue(
                f"column {name!r} says nothing of an element, drop it: known are "
                f"{', '.join(COLUMNS)}"
            )
        if not isinstance(kind, COLUMNS[name]):
            wanted = " or ".join(one.typeName() for one in COLUMNS[name])
            raise InvalidValue(f"column {name!r} is {wanted}, not {kind.simpleString()}")
    if is_request and "correlation_id" in found:
        raise InvalidValue("a request has no correlation_id: its reply is correlated by its eid")


def chunks(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Cuts a batch of rows into chunks that are enqueued in one transaction each."""
    sizes: list[int | None] = pc.binary_length(batch.column("body")).to_pylist()
    first = size = 0
    for place, more in enumerate(sizes):
        size += more or 0
        if place > first and (size > BODIES_BYTES or place - first == ROWS):
            yield batch.slice(first, place - first)
            first, size = place, more or 0
    if sizes:
        yield batch.slice(first)


def _values(chunk: RecordBatch, name: str) -> list[Any]:
    """Returns a column in an Op's form: texts, bytes, whole numbers."""
    column: Any = chunk.column(name)
    if name == "body":
        column = column.cast(pa.binary())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def check_rows(columns: dict[str, list[Any]]) -> None:
    """Checks what PostgreSQL does not, or not naming the row. InvalidName, InvalidValue."""
    rids: Sequence[Any] = columns["rid"]
    for rid, body in zip(rids, columns["body"], strict=True):
        check_id("rid", rid)
        if body is None:
            raise InvalidValue(f"the row of rid {rid!r} has no body: it is null")
    for rid, text in zip(rids, columns.get("properties", ()), strict=False):
        _check_properties(rid, text)
    for rid, text in zip(rids, columns.get("correlation_id", ()), strict=False):
        if text is not None:
            check_id(f"correlation id of rid {rid!r}", text)


def _check_properties(rid: str, text: str | None) -> None:
    if text is None:
        return
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidValue(
            f"the properties of rid {rid!r} are not a JSON object: {error}"
        ) from None
    refuse(found, f" of rid {rid!r}")
