"""Bulk enqueue with Spark: each row once, whatever dies, and its reply collected like any other."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import onceq
from onceq import errors
from onceq.engine.faultpoints import VARIABLE
from onceq.engine.perform.spark_driver import Route, SparkDriver
from onceq.files import CollectOrder, collect
from onceq.spark.archive.sessions import SPARK_FAILED
from onceq.spark.arrow import pa
from onceq.spark.pipelines import archive, unsent
from onceq.spark.source import OnceqDataSource
from onceq.spark.write.enqueue import BODIES_BYTES, ROWS, OnceqBatchWriter, chunks
from onceq.spark.write.writing import WritingOptions
from proof.harness.ledger import ask
from tests.parts import plain, serving, wait_until
from tests.spark.writing_parts import CHILD_ROWS, CLIENT, ORDERS, enqueue, orders, places

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def double(order: dict[str, int], _: onceq.Context) -> dict[str, int]:
    return {"cents": 2 * order["cents"]}


def serve_all(url: str, repository: str) -> None:
    left = f"select count(*) from {repository}.element where role = 'request'"
    with serving(url, repository, ORDERS.handled_by(double, batch=500)):
        wait_until(lambda: ask(url, left) == [(0,)], 200)


def test_rows_wait_for_room_in_a_queue_that_is_full(qm: onceq.QueueManager, onceq_url: str) -> None:
    """What does not fit together goes in halves, and one row waits; not for ever."""
    small = onceq.Queue("small", bytes, bytes, limits=onceq.Limits(depth=2))
    qm.declare(small)
    with connected(onceq_url, qm.repository) as (writer, driver):
        batch = pa.RecordBatch.from_pydict(
            {"rid": [f"r{n}" for n in range(20)], "body": [b"x"] * 20}
        )
        with serving(onceq_url, qm.repository, small.handled_by(lambda value, _: value)):
            assert writer.enqueue(driver, batch) == 20
            wait_until(lambda: qm.show("small").depth == 0)
        assert writer.enqueue(driver, batch) == 0


@contextlib.contextmanager
def connected(url: str, repository: str) -> Generator[tuple[OnceqBatchWriter, SparkDriver]]:
    """A task's writer to the queue "small", and its driver."""
    kind = StructType([StructField("rid", StringType()), StructField("body", BinaryType())])
    route = Route(url="", conninfo=url, repository=repository)
    options = WritingOptions(route=route, queue="small", content_type="text/plain")
    with plain(url) as connection:
        yield OnceqBatchWriter(options, kind), SparkDriver(connection, repository)


