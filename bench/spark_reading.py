"""Spark's read of history, by onceq's source and by Spark's own JDBC source, of the same columns.

A generator makes a history of requests with replies. Both read all of it in two slices, with
the same joins and the same columns, into nowhere (Spark's noop sink).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.pairs import Runner
from bench.results import Slice
from bench.workers.base import require_count

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from pyspark.sql import DataFrame, SparkSession

ROWS = 300_000
SLICES = 2
MADE = """
insert into onceq.queue (name, kind) values ('orders', 'request');
insert into onceq.registrant (name, thread, epoch, state) values ('shop', '', 1, 'connected');
insert into onceq.history (finished_at, enqueued_at, started_at, send_no, server, queue_id,
        registrant_id, aborts, role, outcome, eid, rid, sha256)
    select now(), now() - interval '3 s', now() - interval '20 ms', n, 7, q.queue_id,
        r.registrant_id, 0, 'request', 'done', gen_random_uuid(), 'order-' || n, sha256('x')
    from generate_series(1, {rows}) n, onceq.queue q, onceq.registrant r where q.name = 'orders';
analyze onceq.history
"""
DIGEST = "digest"


def reading_runners(
    spark: SparkSession,
    conninfo: str,
    connection: psycopg.Connection[Any],
    jdbc: dict[str, str],
) -> list[Runner]:
    """Make a history, and return what measures a read of it: ours, and by JDBC."""
    connection.execute(MADE.format(rows=ROWS).encode())
    ((first, last),) = connection.execute(
        b"select min(record_no), max(record_no) from onceq.history"
    ).fetchall()
    bounds = {"partitionColumn": "record_no", "numPartitions": str(SLICES)}
    bounds |= {"lowerBound": str(first), "upperBound": str(last + 1)}
    frame = spark.read.format("jdbc").options(**jdbc, **bounds, dbtable=_as_table()).load()
    runners = [
        Runner(name="onceq.spark", run=_ours(spark, conninfo), first=ROWS),
        Runner(name="Spark's JDBC", run=lambda _: _read(frame), first=ROWS),
    ]
    for runner in runners:
        runner.step = runner.most = ROWS
    return runners


def _ours(spark: SparkSession, conninfo: str) -> Callable[[int], Slice]:
    from onceq.spark import reading  # noqa: PLC0415 # pyspark may not be there
    from onceq.spark.source import OnceqDataSource  # noqa: PLC0415 # as above

    spark.dataSource.register(OnceqDataSource)
    columns = ", ".join(f"{one.name} {one.kind}" for one in _columns())

    def run_slice(_: int) -> Slice:
        with reading("history", conninfo, partitions=SLICES) as options:
            return _read(spark.read.format("onceq").schema(columns).options(**options).load())

    return run_slice


def _columns() -> list[Any]:
    from onceq.spark.read.relations import HISTORY  # noqa: PLC0415 # pyspark may not be there

    return [one for one in HISTORY.columns if one.name != DIGEST]


def _as_table() -> str:
    """Return the same columns of the same rows, in JDBC's form."""
    from onceq.spark.read.relations import HISTORY  # noqa: PLC0415 # pyspark may not be there

    named = ", ".join(f"{one.by} as {one.name}" for one in _columns())
    return f"(select {named} from {HISTORY.source.replace('{schema}', 'onceq')}) read"  # noqa: S608 # ours


def _read(frame: DataFrame) -> Slice:
    """Read every row and column, into nowhere."""
    from pyspark.sql import Observation  # noqa: PLC0415 # pyspark may not be there
    from pyspark.sql import functions as sf  # noqa: PLC0415 # as above

    counted = Observation()
    started = time.perf_counter()
    observed = frame.observe(counted, sf.count("*").alias("rows"))
    observed.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    require_count("rows read", counted.get["rows"], ROWS)
    return Slice(number=ROWS, seconds=seconds)
