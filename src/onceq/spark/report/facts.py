"""What a report counts: a short row for each end and each abort, and the measures over them.

Used by the report. The rows are written once, beside what becomes the report, and everything is
counted from them: all of it is as of one moment, and PostgreSQL is read once. Source: spec P7, Q14.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from onceq.errors import InvalidValue
from onceq.model.element import TOOK_EFFECT, RequestOutcome, Role
from onceq.spark.archive.files import spoken
from onceq.spark.report.report_tables import MEASURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

END_COLUMNS: Final = (
    *("eid", "queue", "registrant", "server", "role", "outcome", "aborts", "code", "error"),
    *("enqueued_at", "started_at", "finished_at"),
)
ABORT_COLUMNS: Final = ("eid", "ended_at", "server", "host", "pid", "charge", "code")
BY: Final = ("queue", "server", "registrant")
ACCURACY: Final = 10_000
"""Precision of a percentile: its rank is off by at most the count divided by this, rounded up, and
by nothing for up to half as many values."""
_RANKS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_TEXT_CHARACTERS: Final = 200
_ROLES: Final = (Role.REQUEST.value, Role.DATAGRAM.value)
"""Taking a held element out of an error queue ends no request: that had failed before."""
WELL: Final = tuple(one.value for one in TOOK_EFFECT)
_PROCESS: Final = ("server", "host", "pid", "name")
_TIMES: Final = {
    "waiting": ("enqueued_at", "started_at"),
    "service": ("started_at", "finished_at"),
    "total": ("enqueued_at", "finished_at"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What ended from `since` on, and before `until`; None: unbounded."""

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Raises InvalidValue: a time without its zone, or nothing in between."""
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise InvalidValue(f"{name} {moment}: a time needs its time zone")
        since, until = self.since, self.until
        if since is not None and until is not None and since >= until:
            raise InvalidValue(
                f"since {since} is not before until {until}: nothing can be in between"
            )

    def of(self, rows: DataFrame, column: str) -> DataFrame:
        """Returns the rows whose time is within it."""
        kept = self.before(rows, column)
        return kept if self.since is None else kept.where(sf.col(column) >= sf.lit(self.since))

    def before(self, rows: DataFrame, column: str) -> DataFrame:
        """Returns the rows whose time is before its end."""
        return rows if self.until is None else rows.where(sf.col(column) < sf.lit(self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Rows of ends, and of aborts with their owners; `at` is the time of both.

    processes: host and pid of servers that had an abort or that serve now; the name of
    Spark servers.
    """

    ends: DataFrame
    aborts: DataFrame
    processes: DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What is read: what has ended, every abort, and the servers that are known now."""

    history: DataFrame
    attempts: DataFrame
    servers: DataFrame


def gather(records: Records, folder: Path, span: Span) -> Facts:
    """Reads everything that has ended, once, and writes what is counted of it into a folder."""
    history, attempts = records.history, records.attempts
    earlier = _kept(span.before(attempts.select(*ABORT_COLUMNS), "ended_at"), folder / "attempts")
    touched = earlier.select("eid").distinct().withColumn("is_touched", sf.lit(1))
    begun = history.select(*END_COLUMNS).where(sf.col("role").isin(*_ROLES))
    ended = span.of(begun, "finished_at")
    ends = _kept(_ends(ended.join(touched, "eid", "left")), folder / "ends")
    homes = ends.where("eid is not null").groupBy("eid")
    home = homes.agg(sf.max_by(sf.struct("queue", "registrant"), "at").alias("home"))
    aborts = span.of(earlier, "ended_at").join(home, "eid", "left")
    named = earlier.withColumn("name", sf.lit(None).cast("string"))
    told = named.where("host is not null").select(*_PROCESS)
    live = records.servers.select(*_PROCESS)
    return Facts(
        ends=ends, aborts=_kept(_aborts(aborts), folder / "aborts"), processes=told.union(live)
    )


def _ends(rows: DataFrame) -> DataFrame:
    """Returns what is counted of ends. eid: only if there was an abort, which is found by it."""
    is_touched = sf.expr("aborts > 0 or is_touched is not null")
    is_well = sf.col("outcome").isin(*WELL)
    times = (_milliseconds(begin, end).alias(f"{name}_ms") for name, (begin, end) in _TIMES.items())
    return rows.select(
        sf.col("finished_at").alias("at"),
        sf.when(is_touched, sf.col("eid")).alias("eid"),
        "queue",
        sf.col("server").cast("string").alias("server"),
        "registrant",
        "role",
        "outcome",
        "code",
        sf.substring("error", 1, _TEXT_CHARACTERS).alias("error"),
        (is_touched & is_well).alias("is_recovered"),
        *times,
    )


def _milliseconds(begin: str, end: str) -> Column:
    """Returns a length of time; if a clock was set back, it is not less than 0."""
    span = (sf.unix_micros(end) - sf.unix_micros(begin)) / 1000
    return sf.when(span.isNotNull(), sf.greatest(sf.lit(0.0), span))


def _aborts(rows: DataFrame) -> DataFrame:
    return rows.select(
        sf.col("ended_at").alias("at"),
        "home.queue",
        sf.col("server").cast("string").alias("server"),
        "home.registrant",
        "charge",
        "code",
    )


def _kept(rows: DataFrame, folder: Path) -> DataFrame:
    """Writes rows, and returns them as they were written."""
    rows.write.parquet(spoken(folder))
    return rows.sparkSession.read.schema(rows.schema).parquet(spoken(folder))


def spread(rows: DataFrame) -> DataFrame:
    """Returns each row once for each of its groups, both for its hour and for its day.

    Adds span ("hour", "day"), starts_at, by ("all" and those of BY) and name.
    """
    hours = [
        sf.struct(sf.lit(span).alias("span"), sf.date_trunc(span, "at").alias("starts_at"))
        for span in ("hour", "day")
    ]
    return grouped(rows, everything=True).select("*", sf.inline(sf.array(*hours)))


def grouped(rows: DataFrame, *, everything: bool = False) -> DataFrame:
    """Returns each row once for each group: adds by and name. everything: "all" is one, too."""
    groups = [sf.struct(sf.lit(one).alias("by"), sf.col(one).alias("name")) for one in BY]
    whole = sf.struct(sf.lit("all").alias("by"), sf.lit(None).cast("string").alias("name"))
    return rows.select("*", sf.inline(sf.array(*([whole] if everything else []), *groups)))


def measured(rows: DataFrame, *by: str) -> DataFrame:
    """Returns the measures of ends, those of MEASURES, for each value of some columns."""
    outcome, role = sf.col("outcome"), sf.col("role")
    made = {
        "ended": sf.count("*"),
        **{one.value: sf.count_if(outcome == one.value) for one in RequestOutcome},
        "requests": sf.count_if(role == Role.REQUEST.value),
        "datagrams": sf.count_if(role == Role.DATAGRAM.value),
        "recovered": sf.count_if("is_recovered"),
    }
    for name in _TIMES:
        value = sf.col(f"{name}_ms")
        ranks = sf.percentile_approx(value, list(_RANKS.values()), ACCURACY)
        made[f"{name}_measured"] = sf.count(value)
        made |= {f"{name}_{rank}_ms": ranks[place] for place, rank in enumerate(_RANKS)}
        made[f"{name}_max_ms"] = sf.max(value)
    return rows.groupBy(*by).agg(*(made[name].alias(name) for name in MEASURES))