def test_each_row_is_a_request_whose_reply_is_collected(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    enqueue(orders(spark, 100), onceq_url, qm.repository)
    serve_all(onceq_url, qm.repository)
    enqueue(orders(spark, 120), onceq_url, qm.repository)
    serve_all(onceq_url, qm.repository)
    order = CollectOrder(client=CLIENT, out=tmp_path / "replies.jsonl")
    assert collect(order, onceq_url, qm.repository).outcomes == {"done": 120}
    lines = [msgspec.json.decode(line) for line in order.out.read_bytes().splitlines()]
    found = {one["rid"]: one["reply"]["cents"] for one in lines}
    assert found == {f"order-{n}": 2 * n for n in range(120)}
    archive(tmp_path / "archive", onceq_url, repository=qm.repository, spark=spark)
    enqueue(orders(spark, 130), onceq_url, qm.repository)
    assert places(onceq_url, qm.repository) == {f"order-{n}": 1 for n in range(130)}
    assert qm.show("orders").depth == 10


@pytest.mark.parametrize("registrant", [CLIENT, None])
def test_what_was_trimmed_is_found_in_the_archive(
    spark: SparkSession,
    qm: onceq.QueueManager,
    onceq_url: str,
    tmp_path: Path,
    registrant: str | None,
) -> None:
    qm.declare(ORDERS)
    name, count = qm.repository, f"select count(*) from {qm.repository}.history"
    enqueue(orders(spark, 3), onceq_url, name, registrant)
    for one in ask(onceq_url, f"select eid from {name}.element"):
        qm.kill(one[0])
    ask(onceq_url, f"delete from {name}.element")
    archive(tmp_path / "archive", onceq_url, repository=name, spark=spark, keep_days=0)
    assert ask(onceq_url, count) == [(0,)]
    qm.kill(qm.enqueue(ORDERS, {}, rid="order-3"))  # of nobody's, under a random eid
    where: dict[str, Any] = {"registrant": registrant, "repository": name}
    with unsent(orders(spark, 5), ORDERS, onceq_url, **where) as fresh:
        enqueue(fresh, onceq_url, name, registrant)
    found = ask(onceq_url, f"select rid from {name}.element order by rid")
    assert found == [("order-3",), ("order-4",)]


def test_columns_say_how_an_element_is_enqueued(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str
) -> None:
    qm.declare(ORDERS)
    moment = dt.datetime(2100, 1, 1, 0, 0, 0, 123457, dt.UTC)
    rows: Any = [("a", b"{}", 9, moment, '{"k": 1}', "c-1", "x/y"), ("b", b"{}", *[None] * 5)]
    columns = (
        "rid string, body binary, priority int, not_before timestamp, properties string,"
        " correlation_id string, content_type string"
    )
    for _ in range(2):
        enqueue(spark.createDataFrame(rows, columns), onceq_url, qm.repository, None)
    found = ask(
        onceq_url,
        "select rid, role::text, priority, not_before, properties, correlation_id, content_type"
        f" from {qm.repository}.element order by rid",
    )
    assert found == [
        ("a", "datagram", 9, moment, {"k": 1}, "c-1", "x/y"),
        ("b", "datagram", 4, None, None, None, "application/json"),
    ]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("'a' as rid", "no column 'body'"),
        ("'a' as rid, '' as body, 1 as eid", "'eid' says nothing of an element"),
        ("1 as rid, '' as body", "'rid' is string, not int"),
        ("'a' as rid, 1 as body", "'body' is binary or string, not int"),
        ("'a' as rid, '' as body, '' as correlation_id", "a request has no correlation_id"),
        ("cast(null as string) as rid, '' as body", "a rid is a str, not NoneType"),
        ("'a' as rid, cast(null as binary) as body", "rid 'a' has no body"),
        ("'a' as rid, '' as body, '[]' as properties", "of rid 'a' are not a JSON object"),
        ("'a' as rid, '' as body, 10 as priority", "from 0 to 9, not 10"),
    ],
)
def test_what_cannot_be_enqueued_is_said(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str, columns: str, says: str
) -> None:
    qm.declare(ORDERS)
    with pytest.raises(PySparkException, match=says):
        enqueue(spark.sql(f"select {columns}"), onceq_url, qm.repository)
    assert qm.show("orders").depth == 0


def test_a_queue_is_not_overwritten(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str
) -> None:
    source = OnceqDataSource({})
    with pytest.raises(errors.InvalidValue, match="append"):
        source.writer(orders(spark, 1).schema, overwrite=True)
    with pytest.raises(errors.InvalidValue, match="'conninfo' is missing"):
        source.writer(orders(spark, 1).schema, overwrite=False)
    given = {"conninfo": "", "repository": "r", "queue": "q", "content_type": "c"}
    with pytest.raises(errors.InvalidValue, match="'epoch' is missing"):
        WritingOptions.from_spark({**given, "registrant_id": "1"})
    with pytest.raises(errors.InvalidValue, match="are numbers"):
        WritingOptions.from_spark({**given, "registrant_id": "1", "epoch": "x", "send_no": "0"})
    with pytest.raises(PySparkException, match='queue "orders" does not exist'):
        enqueue(orders(spark, 1), onceq_url, qm.repository)


