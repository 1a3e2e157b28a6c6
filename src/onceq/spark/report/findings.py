"""What a report's page shows: some hundred rows, however long the history is.

Used by the report. Spark counts everything; what comes to the driver is bounded by the
numbers below, and what is left out is summed. Source: spec P7.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as sf

from onceq.model.element import Charge
from onceq.spark.pages.figures import Buckets
from onceq.spark.report.facts import BY, WELL, Facts, grouped, measured
from onceq.spark.report.incidents import INCIDENTS_MAX, Incident, in_flight

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Row = dict[str, Any]
BUCKETS_MAX: Final = 400
"""Most buckets on the axis of time: its unit is the finest of WIDTHS that needs no more."""
TOP: Final = 10
"""How many queues, servers, clients and codes are shown; the others are summed."""
DAYS: Final = 31
"""How many of the last days are a table of the page."""
CHARGES: Final = tuple(
    one.value for one in (Charge.CHARGE, Charge.REJECT, Charge.ENVIRONMENT, Charge.SUSPECT)
)
WIDTHS: Final = tuple(
    dt.timedelta(**one)
    for one in (
        {"seconds": 1},
        {"seconds": 5},
        {"seconds": 15},
        {"minutes": 1},
        {"minutes": 5},
        {"minutes": 15},
        {"hours": 1},
        {"hours": 6},
        {"days": 1},
        {"days": 7},
        {"days": 28},
        {"days": 364},
    )
)
MONDAY: Final = dt.datetime(1970, 1, 5, tzinfo=dt.UTC)
"""Buckets begin a whole number of widths from here."""
_CODE_CHARACTERS: Final = 200
_REST: Final = TOP + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the page shows. made_at: when it was counted.

    ends: the first and the last time. buckets: between them; None if nothing has ended, and
    then everything is empty.
    overall: the measures of everything. series: those of each bucket, by its number. aborted: how
    many, by bucket and charge. busiest: by queue, server and registrant, the first TOP and, if
    there are more, a row of the others whose `others` says how many they are. failures: what did
    not end well, by outcome and code; aborts: by charge and code. incidents: those that the report
    was told of; in_flight: the measures of what was under way during each, by its number, 0 for
    none.
    """

    made_at: dt.datetime
    ends: tuple[dt.datetime, dt.datetime] | None = None
    buckets: Buckets | None = None
    overall: Row = field(default_factory=dict[str, Any])
    series: Mapping[int, Row] = field(default_factory=dict[int, Row])
    aborted: Mapping[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    busiest: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, list[Row]])
    failures: Sequence[Row] = ()
    aborts: Sequence[Row] = ()
    days: Sequence[Row] = ()
    incidents: Sequence[Incident] = ()
    in_flight: Mapping[int, Row] = field(default_factory=dict[int, Row])


def find(facts: Facts, days: DataFrame, incidents: Sequence[Incident] = ()) -> Findings:
    """Counts what the page shows. days: the rows of the table of ends for days and everything."""
    made_at, ends = _moments(facts)
    if ends is None:
        return Findings(made_at=made_at, incidents=incidents)
    buckets = choose_buckets(ends)
    bucket = _bucket(buckets)
    series = measured(facts.ends.withColumn("bucket", bucket), "bucket")
    charge = sf.when(sf.col("charge").isin(*CHARGES), sf.col("charge")).otherwise("other")
    aborted = facts.aborts.groupBy(bucket.alias("bucket"), charge.alias("charge")).count()
    busiest = _busiest(facts)
    latest = days.orderBy(sf.desc("starts_at"))
    return Findings(
        made_at=made_at,
        ends=ends,
        buckets=buckets,
        overall=_rows(measured(facts.ends), 1)[0],
        series={row.pop("bucket"): row for row in _rows(series, buckets.count)},
        aborted={
            (row["bucket"], row["charge"]): row["count"]
            for row in _rows(aborted, buckets.count * (len(CHARGES) + 1))
        },
        busiest=busiest,
        failures=_codes(facts.ends.where(~sf.col("outcome").isin(*WELL)), "outcome"),
        aborts=_codes(facts.aborts.withColumn("error", sf.lit(None)), "charge"),
        days=_rows(latest, DAYS),
        incidents=incidents,
        in_flight=_in_flight(facts, incidents) if incidents else {},
    )


def _in_flight(facts: Facts, incidents: Sequence[Incident]) -> dict[int, Row]:
    counted = measured(in_flight(facts.ends, incidents), "incident")
    return {row.pop("incident"): row for row in _rows(counted, INCIDENTS_MAX + 1)}


def _rows(frame: DataFrame, most: int) -> list[Row]:
    """Returns rows, and never more than `most`."""
    return [row.asDict() for row in frame.limit(most).collect()]


