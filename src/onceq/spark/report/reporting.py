"""The report: load, waiting and service times, aborts, failures and recoveries, as tables and page.

Public through `onceq.spark.pipelines`. Spark counts everything, live and archived; what comes to
the driver is bounded (`findings`). A run writes aside, and its result replaces the former
one by a rename: a run that dies leaves the former result whole.
Source: spec P7, Q14.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from onceq.model.archive_ops import Kind
from onceq.spark.archive.files import check_root, spoken
from onceq.spark.archive.records import records
from onceq.spark.archive.sessions import own_session
from onceq.spark.given.route import reach
from onceq.spark.pages.figures import require_figures
from onceq.spark.read.reading import reading
from onceq.spark.report.facts import (
    ABORT_COLUMNS,
    END_COLUMNS,
    Facts,
    Records,
    Span,
    gather,
    measured,
    spread,
)
from onceq.spark.report.findings import find
from onceq.spark.report.incidents import Incident, checked
from onceq.spark.report.replacing import LATEST, replacing
from onceq.spark.report.report_page import Subject, report_page
from onceq.spark.report.report_tables import GROUPS
from onceq.spark.session import build_session, is_local
from onceq.spark.source import OnceqDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERYTHING: Final = Span()
PAGE: Final = "report.html"
_STAGED: Final = "staged"
_ORDER: Final = ("span", "by", "starts_at", "name")
_ABORTS: Final = (*GROUPS, "charge", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The result of a report. page: the file to open. tables: their folders, by name.

    ended, aborts: how many of each it counts.
    """

    page: str
    tables: dict[str, str]
    ended: int
    aborts: int


def report(
    out: str | Path,
    url: str | None = None,
    *,
    repository: str = "onceq",
    span: Span = EVERYTHING,
    incidents: Sequence[Incident] = (),
    spark: SparkSession | None = None,
) -> Reported:
    """Reports on what has ended in a span of time, live and archived.

    out: a directory that the driver and the executors see. Its `latest` leads to the result, a page
    `report.html` and the tables `ends` and `aborts` in Parquet; the former result is removed once
    the new one has replaced it. incidents: what happened, shown on the axis of time with its
    effects. Raises InvalidValue, IllegalState (another run writes there), EnvironmentFault (Spark
    failed), MissingExtra (matplotlib), CannotConnect, SchemaMissing: the former result is still
    there.
    """
    befell = checked(incidents)
    require_figures()
    root = check_root(out, "a report's place")
    with (
        reach(url, repository),
        own_session(spark or build_session("onceq report"), "there is no new report") as session,
        replacing(root) as folder,
        _read(session, url, repository) as read,
    ):
        facts = gather(read, folder / _STAGED, span)
        days = _write_tables(facts, folder)
        found = find(facts, days, befell)
        subject = Subject(repository=repository, span=span)
        (folder / PAGE).write_text(report_page(subject, found), encoding="utf-8")
        shutil.rmtree(folder / _STAGED)
    latest = root / LATEST
    return Reported(
        page=str(latest / PAGE),
        tables={name: str(latest / name) for name in ("ends", "aborts")},
        ended=found.overall.get("ended", 0),
        aborts=sum(found.aborted.values()),
    )


@contextlib.contextmanager
def _read(session: SparkSession, url: str | None, repository: str) -> Generator[Records]:
    with (
        records(session, Kind.HISTORY, url, repository=repository, columns=END_COLUMNS) as history,
        records(
            session, Kind.ATTEMPT, url, repository=repository, columns=ABORT_COLUMNS
        ) as attempts,
        reading("servers", url, repository=repository, local=is_local(session)) as options,
    ):
        servers = session.read.format(OnceqDataSource.name()).options(**options).load()
        yield Records(history=history, attempts=attempts, servers=servers)


def _write_tables(facts: Facts, folder: Path) -> DataFrame:
    """Writes the tables; returns the rows for days, of everything."""
    ends = measured(spread(facts.ends), *GROUPS)
    aborts = spread(facts.aborts).groupBy(*_ABORTS).agg(sf.count("*").alias("aborts"))
    for name, table in (("ends", ends), ("aborts", aborts)):
        table.sortWithinPartitions(*_ORDER).write.parquet(spoken(folder / name))
    written = ends.sparkSession.read.schema(ends.schema).parquet(spoken(folder / "ends"))
    return written.where("span = 'day' and by = 'all'")
