"""What one call of a Spark server's run() works with, and how each of its queries ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.engine.perform.spark_driver import Route
from onceq.engine.perform.steadfast import Steadfast
from onceq.errors import SchemaMissing, StatementRefused
from onceq.model.spark_ops import SparkCheckTable
from onceq.spark.serve.aborts import Aborts
from onceq.spark.serve.evidence import of_query
from onceq.spark.serve.settings import SparkStatistics
from onceq.spark.serve.verdicts import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from onceq.spark.given.options import ServingOptions


@dataclass(slots=True, eq=False)
class Home:
    """What one query of a call of run() works with. bound: with `once`, the last seq to serve.

    name: of its registration. format: of its data source. innocent: no request ended the last life.
    options: of the last life. lives, failures: so far, these by verdict.
    """

    name: str
    spark: SparkSession
    route: Route
    checkpoint: Path
    once: bool
    format: str = ""
    bound: int = 0
    quiet_failures: int = 0
    innocent: bool = False
    checks: list[SparkCheckTable] = field(default_factory=list)
    query_id: str | None = None
    aborts: Aborts | None = None
    options: ServingOptions | None = None
    lives: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])


def total(past: SparkStatistics, homes: Iterable[Home]) -> SparkStatistics:
    """Returns what a server has gone through: before, and in these."""
    lives, failures = past.lives, Counter(past.failures)
    for home in homes:
        lives += home.lives
        failures.update(home.failures)
    return SparkStatistics(lives=lives, failures=dict(failures))


def failure_of(query: StreamingQuery, home: Home, token: str) -> tuple[Verdict | None, str]:
    """Returns how a query ended, None for well, and what it said."""
    if query.lastProgress is not None:
        home.quiet_failures = 0
    found = of_query(query, token)
    if found is None:
        return None if home.once else Verdict.STOPPED, ""
    evidence, text = found
    return judge(evidence), text if evidence.word is None else evidence.word.text


def judge_refusal(home: Home, driver: Steadfast) -> Verdict:
    """Returns what a refused statement means: whether it is refused even without any row."""
    try:
        for check in home.checks:
            driver.perform(check)
    except (StatementRefused, SchemaMissing):
        return Verdict.PROGRAM
    return Verdict.CRASH
