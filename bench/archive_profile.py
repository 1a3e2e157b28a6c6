"""`python -m bench profile --archive ROWS`: what the archive, a look-up in it and a restore take.

History of one month is filled by COPY. Then all of it is archived; half is trimmed, for which each
file is hashed first; every rid is looked up by a join, over what is archived and what is not; and a
day of what was trimmed is put back. Spark is already running when the first step begins.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
import time
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console
from rich.table import Table

import onceq
from bench.old_requests import DAYS, FIRST, QUEUES, Past

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from bench.systems import Ground


def report(rows: int, ground: Ground, *, as_json: bool) -> int:
    """Measure each step on so many rows, and say what it takes."""
    from onceq.spark import build_session  # noqa: PLC0415 # pyspark may not be there

    with onceq.open(ground.conninfo) as qm:
        for name in QUEUES:
            qm.declare(onceq.Queue(name, bytes, bytes))
    past = Past(rows)
    with psycopg.connect(ground.conninfo) as connection:
        past.fill(connection)
    spark = build_session("bench")
    try:
        with tempfile.TemporaryDirectory(prefix="onceq-archive-") as root:
            found = _steps(spark, ground.conninfo, root, past)
    finally:
        spark.stop()
    if as_json:
        for step, costs in found.items():
            print(json.dumps({"v": 1, "kind": "profile", "scenario": f"archive {step}", **costs}))
    else:
        Console().print(_table(found))
    return 0


def _steps(
    spark: SparkSession, conninfo: str, root: str, past: Past
) -> dict[str, dict[str, float]]:
    from onceq.spark.pipelines import archive, records, restore  # noqa: PLC0415 # as above

    spark.range(1000).count()
    half = (dt.datetime.now(dt.UTC) - FIRST - dt.timedelta(days=DAYS / 2)).days
    first = FIRST.date()

    def archived() -> tuple[int, int]:
        done = archive(root, conninfo, spark=spark)
        return sum(done.rows.values()), done.bytes

    def trimmed() -> tuple[int, int]:
        done = archive(root, conninfo, spark=spark, keep_days=half)
        return sum(done.trimmed.values()), 0

    def looked_up() -> tuple[int, int]:
        wanted = spark.range(past.rows).selectExpr("concat('r', id) as rid")
        with records(spark, url=conninfo) as every:
            found = every.join(wanted, "rid")
            return found.selectExpr("count(outcome)", "count(finished_at)").collect()[0][0], 0

    def restored() -> tuple[int, int]:
        done = restore(conninfo, since=first, until=first + dt.timedelta(days=1))
        return sum(done.rows.values()), 0

    steps = {
        "archive": archived,
        "trim half": trimmed,
        "look up every rid": looked_up,
        "restore a day": restored,
    }
    return {name: _timed(step) for name, step in steps.items()}


def _timed(step: Callable[[], tuple[int, int]]) -> dict[str, float]:
    began = time.monotonic()
    rows, size = step()
    seconds = time.monotonic() - began
    costs = {"rows": rows, "seconds": round(seconds, 1), "rows a second": round(rows / seconds)}
    return costs | ({"bytes a row": round(size / rows, 1)} if size else {})


def _table(found: dict[str, dict[str, float]]) -> Table:
    """Return what each step took, one row each."""
    names = list(dict.fromkeys(name for costs in found.values() for name in costs))
    made = Table("", *names)
    for step, costs in found.items():
        made.add_row(step, *(f"{costs[one]:,}" if one in costs else "" for one in names))
    return made
