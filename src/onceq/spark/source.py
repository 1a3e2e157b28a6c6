"""The data source `onceq`: a stream of claim groups of a queue's requests, its sink, and tables.

Registered by `onceq.spark.Server`. A program with a pipeline of its own registers it with
`spark.dataSource.register(OnceqDataSource)`, and gives the options of `onceq.spark.register`.

Offsets are {"claim": n}, n being the number of a claim group. The database decides what a group
holds, so a batch that is read again reads only what is still its own. One process on the driver
plans, and keeps its connection; executors connect for themselves. A lost connection is made again,
and what is asked here may be asked again. Nothing else is caught: a failed call ends the query,
which its supervisor starts again.
Source: spec P1; spark.md, Stream reader.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from onceq.engine.faultpoints import NAMED, faultpoint
from onceq.engine.perform.spark_driver import of_executors
from onceq.engine.perform.steadfast import Steadfast
from onceq.errors import IllegalState, InvalidValue
from onceq.model.spark_ops import SparkBound, SparkClaim, SparkPlan, SparkPurge, SparkRead
from onceq.spark.arrow import RecordBatch
from onceq.spark.given.options import ServingOptions
from onceq.spark.read.batch import OnceqBatchReader
from onceq.spark.read.reading import ReadingOptions
from onceq.spark.read.relations import relation_of
from onceq.spark.serve.incoming import SOURCE_SCHEMA, decoder_of
from onceq.spark.serve.sink import OnceqStreamWriter
from onceq.spark.serve.words import telling
from onceq.spark.start.hung_up import say_no_hanging_up
from onceq.spark.write.enqueue import OnceqBatchWriter
from onceq.spark.write.writing import WritingOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["POINTS", "SOURCE_SCHEMA", "OnceqDataSource", "OnceqStreamReader"]

POINTS = tuple(name.removeprefix("spark.") for name in NAMED if name.startswith("spark."))
"""The points between which a process may die, in the order of a batch; tests die at each."""

_ROWS_PER_SLICE = 1_000
_ROWS_PER_READ = 10_000
_ROWS_AT_FIRST = 64
_BYTES_PER_READ = 8 << 20


@dataclass
class Slice(InputPartition):
    """Places `first` to `last` of a claim group's order, both included."""

    group: int
    first: int
    last: int


class OnceqDataSource(DataSource):
    """The requests of a queue as a stream, the sink for their replies; tables, and bulk enqueue."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "onceq"

    def schema(self) -> str | StructType:
        """The columns of what is read: those of a request, or of the named relation."""
        read = self.options.get("read")
        if read is not None:
            return relation_of(read).schema
        return decoder_of(self.options.get("requests", "")).spark_schema

    def reader(self, schema: StructType) -> OnceqBatchReader:
        """The reader of a relation, for these columns."""
        return OnceqBatchReader(ReadingOptions.from_spark(self.options), schema.names)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> OnceqBatchWriter:
        """The writer of a DataFrame. Raises InvalidValue."""
        if overwrite:
            raise InvalidValue("a queue is not overwritten: say mode('append')")
        return OnceqBatchWriter(WritingOptions.from_spark(self.options), schema)

    def streamReader(self, schema: StructType) -> OnceqStreamReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader of this query, in the process where Spark plans it."""
        say_no_hanging_up()
        return OnceqStreamReader(ServingOptions.from_spark(self.options))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's signature
    ) -> OnceqStreamWriter:
        """The writer of a batch."""
        return OnceqStreamWriter(ServingOptions.from_spark(self.options), schema)


class OnceqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims groups of requests on the driver, and reads them on executors."""

    def __init__(self, options: ServingOptions) -> None:
        self.options = options
        self.bound: int | None = None
        self._planner = Steadfast(options.route)

    def at(self, point: str) -> None:
        """Is told which of POINTS the reader has reached: a fault point."""
        faultpoint(f"spark.{point}")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The offset before every claim group; always the same."""
        return {"claim": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most the batch's rows."""
        return ReadMaxRows(self.options.batch_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From now on takes only what has been enqueued so far."""
        with telling(self.options.token):
            self.bound = self._planner.insist(SparkBound())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Claims the next group, or finds one left unfinished. Fenced, FileMismatch."""
        with telling(self.options.token):
            return {"claim": self._claim(start["claim"], limit)}

    def _claim(self, start: int, limit: ReadLimit) -> int:
        claim = SparkClaim(
            server_id=self.options.server_id,
            epoch=self.options.epoch,
            start=start,
            n=limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.batch_rows,
            bound=self.bound,
        )
        self.at("claim")
        group = self._planner.insist(claim)
        if group == claim.start and self.bound is None:
            # Otherwise Spark would ask 90 times a second.
            threading.Event().wait(self.options.idle_ms / 1000)
            group = self._planner.insist(claim)
        if group != claim.start:
            self.at("claimed")
        return group

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002 - Spark's signature
        """Notes that the group is begun, and cuts it into slices."""
        group = end["claim"]
        options = self.options
        plan = SparkPlan(server_id=options.server_id, epoch=options.epoch, group=group)
        with telling(options.token):
            size = self._planner.insist(plan)
        count = max(1, min(options.partitions, size // _ROWS_PER_SLICE))
        cuts = [size * n // count for n in range(count + 1)]
        return [Slice(group, low + 1, high) for low, high in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Reads a slice: what the group still holds of it."""
        if not isinstance(partition, Slice):
            raise IllegalState(f"{type(partition).__name__} is no partition of this source")
        route = of_executors(self.options.route)
        with telling(self.options.token), Steadfast(route) as reader:
            first, many = partition.first, _ROWS_AT_FIRST
            while first <= partition.last:  # each turn advances it
                last = min(partition.last, first + many - 1)
                rows = reader.insist(SparkRead(group=partition.group, first=first, last=last))
                if rows:
                    batch, refused = decoder_of(self.options.requests).decoded(rows)
                    if refused is not None:
                        reader.insist(replace(refused, group=partition.group))
                    yield batch
                    many = rows_of_a_read(sum(len(row[-1]) for row in rows), len(rows))
                self.at("read")
                first = last + 1

    def commit(self, end: dict[str, int]) -> None:
        """Is told, a batch later, what is not read again: a stateful server kept it until then."""
        if self.options.stateful:
            options = self.options
            purge = SparkPurge(server_id=options.server_id, epoch=options.epoch, group=end["claim"])
            with telling(options.token):
                self._planner.insist(purge)

    def stop(self) -> None:
        """Closes the connection of the planning process."""
        self._planner.close()


def rows_of_a_read(size: int, rows: int) -> int:
    """Returns how many requests to read at once, given so many bytes in so many bodies."""
    return max(1, min(_ROWS_PER_READ, _BYTES_PER_READ * rows // max(1, size)))