def _moments(facts: Facts) -> tuple[dt.datetime, tuple[dt.datetime, dt.datetime] | None]:
    """Returns the present time, and the first and the last time of all ends and aborts."""
    moments = facts.ends.select("at").union(facts.aborts.select("at"))
    micros, now = sf.unix_micros("at"), sf.unix_micros(sf.current_timestamp())
    bounds = moments.agg(sf.min(micros).alias("first"), sf.max(micros).alias("last"))
    (row,) = _rows(bounds.withColumn("now", now), 1)
    ends = None if row["first"] is None else (_moment(row["first"]), _moment(row["last"]))
    return _moment(row["now"]), ends


def _moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def choose_buckets(ends: tuple[dt.datetime, dt.datetime]) -> Buckets:
    """Returns the axis of time from the first to the last time: at most BUCKETS_MAX buckets.

    If 52 weeks are too fine, each bucket is a multiple of 52 weeks.
    """
    first, last = (moment - MONDAY for moment in ends)
    widest = WIDTHS[-1] * (1 + (last - first) // WIDTHS[-1] // (BUCKETS_MAX - 1))
    fitting = (one for one in WIDTHS if last // one - first // one < BUCKETS_MAX)
    width = next(fitting, widest)
    begin = first // width
    return Buckets(first=MONDAY + begin * width, width=width, count=last // width - begin + 1)


def _bucket(buckets: Buckets) -> Column:
    """Returns the number of the bucket in which a row is."""
    first = (buckets.first - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    width = buckets.width // dt.timedelta(microseconds=1)
    return sf.floor((sf.unix_micros("at") - sf.lit(first)) / sf.lit(width)).cast("int")


def _busiest(facts: Facts) -> dict[str, list[Row]]:
    """Returns the measures of those that ended most, and of the others together."""
    named = grouped(facts.ends)
    order = Window.partitionBy("by").orderBy(sf.desc("count"), "name")
    counts = named.groupBy("by", "name").count()
    ranked = counts.select(
        "by",
        "name",
        sf.row_number().over(order).alias("rank"),
        sf.count("*").over(Window.partitionBy("by")).alias("names"),
    )
    tops = _rows(ranked.where(sf.col("rank") <= TOP), len(BY) * TOP)
    found = _rows(measured(_ranked(named, tops), "by", "rank"), len(BY) * _REST)
    known = {(row["by"], row["rank"]): row for row in tops}
    aborted = _ranked(grouped(facts.aborts), tops).groupBy("by", "rank").count()
    aborts = {(row["by"], row["rank"]): row["count"] for row in _rows(aborted, len(BY) * _REST)}
    hosts = _hosts(facts, [row["name"] for row in tops if row["by"] == "server"])
    for row in found:
        top = known.get((row["by"], row["rank"]))
        row["name"] = None if top is None else top["name"]
        row["others"] = known[row["by"], 1]["names"] - TOP if top is None else 0
        row["aborts"] = aborts.get((row["by"], row["rank"]), 0)
        row["host"] = hosts.get(str(row["name"])) if row["by"] == "server" else None
    return {
        by: sorted((row for row in found if row["by"] == by), key=lambda row: row["rank"])
        for by in BY
    }


def _ranked(named: DataFrame, tops: Sequence[Row]) -> DataFrame:
    """Returns rows with the rank of their name, or with that of the others."""
    schema = "by string, name string, rank int"
    spark: Any = named.sparkSession  # its types are partial
    ranks = spark.createDataFrame([(row["by"], row["name"], row["rank"]) for row in tops], schema)
    same = (named["by"] == ranks["by"]) & named["name"].eqNullSafe(ranks["name"])
    joined = named.join(sf.broadcast(ranks), same, "left")
    return joined.select(
        *(named[one] for one in named.columns if one != "name"),
        sf.coalesce(ranks["rank"], sf.lit(_REST)).alias("rank"),
    )


def _hosts(facts: Facts, servers: Sequence[str]) -> dict[str, str]:
    """Returns host and process of servers, as far as they are known, and the names of Spark's."""
    told = facts.processes.where(sf.col("server").cast("string").isin(*servers))
    rows = told.groupBy("server").agg(*(sf.max(one).alias(one) for one in ("name", "host", "pid")))
    return {
        str(row["server"]): f"Spark server {row['name']}"
        if row["name"]
        else f"{row['host']}, process {row['pid']}"
        for row in _rows(rows, TOP)
    }


def _codes(rows: DataFrame, kind: str) -> list[Row]:
    """Returns how many there are of each kind and code, with an error, and the others together."""
    code = sf.substring("code", 1, _CODE_CHARACTERS).alias("code")
    counts = rows.groupBy(kind, code).agg(
        sf.count("*").alias("count"), sf.max("error").alias("error")
    )
    found = _rows(counts.orderBy(sf.desc("count"), kind, "code"), TOP)
    (whole,) = _rows(counts.agg(sf.sum("count").alias("count"), sf.count("*").alias("codes")), 1)
    left = whole["codes"] - len(found)
    made = [{**row, "others": 0} for row in found]
    if left:
        count = whole["count"] - sum(row["count"] for row in found)
        made.append({kind: None, "code": None, "error": None, "count": count, "others": left})
    return made
