"""`python -m bench profile --spark SIZES`: where the time of a micro-batch goes, by its size.

Spark's own phases of each batch (its progress), of which `addBatch` is reading, computing, staging
and the commit; what the SQL functions take in it; and the processor time of PostgreSQL, Java and
Python. Whole batches only, and not the first of a size, in which everything is compiled.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from rich.console import Console
from rich.table import Table

import onceq
from bench.costs import SETTLE_S, TICK_S
from bench.spark_rows import CHUNK, ORDER, ORDERS, book
from proof.torture.processes import descendants, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from pyspark.sql import SparkSession

    from bench.systems import Ground

BATCHES = 7
"""How many batches of each size are measured, after a first one."""
PHASES = (
    "latestOffset",
    "walCommit",
    "queryPlanning",
    "addBatch",
    "commitOffsets",
    "triggerExecution",
)
FUNCTIONS = ("spark_claim", "spark_plan", "spark_attempt", "spark_commit")
PARTS = ("spark_check_staged", "spark_doubled", "spark_finish", "spark_apply", "spark_sweep")
"""For the commit."""
CALLED = """
select funcname, total_time from pg_stat_user_functions where funcname = any(%s)
"""
WRITTEN = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_backend_pid()"
BOOKED = "create table if not exists booked (customer bigint, cents bigint)"
LOOK_S = 0.02
_OWN, _ALL = slice(11, 13), slice(11, 15)
"""The kernel's figures for a process: user and system time, its own and its ended children's."""
LIMIT_S = 300.0


def report(sizes: Sequence[int], ground: Ground, *, as_json: bool) -> int:
    """Measure batches of these sizes, and say what each costs."""
    from onceq.spark import build_session  # noqa: PLC0415 # pyspark may not be there

    spark = build_session("bench")
    found: dict[str, dict[str, float]] = {}
    try:
        with psycopg.connect(ground.conninfo, autocommit=True) as connection:
            connection.execute(BOOKED)
            connection.execute("alter system set track_functions = 'all'")
            connection.execute("select pg_reload_conf()")
            for size in sizes:
                found[f"{size:,} rows"] = _measured(spark, ground.conninfo, connection, size)
    finally:
        spark.stop()
    if as_json:
        for name, costs in found.items():
            print(json.dumps({"v": 1, "kind": "profile", "scenario": f"spark {name}", **costs}))
    else:
        Console().print(_table(found))
    return 0


def _measured(
    spark: SparkSession, conninfo: str, connection: psycopg.Connection[Any], size: int
) -> dict[str, float]:
    """Serve this many batches of a size; return what one costs, in milliseconds."""
    with onceq.open(conninfo) as qm, contextlib.ExitStack() as stack:
        qm.declare(ORDERS)
        qm.stop(ORDERS.name, enqueue=False)
        clerks = [
            stack.enter_context(qm.clerk(f"shop-{size}-{number}", ORDERS, window=size))
            for number in range(BATCHES + 1)
        ]
        with _served(spark, conninfo, size):
            _send(clerks[:1], size)
            _serve(qm, spark, size, 1)
            _send(clerks[1:], size)
            before = _read(connection)
            _serve(qm, spark, size, len(clerks))
            after = _read(connection)
            batches = list(_progress(spark, size).values())[1:]
        for clerk in clerks:
            _receive(clerk, size)
    costs = {
        name: statistics.median(one.durationMs.get(name, 0) for one in batches) for name in PHASES
    }
    costs |= {name: (after[name] - before.get(name, 0)) / BATCHES for name in after}
    costs["rows a second"] = size / costs["triggerExecution"] * 1000
    return {name: round(value, 1) for name, value in costs.items()}


def _send(clerks: Sequence[onceq.Clerk[Any, Any]], size: int) -> None:
    """Let each clerk send a batch, which nobody claims yet."""
    for clerk in clerks:
        for first in range(0, size, CHUNK):
            some = range(first, min(first + CHUNK, size))
            clerk.send_many([(str(number), ORDER) for number in some])


def _serve(qm: onceq.QueueManager, spark: SparkSession, size: int, so_far: int) -> None:
    """Let what is waiting be claimed, until there have been this many batches."""
    qm.start(ORDERS.name)
    _until(lambda: len(_progress(spark, size)) == so_far)
    qm.stop(ORDERS.name, enqueue=False)


def _receive(clerk: onceq.Clerk[Any, Any], left: int) -> None:
    while left:
        replies = clerk.receive_many(min(CHUNK, left), timeout_s=60)
        clerk.acknowledge([reply.rid for reply in replies])
        left -= len(replies)


@contextlib.contextmanager
def _served(spark: SparkSession, conninfo: str, size: int) -> Generator[None]:
    from onceq import spark as ours  # noqa: PLC0415 # pyspark may not be there

    server = ours.Server(ORDERS, batch=book, tables={"booked": ours.insert()}, batch_rows=size)
    thread = threading.Thread(target=server.run, args=(conninfo,), kwargs={"spark": spark})
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()


def _progress(spark: SparkSession, size: int) -> dict[int, Any]:
    """Return the progress of each whole batch of the query that runs."""
    return {
        one.batchId: one
        for query in spark.streams.active
        for one in query.recentProgress
        if one.numInputRows == size
    }


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the Spark server did not serve what it was given")
        time.sleep(LOOK_S)


def _read(connection: psycopg.Connection[Any]) -> dict[str, float]:
    """Return what was used so far: milliseconds in functions and of processors; KiB of WAL."""
    time.sleep(SETTLE_S)
    found = dict.fromkeys((*FUNCTIONS, *PARTS), 0.0)
    found |= dict(connection.execute(CALLED, ([*found],)).fetchall())
    ((wal, backend),) = connection.execute(WRITTEN).fetchall()
    postmaster = int(_stat(backend)[1])
    java = [pid for pid in descendants(os.getpid()) if name_of(pid) == "java"]
    return found | {
        "processor: PostgreSQL": _milliseconds([postmaster, *descendants(postmaster)]),
        "processor: Java": _milliseconds(java, _OWN),
        "processor: Python": _milliseconds([pid for one in java for pid in descendants(one)]),
        "WAL, KiB": float(wal) / 1024,
    }


def _milliseconds(pids: Iterable[int], fields: slice = _ALL) -> float:
    """Return the processor time of processes; of _ALL, with their children that have ended."""
    used = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):  # it has just ended: its parent counts it
            used += sum(map(int, _stat(pid)[fields]))
    return used * TICK_S * 1000


def _stat(pid: int) -> list[str]:
    """Return the kernel's figures for a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _table(found: dict[str, dict[str, float]]) -> Table:
    """Return the costs of all sizes side by side."""
    made = Table("milliseconds a batch", *found)
    for name in next(iter(found.values()), {}):
        made.add_row(name, *(f"{one[name]:,.1f}" for one in found.values()))
    return made
