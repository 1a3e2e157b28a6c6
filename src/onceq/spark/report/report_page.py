"""The page of a report: the overview first, then what happened over time, then who and why.

Pure: rows in, HTML out. Used by the report. Source: spec P7.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from onceq.model.element import TOOK_EFFECT, Charge, RequestOutcome
from onceq.spark.pages.figures import Axis, Buckets, Curve, Paint, Scale
from onceq.spark.pages.html import (
    Column,
    Html,
    notice,
    page,
    paragraph,
    section,
    shown,
    table,
    tiles,
)
from onceq.spark.report.incidents import marks, told
from onceq.spark.report.report_tables import TABLES

if TYPE_CHECKING:
    from onceq.spark.report.facts import Span
    from onceq.spark.report.findings import Findings, Row

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_OUTCOMES: Final = {
    RequestOutcome.DONE.value: Paint.GREEN,
    RequestOutcome.DEQUEUED.value: Paint.BLUE,
    RequestOutcome.FAILED.value: Paint.RED,
    RequestOutcome.CANCELLED.value: Paint.ORANGE,
    RequestOutcome.EXPIRED.value: Paint.VIOLET,
}
_WELL: Final = {one.value for one in TOOK_EFFECT}
_KINDS: Final = {"requests": Paint.BLUE, "datagrams": Paint.ORANGE}
_CHARGES: Final = {
    Charge.CHARGE.value: Paint.RED,
    Charge.REJECT.value: Paint.ORANGE,
    Charge.ENVIRONMENT.value: Paint.BLUE,
    Charge.SUSPECT.value: Paint.VIOLET,
    "other": Paint.GREY,
}
_RANKS: Final = {"p50": Paint.BLUE, "p90": Paint.GREEN, "p99": Paint.ORANGE, "max": Paint.GREY}
_TIMES: Final = {
    "waiting": "Waiting time: from enqueue to the beginning of the execution that ended it",
    "service": "Service time: from the beginning of that execution to its end",
    "total": "Total time: from enqueue to the end, however it ended",
}
_GROUPS: Final = {
    "queue": ("Busiest queues", "queue", "no queue"),
    "server": ("Busiest servers", "server", "none: it ended without an execution"),
    "registrant": ("Busiest clients", "client", "none: datagrams of programs"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a report is about."""

    repository: str
    span: Span


def report_page(subject: Subject, found: Findings) -> str:
    """Returns the page."""
    title = f"Report on {subject.repository}"
    lead = f"{_bounds(subject.span)} Counted at {_minute(found.made_at)}. All times are UTC."
    buckets = found.buckets
    if buckets is None:
        empty = notice("Nothing ended in this time: there are no requests and no aborts to show.")
        return page(title, lead, [section("Overview", empty), _explained()])
    parts: list[Callable[[Findings, Buckets], Html]] = [
        _overview,
        _incidents,
        _load,
        _times,
        _failures,
        _reasons,
    ]
    sections = [made for part in parts if (made := part(found, buckets))]
    sections += [_group(found, by) for by in _GROUPS]
    return page(title, lead, [*sections, _days(found), _explained()])


def _bounds(span: Span) -> str:
    words = {"from {} on": span.since, "before {}": span.until}
    said = [text.format(_minute(moment)) for text, moment in words.items() if moment is not None]
    return f"What ended {' and '.join(said)}." if said else "All that has ended."


def _minute(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}"


def duration(milliseconds: float | None) -> str | None:
    """Returns a length of time as a person says it, in the largest unit that fits into it."""
    if milliseconds is None:
        return None
    size, unit = next((one for one in _UNITS if milliseconds >= one[0]), _UNITS[-1])
    value = milliseconds / size
    return f"{value:.0f} {unit}" if value >= 10 or value == 0 else f"{value:.1f} {unit}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "0 %"


def _overview(found: Findings, buckets: Buckets) -> Html:
    whole = found.overall
    peak = max((row["ended"] for row in found.series.values()), default=0)
    seconds = buckets.width.total_seconds()
    a_second = "" if seconds == 1 else f" ({peak / seconds:,.1f} a second)"
    aborted = sum(found.aborted.values())
    figures = tiles(
        [
            ("ended", whole["ended"]),
            ("done or dequeued", _share(whole["done"] + whole["dequeued"], whole["ended"])),
            ("failures", whole["failed"]),
            ("aborts", aborted),
            ("recoveries", whole["recovered"]),
            ("cancelled", whole["cancelled"]),
            ("expired", whole["expired"]),
            (f"most in {buckets.unit}{a_second}", peak),
            ("waiting, p50", duration(whole["waiting_p50_ms"])),
            ("waiting, p99", duration(whole["waiting_p99_ms"])),
            ("service, p50", duration(whole["service_p50_ms"])),
            ("service, p99", duration(whole["service_p99_ms"])),
        ]
    )
    precise = "%Y-%m-%d %H:%M:%S" if buckets.width < dt.timedelta(minutes=1) else "%Y-%m-%d %H:%M"
    since, until = (
        f"{one.astimezone(dt.UTC):{precise}}" for one in found.ends or buckets.edges[:2]
    )
    said = paragraph(
        f"From {since} to {until}. A failure is final; a recovery is what ended well after at "
        "least one abort. pN: N of 100 took at most so long."
    )
    return section("Overview", said, figures)


