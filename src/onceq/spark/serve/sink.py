"""The sink of the data source `onceq`: tasks stage rows, the driver commits them as one.

Used by Spark, through `onceq.spark.source`. Every staged row names the request that it was computed
from. The commit applies a row only if it removes that request in the same transaction; a row of
several requests (column eids) only if it removes them all, else nothing of the batch. Staged rows
are keyed by attempt, so a task that is run twice counts once: the commit is told which attempts
count.
Source: spec P1, P2; spark.md, Stream writer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from onceq.engine.faultpoints import faultpoint
from onceq.engine.perform.spark_driver import NAMED, REPLIES, ROWS, of_executors
from onceq.engine.perform.steadfast import Steadfast
from onceq.errors import (
    EnvironmentFault,
    IllegalState,
    InvalidValue,
    SchemaMissing,
    StatementRefused,
)
from onceq.model.spark_ops import SparkAttempt, SparkBlame, SparkCommit, SparkDiscard
from onceq.spark.arrow import RecordBatch
from onceq.spark.given.options import ServingOptions
from onceq.spark.serve import encode
from onceq.spark.serve.schema import check_sink
from onceq.spark.serve.words import telling

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# Undocumented, and pinned by the canary test: how a task learns which query's batch it is in.
_QUERY_KEY = "sql.streaming.queryId"
_BATCH_KEY = "streaming.sql.batchId"
_REFUSALS = (StatementRefused, InvalidValue, SchemaMissing)
_BLAMED_MAX = 3
"""Rows that are refused one by one may leave others that are refused together."""


@dataclass
class Staged(WriterCommitMessage):
    """What one attempt of a task has staged."""

    attempt: int
    rows: int
    query_id: str
    batch_id: int


class OnceqStreamWriter(DataSourceStreamArrowWriter):
    """Stages on executors; commits on the driver, in a process of its own each time."""

    def __init__(self, options: ServingOptions, schema: StructType) -> None:
        self.options = options
        self.columns = check_sink(schema, options.tables)

    def at(self, point: str) -> None:
        """Is told which of `POINTS` the writer has reached: a fault point."""
        faultpoint(f"spark.{point}")

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of a task, all or none; they wait for the commit, or for the sweep."""
        with telling(self.options.token):
            return self._stage(iterator)

    def _stage(self, iterator: Iterator[RecordBatch]) -> Staged:
        query_id, batch_id = _whose()
        op = SparkAttempt(
            server_id=self.options.server_id,
            epoch=self.options.epoch,
            query_id=query_id,
            batch_id=batch_id,
        )
        # Computed before a transaction is open: it would hold back vacuum, or be lost meanwhile.
        first = list(itertools.islice(iterator, 1))
        with Steadfast(of_executors(self.options.route)) as connected:
            with connected.driver().staging(op) as stage:
                for batch in itertools.chain(first, iterator):
                    self.at("write")
                    stage.copy(REPLIES, *encode.replies(batch, stage.attempt))
                    if "eids" in batch.schema.names:
                        stage.copy(NAMED, *encode.named(batch, stage.attempt))
                    for lines in encode.table_rows(batch, stage.attempt, list(self.columns)):
                        stage.copy(ROWS, *lines)
            self.at("staged")
        return Staged(stage.attempt, stage.rows, query_id, batch_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commits the batch. Called again with the same number if its end was not logged."""
        with telling(self.options.token):
            self._commit(messages, batchId)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        staged = _all_staged(messages)
        specs = [
            change.for_sql(name, number, self.columns[name])
            for number, (name, change) in enumerate(self.options.tables.items(), 1)
        ]
        op = SparkCommit(
            server_id=self.options.server_id,
            epoch=self.options.epoch,
            query_id=staged[0].query_id,
            batch_id=batch_id,
            attempts=[each.attempt for each in staged],
            rows=sum(each.rows for each in staged),
            tables=specs,
            content_type=self.options.content_type,
        )
        self.at("commit")
        with Steadfast(self.options.route) as connected:
            for _ in range(_BLAMED_MAX):
                if self._conclude(connected, op, blaming=True):
                    break
            else:
                self._conclude(connected, op, blaming=False)
            self.at("committed")

    def _conclude(self, connected: Steadfast, op: SparkCommit, *, blaming: bool) -> bool:
        """Commits; False: a table refused rows, whose requests now have an error instead."""
        try:
            with connected.driver().concluding(op):
                self.at("concluded")
        except _REFUSALS:
            # A state already holds what rows were computed from: that batch runs again, in halves.
            if self.options.stateful or not blaming or not op.tables:
                raise
            blame = SparkBlame(
                server_id=op.server_id, epoch=op.epoch, attempts=op.attempts, tables=op.tables
            )
            if not connected.perform(blame):
                raise
            return False
        return True

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's signature
        """Removes what the tasks of a failed batch staged; what it misses is swept later."""
        attempts = [each.attempt for each in messages if isinstance(each, Staged)]
        with Steadfast(self.options.route) as connected:
            connected.insist(SparkDiscard(attempts=attempts))


def _whose() -> tuple[str, int]:
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_KEY) if context is not None else None
    batch_id = context.getLocalProperty(_BATCH_KEY) if context is not None else None
    if query_id is None or batch_id is None:
        raise IllegalState("the sink of onceq writes the micro-batches of a streaming query only")
    return query_id, int(batch_id)


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    staged = [each for each in messages if isinstance(each, Staged)]
    if not staged or len(staged) != len(messages):
        raise EnvironmentFault("a task of this batch has staged nothing: it must be run again")
    return staged
