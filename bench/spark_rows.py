"""Spark as the server, against the same transform from JDBC to JDBC without guarantees; its reader.

Ours: requests with replies and a row in the user's table, at most 50,000 a micro-batch, by a
server that runs on while slices come, with two queries and with one; timed from the opening of the
queue until it is empty. The other: the same columns read, computed and written, 50,000 rows at a
time, as Spark's own JDBC source and sink do it; nothing is removed, and what fails halfway stays
half done. The reader is in `spark_reading`. PostgreSQL listens on loopback for JDBC, which cannot
use Unix sockets.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import psycopg.sql

import onceq
from bench.listening import HOST
from bench.pairs import Runner, alternate, ratios
from bench.results import Result, Slice
from bench.spark_reading import reading_runners
from bench.workers.base import require_count
from bench.workers.onceq_worker import init

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyspark.sql import DataFrame, SparkSession

    from bench.pairs import Pace
    from bench.results import Side
    from bench.scene import Scene

NAMES = ("spark/rate", "spark/one-query", "spark/jdbc", "spark/read")
QUESTIONS = (
    "Spark server with two queries, 50,000 a batch, requests with replies and a user's table",
    "the same with one query",
    "Spark server with two queries by the same transform from JDBC to JDBC without guarantees",
    "Spark's read of queue and history by Spark's own JDBC source",
)
TARGETS = (30_000.0, None, 0.5, 1.0)
QUERIES = 2
DATABASE = "spark"
BATCH = 50_000
NUMBER = 100_000
CHUNK = 10_000
SLICE_S = 4.0
EMPTY_S = 120.0
LOOK_S = 0.05
JARS = (
    "/usr/share/java/postgresql*.jar",
    "~/.m2/repository/org/postgresql/postgresql/*/postgresql-*.jar",
)
SCHEMA = "customer long, cents long, note string"
TABLES = """
create table booked (customer bigint, cents bigint);
create table source (id bigint primary key, body text not null);
create table sink (customer bigint, cents bigint);
create table answered (id bigint, reply text)
"""


class Order(msgspec.Struct):
    """A request of about 200 bytes."""

    customer: int
    cents: int
    note: str


class Receipt(msgspec.Struct):
    """Its reply."""

    customer: int
    cents: int


ORDERS = onceq.Queue("orders", Order, Receipt)
ORDER = Order(customer=4711, cents=1999, note="x" * 150)


@dataclass(frozen=True, slots=True)
class Stage:
    """What both sides work with."""

    spark: SparkSession
    conninfo: str
    connection: psycopg.Connection[Any]
    rids: Any


def run(scene: Scene) -> None:
    """Measure the server; beside JDBC if there is a driver."""
    for result in _measured(scene):
        scene.told.found(result)


def _measured(scene: Scene) -> Generator[Result]:
    rate, one_query, jdbc, read = (
        Result(name=name, question=question, unit=unit, target=target)
        for name, question, unit, target in zip(
            NAMES, QUESTIONS, ("/s", "/s", "ratio", "ratio"), TARGETS, strict=True
        )
    )
    if importlib.util.find_spec("pyspark") is None:
        missing = "Spark is not installed: pip install 'onceq[spark]'"
        yield from (replace(one, skipped=missing) for one in (rate, one_query, jdbc, read))
        return
    jar = find_jar()
    scene.told.started(rate.name)
    ours, single, *other = _sides(scene, jar)
    yield replace(rate, rounds=tuple(one.per_s for one in ours.slices), sides=(ours,))
    yield replace(one_query, rounds=tuple(one.per_s for one in single.slices), sides=(single,))
    if other:
        yield replace(jdbc, rounds=ratios(ours, other[0]), sides=(ours, *other))
    else:
        missing = "no JDBC driver: Debian's libpostgresql-jdbc-java has it"
        yield from (replace(one, skipped=missing) for one in (jdbc, read))
        return
    scene.told.started(read.name)
    reader, source = _reading_sides(scene, jar)
    yield replace(read, rounds=ratios(reader, source), sides=(reader, source))


def find_jar() -> Path | None:
    """Return PostgreSQL's JDBC driver: ONCEQ_JDBC_JAR, Debian's, or Maven's newest."""
    named = os.environ.get("ONCEQ_JDBC_JAR")
    if named:
        return Path(named)
    patterns = (Path(pattern).expanduser() for pattern in JARS)
    found = (sorted(path.parent.parent.glob(f"*/{path.name}")) for path in patterns)
    return next((paths[-1] for paths in found if paths), None)


@contextlib.contextmanager
def _staged(scene: Scene, name: str, jar: Path | None) -> Generator[tuple[Stage, dict[str, str]]]:
    """Make a database and a session; yield them, and what Spark's JDBC is told."""
    from onceq.spark import build_session  # noqa: PLC0415 # pyspark may not be there

    settings = {} if jar is None else {"spark.jars": str(jar)}
    with scene.listening(name) as (ground, loopback), contextlib.ExitStack() as stack:
        conninfo = ground.database(DATABASE)
        init(conninfo)
        connection = stack.enter_context(psycopg.connect(conninfo, autocommit=True))
        connection.execute(TABLES)
        spark = build_session("bench", settings=settings)
        stack.callback(spark.stop)
        stage = Stage(spark, conninfo, connection, itertools.count())
        yield (
            stage,
            {
                "url": f"jdbc:postgresql://{HOST}:{loopback.port}/{DATABASE}"
                "?reWriteBatchedInserts=true",
                "user": loopback.user,
                "password": loopback.password,
                "driver": "org.postgresql.Driver",
                "fetchsize": "10000",
                "batchsize": "10000",
            },
        )