def test_a_transaction_has_so_many_rows_and_bytes() -> None:
    def sizes(*bodies: bytes | None) -> list[int]:
        batch = pa.record_batch([pa.array(bodies, pa.binary())], names=["body"])
        return [one.num_rows for one in chunks(batch)]

    large = bytes(BODIES_BYTES // 2)
    assert sizes() == []
    assert sizes(b"", None, b"x") == [3]
    assert sizes(large, large, b"x", large, bytes(BODIES_BYTES + 1)) == [2, 2, 1]
    assert sizes(*[b""] * (2 * ROWS + 1)) == [ROWS, ROWS, 1]


HALT = """
create function {0}.halt() returns trigger language plpgsql as $$
begin
  if (select count(*) from {0}.element) > {1} then
    perform pg_catalog.pg_advisory_xact_lock_shared({2});
  end if;
  return null;
end $$;
create trigger halt after insert on {0}.element for each statement execute function {0}.halt();
"""
WAITING = """
select pg_terminate_backend(pid, 60000) from pg_locks
where locktype = 'advisory' and not granted and classid = 0 and objid = %s
and database = (select oid from pg_database where datname = current_database())
"""


@contextlib.contextmanager
def halted(conninfo: str, repository: str, rows: int) -> Generator[None]:
    """A block in which so many elements and few more are enqueued; whoever waits for more dies."""
    with plain(conninfo) as holder:
        key = os.getpid()
        holder.execute("select pg_advisory_lock(%s)", [key])
        holder.execute(HALT.format(repository, rows, key).encode())
        try:
            yield
        finally:
            holder.execute(WAITING, [key])
            holder.execute("select pg_advisory_unlock(%s)", [key])
            holder.execute(f"drop function {repository}.halt() cascade".encode())


@contextlib.contextmanager
def child(url: str, repository: str, place: Path) -> Generator[subprocess.Popen[bytes]]:
    """A driver of its own that enqueues CHILD_ROWS orders, one of whose tasks dies on the way."""
    armed = f"bulk.enqueued 2 kill {place}"
    pids = str(place / "pids")
    with (place / "errors").open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.writing_child", url, repository, pids],
            stderr=log,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: armed},
        )
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


@pytest.mark.timeout(600)
def test_a_killed_driver_has_enqueued_a_part_and_the_next_the_rest(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str, tmp_path: Path
) -> None:
    qm.declare(ORDERS)
    with (
        halted(qm.located.conninfo, qm.repository, CHILD_ROWS // 2),
        child(onceq_url, qm.repository, tmp_path) as driver,
    ):
        wait_until(lambda: qm.show("orders").depth >= 500 or driver.poll() is not None, 300)
        for pid in (tmp_path / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        assert driver.wait(150) == -signal.SIGKILL, (tmp_path / "errors").read_text()
    assert (tmp_path / "bulk.enqueued").stat().st_size >= 3  # a task had died, and was run again
    serve_all(onceq_url, qm.repository)
    enqueue(orders(spark, CHILD_ROWS), onceq_url, qm.repository)
    found = places(onceq_url, qm.repository)
    assert found == {f"order-{n}": 1 for n in range(CHILD_ROWS)}
    assert 0 < qm.show("orders").depth < CHILD_ROWS  # the first driver had come to the middle


@pytest.mark.timeout(400)
@pytest.mark.parametrize("point", ["bulk.read", "bulk.enqueued"])
def test_a_process_that_dies_has_enqueued_a_part_and_the_next_the_rest(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str, tmp_path: Path, point: str
) -> None:
    """The process of a task, in a session that does not try it again."""
    qm.declare(ORDERS)
    rows = orders(spark, 400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(spark.sparkContext.environment, VARIABLE, f"{point} 3 kill {tmp_path}")
        spark.conf.set(BATCH, "40")
        with pytest.raises(SPARK_FAILED):
            enqueue(rows, onceq_url, qm.repository)
        spark.conf.unset(BATCH)
    assert 0 < qm.show("orders").depth < 400
    assert (tmp_path / point).stat().st_size >= 3
    enqueue(rows, onceq_url, qm.repository)
    assert places(onceq_url, qm.repository) == {f"order-{n}": 1 for n in range(400)}
