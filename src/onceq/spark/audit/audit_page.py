"""The page of an audit, for people: the verdict, what was asked, what was found, what there is.

Public through `onceq.spark.pipelines`. Pure. Source: spec P6.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from onceq.model.element import TOOK_EFFECT, RequestOutcome
from onceq.spark.audit.audited import GIVEN, Audited
from onceq.spark.pages.figures import Axis, Buckets, Curve, Paint, Scale
from onceq.spark.pages.html import Column, Html, notice, page, paragraph, section, table, tiles
from onceq.spark.report.incidents import Incident, checked, marks, told
from onceq.spark.report.report_page import duration

ASKED: Final = (
    ("G1", "a reply that waits answers its own request, which has ended", None),
    ("G1", "each reply that a client received answers what it had outstanding", "events"),
    ("G2", "a request has ended once; its reply says what history says", None),
    (
        "G2",
        "the effects of what is done are there once, by one transaction; of others, none",
        "effects",
    ),
    ("G2", "there are as many of them as there are to be", "effects each"),
    ("G2", "nothing was executed that left nothing", "executions"),
    ("G3", "what has failed is final; a redrive is a new request, once, linked", None),
    ("G4", "each request is in exactly one place; what failed, in its error queue besides", None),
    ("G4", "and so is each that a client knows it sent", "events"),
    ("G5", "the reply to what a client sent last waits until it has told that it knows", "tags"),
    ("G5", "a reply is kept until it was acknowledged, and is the same each time", "events"),
    ("G6", "what a connect would show is in some place", "tags"),
    ("G6", "what each connect showed was the truth; an older life had no effect", "events"),
    ("G7", "each request has as many charged aborts as it counts", "aborts"),
    ("G7", "what failed did so at the limit, or was rejected", "abort limit"),
    ("G8", "what was killed has no effect", "effects"),
    ("G8", "the answer of each kill is the truth", "events"),
    ("G12", "everything has ended, where all had time to", "an end"),
)
"""For each guarantee, its questions and which of GIVEN they need; None: only the repository."""
_PAINTS: Final = {
    RequestOutcome.DONE.value: Paint.GREEN,
    RequestOutcome.DEQUEUED.value: Paint.BLUE,
    RequestOutcome.CANCELLED.value: Paint.GREY,
    RequestOutcome.EXPIRED.value: Paint.ORANGE,
    RequestOutcome.FAILED.value: Paint.RED,
}
_WELL: Final = {one.value for one in TOOK_EFFECT}
_DAY: Final = dt.timedelta(days=1)
NOT_ASKED: Final = "not asked"


def audit_page(
    found: Audited, name: str, at: dt.datetime, *, incidents: Sequence[Incident] = ()
) -> str:
    """Returns the page of an audit, a complete HTML file. name: of what was judged; at: when.

    incidents: what happened meanwhile. InvalidValue.
    """
    befell = checked(incidents)
    sections = [
        _verdict(found),
        _guarantees(found),
        _violations(found),
        _incidents(befell),
        _there(found, befell),
    ]
    lead = f"{name}, {at:%Y-%m-%d %H:%M} UTC"
    return page("onceq: audit", lead, [one for one in sections if one])


def _verdict(found: Audited) -> Html:
    said = (
        notice(found.violations, " violations were found.")
        if found.violations
        else paragraph("No violation was found in what was asked.")
    )
    figures: list[tuple[str, object]] = [
        ("violations", found.violations),
        ("places", found.places),
        ("of them archived", found.archived),
        ("events", found.events if "events" in found.given else NOT_ASKED),
        ("effects", found.effects if "effects" in found.given else NOT_ASKED),
        ("seconds", round(found.took_s)),
    ]
    less = paragraph(
        "Of queues that are not durable less is asked, as a crash may take what is in them: ",
        ", ".join(found.volatile),
    )
    return section("Verdict", said, tiles(figures), *([less] if found.volatile else []))


def _guarantees(found: Audited) -> Html:
    """Returns what was asked, and what was not, with what it would need."""
    rows: list[tuple[object, ...]] = []
    counted: set[str] = set()
    for name, text, needs in ASKED:
        if needs is not None and needs not in found.given:
            rows.append((name, None, text, f"{NOT_ASKED}: it takes {GIVEN[needs]}"))
            continue
        count = None if name in counted else found.by_guarantee.get(name, 0)
        counted.add(name)
        rows.append((name, count, text, "yes"))
    columns = [
        Column("guarantee"),
        Column("violations", "of it", bar=True, right=True),
        Column("what is asked", roomy=True),
        Column("asked", roomy=True),
    ]
    return section("Guarantees", table(columns, rows))


def _incidents(incidents: Sequence[Incident]) -> Html:
    """Returns the incidents during the time that is judged here."""
    if not incidents:
        return Html("")
    columns = [Column("no."), Column("at", "UTC", right=True), Column("what", roomy=True)]
    columns += [Column("went on", "after", right=True)]
    rows: list[tuple[object, ...]] = []
    for number, one in enumerate(incidents, 1):
        at, what, lasted_ms = told(one)
        rows.append((number, at, what, duration(lasted_ms)))
    return section("What befell meanwhile", table(columns, rows))


def _violations(found: Audited) -> Html:
    if not found.violations:
        return Html("")
    rows = [(one.guarantee, one.rid, one.text) for one in found.found]
    said = paragraph("The first ", len(rows), " of ", found.violations, ".")
    return section("Violations", said, table([*map(Column, ("guarantee", "rid", "how"))], rows))


def _there(found: Audited, incidents: Sequence[Incident]) -> Html:
    columns = [*map(Column, ("role", "state", "outcome")), Column("rows", bar=True)]
    return section("What there is", *_figures(found, incidents), table(columns, found.counts))


def _figures(found: Audited, incidents: Sequence[Incident]) -> list[Html]:
    """Returns what ended over time: everything, and what was not done."""
    by_outcome: defaultdict[str, dict[dt.datetime, int]] = defaultdict(dict)
    for begins, outcome, count in _ended(found):
        by_outcome[outcome][begins] = count
    edges = [one for of_outcome in by_outcome.values() for one in of_outcome]
    if not edges:
        return []
    width = dt.timedelta(seconds=found.moment_s) if found.moments else _DAY
    buckets = Buckets(first=min(edges), width=width, count=(max(edges) - min(edges)) // width + 1)
    lines = [_curve(name, by_outcome[name], buckets) for name in _PAINTS if name in by_outcome]
    rest = [one for one in lines if one.label not in _WELL]
    axis = Axis(buckets=buckets, scale=Scale.COUNT, marks=marks(incidents))
    figures = [axis.with_areas(lines, f"Ended in {buckets.unit}")]
    if rest:
        figures.append(axis.with_lines(rest, f"Not done, in {buckets.unit}"))
    return figures


def _ended(found: Audited) -> Iterator[tuple[dt.datetime, str, int]]:
    if found.moments:
        for begins_s, outcome, count in found.moments:
            yield dt.datetime.fromtimestamp(begins_s, dt.UTC), outcome, count
        return
    for day, outcome, count in found.days:
        yield dt.datetime.combine(dt.date.fromisoformat(day), dt.time(), dt.UTC), outcome, count


def _curve(outcome: str, counts: dict[dt.datetime, int], buckets: Buckets) -> Curve:
    values = [counts.get(edge, 0) for edge in buckets.edges[:-1]]
    return Curve(label=outcome, values=values, paint=_PAINTS[outcome])