def _pace(scene: Scene) -> Pace:
    return replace(scene.pace, rounds=min(3, scene.pace.rounds), slice_s=SLICE_S)


def _sides(scene: Scene, jar: Path | None) -> tuple[Side, ...]:
    with (
        _staged(scene, "spark", jar) as (stage, jdbc),
        _serving(stage, QUERIES) as served,
        _serving(stage, 1) as served_by_one,
    ):
        runners = [
            Runner(name="onceq.spark", run=served, first=BATCH),
            Runner(name="onceq.spark, one query", run=served_by_one, first=BATCH),
        ]
        if jar is not None:
            runners.append(Runner(name="JDBC to JDBC", run=_jdbc(stage, jdbc), first=BATCH))
        for runner in runners:
            runner.step, runner.most = BATCH, NUMBER
        return alternate(runners, _pace(scene))


def _reading_sides(scene: Scene, jar: Path | None) -> tuple[Side, ...]:
    with _staged(scene, "reading", jar) as (stage, jdbc):
        runners = reading_runners(stage.spark, stage.conninfo, stage.connection, jdbc)
        return alternate(runners, _pace(scene))


def book(requests: DataFrame) -> DataFrame:
    """Return for each request its receipt and its booking."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 # pyspark may not be there

    row = sf.struct("request.customer", "request.cents")
    return requests.select("eid", row.alias("reply"), row.alias("booked"))


@contextlib.contextmanager
def _serving(stage: Stage, queries: int) -> Generator[Callable[[int], Slice]]:
    """Run our server of a queue of its own on a thread; yield what measures a slice."""
    from onceq import spark  # noqa: PLC0415 # pyspark may not be there

    orders = onceq.Queue(f"orders-{queries}", Order, Receipt)
    server = spark.Server(
        orders,
        batch=book,
        tables={"booked": spark.insert()},
        batch_rows=BATCH,
        settings=spark.ServerSettings(queries=queries),
    )
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            server.run(stage.conninfo, spark=stage.spark)
        except BaseException as error:  # raised again where the slice waits
            failures.append(error)
            raise

    thread = threading.Thread(target=serve)
    with (
        onceq.open(stage.conninfo) as qm,
        qm.clerk(f"shop-{queries}", orders, window=NUMBER) as clerk,
    ):
        qm.declare(orders)
        thread.start()

        def run_slice(number: int) -> Slice:
            qm.stop(orders.name, enqueue=False)
            for _ in range(0, number, CHUNK):
                rids = itertools.islice(stage.rids, CHUNK)
                clerk.send_many([(str(rid), ORDER) for rid in rids])
            qm.start(orders.name)
            seconds = _emptied(qm, orders.name, failures)
            for _ in range(0, number, CHUNK):
                replies = clerk.receive_many(CHUNK, timeout_s=60)
                clerk.acknowledge([reply.rid for reply in replies])
            _expect(stage, "booked", number)
            return Slice(number=number, seconds=seconds)

        try:
            yield run_slice
        finally:
            server.stop()
            thread.join()


def _emptied(qm: onceq.QueueManager, queue: str, failures: list[BaseException]) -> float:
    started = time.perf_counter()
    while qm.show(queue).depth:
        time.sleep(LOOK_S)
        if failures or time.perf_counter() - started > EMPTY_S:
            raise TimeoutError(f"the Spark server did not empty its queue: {failures}")
    return time.perf_counter() - started


def _jdbc(stage: Stage, options: dict[str, str]) -> Callable[[int], Slice]:
    """Return what measures a slice of the transform from JDBC to JDBC."""

    def run_slice(number: int) -> Slice:
        body = msgspec.json.encode(ORDER).decode()
        stage.connection.execute(
            "insert into source select n, %s from generate_series(1, %s) as n", (body, number)
        )
        started = time.perf_counter()
        for first in range(1, number, BATCH):
            _transform(stage.spark, options, first)
        seconds = time.perf_counter() - started
        _expect(stage, "answered", number)
        _expect(stage, "sink", number)
        stage.connection.execute("truncate source")
        return Slice(number=number, seconds=seconds)

    return run_slice


def _transform(spark: SparkSession, options: dict[str, str], first: int) -> None:
    """Read a batch, compute both outputs, and write them."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 # pyspark may not be there

    bounds = {"partitionColumn": "id", "numPartitions": "2"}
    bounds |= {"lowerBound": str(first), "upperBound": str(first + BATCH)}
    batch = f"(select id, body from source where id >= {first} and id < {first + BATCH}) batch"  # noqa: S608 # our own numbers
    read = spark.read.format("jdbc").options(**options, **bounds, dbtable=batch).load()
    request = sf.from_json("body", SCHEMA)
    rows = read.select("id", request.alias("request")).persist()
    written = {
        "sink": rows.select("request.customer", "request.cents"),
        "answered": rows.select(
            "id", sf.to_json(sf.struct("request.customer", "request.cents")).alias("reply")
        ),
    }
    for table, frame in written.items():
        frame.write.format("jdbc").options(**options, dbtable=table).mode("append").save()
    rows.unpersist()


def _expect(stage: Stage, table: str, number: int) -> None:
    counted = psycopg.sql.SQL("select count(*) from {}").format(psycopg.sql.Identifier(table))
    row = stage.connection.execute(counted).fetchone()
    require_count(f"rows in {table}", 0 if row is None else row[0], number)
    stage.connection.execute(f"truncate {table}".encode())