def _incidents(found: Findings, _: Buckets) -> Html:
    """Returns the incidents, and how long the requests under way at the time took."""
    if not found.incidents:
        return Html("")
    columns = [Column("no."), Column("at", right=True), Column("what", roomy=True)]
    columns += [Column("went on", "after", right=True), Column("under way", "count", bar=True)]
    columns += [Column(rank, "total time", right=True) for rank in _RANKS]
    rows: list[tuple[object, ...]] = []
    for number, one in enumerate(found.incidents, 1):
        at, what, lasted_ms = told(one)
        rows.append((number, at, what, duration(lasted_ms), *_held(found, number)))
    ended, *times = _held(found, 0)
    rows.append((None, None, "under way during none of these", None, shown(ended), *times))
    said = paragraph(
        "What befell while this ran, and the total times, from enqueue to the end, of all that was "
        "under way meanwhile: the outage as its clients had it."
    )
    return section("Outages", said, table(columns, rows))


def _held(found: Findings, number: int) -> tuple[object, ...]:
    row = found.in_flight.get(number, {})
    times = (duration(row.get(f"total_{rank}_ms")) for rank in _RANKS)
    return (row.get("ended", 0), *times)


def _of(found: Findings, buckets: Buckets, name: str) -> list[float | None]:
    """Returns a measure for each bucket."""
    return [found.series.get(number, {}).get(name) for number in range(buckets.count)]


def _curves(found: Findings, buckets: Buckets, names: Iterable[tuple[str, Paint]]) -> list[Curve]:
    """Returns a line for each measure that is not 0 all the time."""
    made = (
        Curve(label=name, values=_of(found, buckets, name), paint=paint) for name, paint in names
    )
    return [one for one in made if any(one.values)]


def _axis(found: Findings, buckets: Buckets, scale: Scale = Scale.COUNT) -> Axis:
    return Axis(buckets=buckets, scale=scale, marks=marks(found.incidents))


def _load(found: Findings, buckets: Buckets) -> Html:
    axis = _axis(found, buckets)
    outcomes, kinds = (_curves(found, buckets, one.items()) for one in (_OUTCOMES, _KINDS))
    ended = f"How many ended in {buckets.unit}"
    return section(
        "Load over time",
        axis.with_areas(outcomes, f"{ended}, by outcome"),
        axis.with_areas(kinds, f"{ended}: requests, which owe a reply, and datagrams"),
    )


def _times(found: Findings, buckets: Buckets) -> Html:
    whole = found.overall
    figures = [_time(found, buckets, name) for name in _TIMES if whole[f"{name}_measured"]]
    note = paragraph(
        "Waiting and service times are known of what an execution ended on a server; of what "
        "failed, expired or was killed, only the total time is. Earlier executions that were "
        "aborted, their back-off, and a not-before are part of the waiting time. What was served "
        "in one batch, by Spark for example, has the service time of the batch."
    )
    rows = [
        (
            name,
            whole[f"{name}_measured"],
            *(duration(whole[f"{name}_{rank}_ms"]) for rank in _RANKS),
        )
        for name in _TIMES
    ]
    columns = [Column("time"), Column("known", "of ended")]
    columns += [Column(rank, right=True) for rank in _RANKS]
    return section("Waiting and service times", note, table(columns, rows), *figures)


def _time(found: Findings, buckets: Buckets, name: str) -> Html:
    lines = [
        Curve(
            label=rank,
            values=_of(found, buckets, f"{name}_{rank}_ms"),
            paint=paint,
            is_faint=rank == "max",
        )
        for rank, paint in reversed(_RANKS.items())
    ]
    caption = f"{_TIMES[name]}, of what ended in {buckets.unit}"
    return _axis(found, buckets, Scale.DURATION_MS).with_lines(lines, caption)


