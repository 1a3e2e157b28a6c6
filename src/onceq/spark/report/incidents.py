"""Incidents: what happened to a system from outside, and how that affected its requests.

Public through `onceq.spark.pipelines`. Given to a report and to the page of an audit, because
nothing in a repository tells of a kill -9. Source: spec P7, Q14.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from onceq.errors import InvalidValue
from onceq.spark.pages.figures import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INCIDENTS_MAX: Final = 200
_NONE: Final = 0
"""The number for what was in flight during no incident; incidents are numbered from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something from outside: a kill, a crash, a cut. what: for people. at: with a time zone.

    over_at: when the work went on; None: not known, or it did not.
    """

    what: str
    at: dt.datetime
    over_at: dt.datetime | None = None


def checked(incidents: Sequence[Incident]) -> list[Incident]:
    """Returns incidents by time. InvalidValue: more than INCIDENTS_MAX, or an invalid time."""
    if len(incidents) > INCIDENTS_MAX:
        raise InvalidValue(
            f"there are {len(incidents)} incidents: at most {INCIDENTS_MAX} are shown"
        )
    for one in incidents:
        if one.at.tzinfo is None or (one.over_at is not None and one.over_at.tzinfo is None):
            raise InvalidValue(f"incident {one.what!r}: a time needs its time zone")
        if one.over_at is not None and one.over_at < one.at:
            raise InvalidValue(f"incident {one.what!r} was over before it began")
    return sorted(incidents, key=lambda one: one.at)


def marks(incidents: Sequence[Incident]) -> list[Mark]:
    """Returns the marks of incidents in figures: their numbers."""
    return [
        Mark(label=str(number), at=one.at, until=one.over_at)
        for number, one in enumerate(incidents, 1)
    ]


def in_flight(ends: DataFrame, incidents: Sequence[Incident]) -> DataFrame:
    """Returns ends, once for each incident during which they were under way, by its number.

    Those under way during no incident have the number 0. ends: with `at` and `total_ms`.
    """
    spark: Any = ends.sparkSession  # its types are partial
    rows = [
        (number, one.at.timestamp(), (one.over_at or one.at).timestamp())
        for number, one in enumerate(incidents, 1)
    ]
    given = spark.createDataFrame(rows, "incident int, begins double, over double")
    ended = sf.unix_micros("at") / 1e6
    begun = ended - sf.coalesce("total_ms", sf.lit(0.0)) / 1000
    met = (ended >= given["begins"]) & (begun <= given["over"])
    joined = ends.join(sf.broadcast(given), met, "left")
    return joined.withColumn("incident", sf.coalesce("incident", sf.lit(_NONE)))


def told(one: Incident) -> tuple[str, str, float | None]:
    """Returns when an incident was, what it was, and after how many milliseconds work went on."""
    lasted = None if one.over_at is None else (one.over_at - one.at) / dt.timedelta(milliseconds=1)
    return f"{one.at.astimezone(dt.UTC):%H:%M:%S}", one.what, lasted