def _failures(found: Findings, buckets: Buckets) -> Html:
    width = buckets.unit
    badly = [one for one in _OUTCOMES.items() if one[0] not in _WELL]
    aborts = [
        Curve(
            label=charge,
            values=[found.aborted.get((number, charge)) for number in range(buckets.count)],
            paint=paint,
        )
        for charge, paint in _CHARGES.items()
    ]
    stacked = partial(_stack_or_none, _axis(found, buckets))
    return section(
        "Failures, aborts and recoveries over time",
        stacked(_curves(found, buckets, badly), f"How many did not end well in {width}"),
        stacked(
            [one for one in aborts if any(one.values)],
            f"Executions that were aborted in {width}, by what it came to: charge counts against "
            "the abort limit, reject fails at once, environment and suspect charge nobody",
        ),
        stacked(
            _curves(found, buckets, [("recovered", Paint.GREEN)]),
            f"Recoveries in {width}: ended well after at least one abort",
        ),
    )


def _stack_or_none(axis: Axis, lines: Sequence[Curve], caption: str) -> Html:
    return axis.with_areas(lines, caption) if lines else paragraph(f"{caption}: none.")


def _reasons(found: Findings, _: Buckets) -> Html:
    return section(
        "Why",
        _codes("outcome", "ended", found.failures, "What did not end well, by its code"),
        _codes("charge", "aborts", found.aborts, "Aborts, by what they came to and their code"),
    )


def _codes(kind: str, counted: str, rows: Sequence[Row], caption: str) -> Html:
    if not rows:
        return paragraph(f"{caption}: none.")
    columns = [Column(kind), Column("code"), Column(counted, "count", bar=True)]
    has_errors = any(row["error"] for row in rows)
    columns += [Column("one of the errors")] if has_errors else []
    cells = [
        (
            f"{row['others']:,} others" if row["others"] else row[kind],
            row["code"],
            shown(row["count"]) if row["others"] else row["count"],
            *((row["error"],) if has_errors else ()),
        )
        for row in rows
    ]
    return table(columns, cells, caption=caption)


def _group(found: Findings, by: str) -> Html:
    title, word, none = _GROUPS[by]
    columns = [Column(word), Column("ended", "count", bar=True)]
    columns += [Column(one, "count") for one in _ENDS]
    columns += [Column(one.replace("_", " "), right=True) for one in _MEASURED]
    rows = [
        (
            _name(row, none),
            shown(row["ended"]) if row["others"] else row["ended"],
            *(row[one] for one in _ENDS),
            *(duration(row[f"{one}_ms"]) for one in _MEASURED),
        )
        for row in found.busiest[by]
    ]
    notes = [] if by != "server" else [paragraph(_SERVERS)]
    return section(title, *notes, table(columns, rows))


_ENDS: Final = ("failed", "recovered", "aborts")
_MEASURED: Final = ("waiting_p50", "waiting_p99", "service_p50", "service_p99")
_SERVERS: Final = (
    "A server is a number: one life of a session, which no other has. Its host and process are "
    "known while it serves, and once it had an abort. A Spark server keeps its number for all its "
    "lives. Each transaction that dequeues by itself has a number of its own."
)


def _name(row: Row, none: str) -> str:
    if row["others"]:
        return f"{row['others']:,} others"
    if row["name"] is None:
        return f"({none})"
    return row["name"] if row["host"] is None else f"{row['name']} ({row['host']})"


def _days(found: Findings) -> Html:
    counts = ("failed", "cancelled", "expired", "recovered")
    columns = [Column("day"), Column("ended", "count", bar=True)]
    columns += [Column(one, "count") for one in counts]
    columns += [Column(one.replace("_", " "), right=True) for one in _MEASURED]
    rows = [
        (
            f"{row['starts_at']:%Y-%m-%d}",
            *(row[one] for one in ("ended", *counts)),
            *(duration(row[f"{one}_ms"]) for one in _MEASURED),
        )
        for row in found.days
    ]
    return section("The last days", table(columns, rows))


def _explained() -> Html:
    parts = [
        paragraph(
            "Beside this page are two tables in Parquet, for each hour and each day, of "
            "everything and of each queue, server and client. Percentiles: the smallest value "
            "that at least so many did not exceed; exact up to 5,000 values, and beyond with a "
            "rank that is off by at most one for each 10,000 values, rounded up. A time that would "
            "be negative, as a clock was set back, counts as 0."
        )
    ]
    for name, (what, columns) in TABLES.items():
        rows = [(column, unit, meaning) for column, (unit, meaning) in columns.items()]
        heads = [Column("column"), Column("unit"), Column("meaning")]
        parts.append(table(heads, rows, caption=f"{name}: {what}"))
    return section("The tables", *parts)
