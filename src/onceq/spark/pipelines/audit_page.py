"""The page of an audit, for people: the verdict, what was asked, what was found, what there is.

Public by way of `onceq.spark.pipelines`. Pure. Source: spec P6.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from onceq.spark.figures import Buckets, Line, Paint, Scale, lines_over_time, stack_over_time
from onceq.spark.pages import Column, Html, notice, page, paragraph, section, table, tiles

if TYPE_CHECKING:
    from onceq.spark.pipelines.audited import Audited

__all__ = ["audit_page"]

ASKED: Final = {
    "G1": "a reply answers a request that is outstanding, and that request",
    "G2": "the effects of what is done are there once, all, by one transaction; of others, none",
    "G3": "what has failed is final; a redrive is a new request, once, linked",
    "G4": "each request is in exactly one place; what failed, in its error queue besides",
    "G5": "a reply is kept until it was acknowledged, and is the same each time",
    "G6": "what a connect shows is the truth; an older life has no effect",
    "G7": "aborts, attempts and limit agree; no innocent is charged",
    "G8": "what was killed has no effect; the answer of a kill is the truth",
    "G12": "everything has ended, where all had time to",
}
"""What is asked of each guarantee."""
_PAINTS: Final = {
    "done": Paint.GREEN,
    "dequeued": Paint.BLUE,
    "cancelled": Paint.GREY,
    "expired": Paint.ORANGE,
    "failed": Paint.RED,
}
_DAY: Final = dt.timedelta(days=1)


def audit_page(found: Audited, name: str, at: dt.datetime) -> str:
    """Returns the page of an audit, a whole HTML file. name: of what was judged; at: when."""
    sections = [_verdict(found), _guarantees(found), _violations(found), _there(found)]
    lead = f"{name}, {at:%Y-%m-%d %H:%M} UTC"
    return page("onceq: audit", lead, [one for one in sections if one])


def _verdict(found: Audited) -> Html:
    said = (
        notice(found.violations, " violations were found.")
        if found.violations
        else paragraph("No violation was found.")
    )
    figures: list[tuple[str, object]] = [
        ("violations", found.violations),
        ("places", found.places),
        ("of them archived", found.archived),
        ("events", found.events),
        ("effects", found.effects),
        ("seconds", round(found.took_s)),
    ]
    less = paragraph(
        "Of queues that are not durable less is asked, as a crash may take what is in them: ",
        ", ".join(found.volatile),
    )
    return section("Verdict", said, tiles(figures), *([less] if found.volatile else []))


def _guarantees(found: Audited) -> Html:
    rows = [(name, text, found.by_guarantee.get(name, 0)) for name, text in ASKED.items()]
    columns = [Column("guarantee"), Column("what is asked"), Column("violations", bar=True)]
    return section("Guarantees", table(columns, rows))


def _violations(found: Audited) -> Html:
    if not found.violations:
        return Html("")
    rows = [(one.guarantee, one.rid, one.text) for one in found.found]
    said = paragraph("The first ", len(rows), " of ", found.violations, ".")
    return section("Violations", said, table([*map(Column, ("guarantee", "rid", "how"))], rows))


def _there(found: Audited) -> Html:
    columns = [*map(Column, ("role", "state", "outcome")), Column("rows", bar=True)]
    return section("What there is", *_figures(found), table(columns, found.counts))


def _figures(found: Audited) -> list[Html]:
    """Returns what has ended by day: all of it, and what was not done."""
    if not found.days:
        return []
    by_outcome: defaultdict[str, dict[dt.date, int]] = defaultdict(dict)
    for day, outcome, count in found.days:
        by_outcome[outcome][dt.date.fromisoformat(day)] = count
    days = [day for of_day in by_outcome.values() for day in of_day]
    first = dt.datetime.combine(min(days), dt.time(), dt.UTC)
    buckets = Buckets(first=first, width=_DAY, count=(max(days) - min(days)).days + 1)
    lines = [_line(name, by_outcome[name], buckets) for name in _PAINTS if name in by_outcome]
    rest = [one for one in lines if one.label not in {"done", "dequeued"}]
    given: dict[str, Any] = {"scale": Scale.COUNT}
    figures = [stack_over_time(buckets, lines, caption="Ended, by day", **given)]
    if rest:
        figures.append(lines_over_time(buckets, rest, caption="Ended, not done, by day", **given))
    return figures


def _line(outcome: str, counts: dict[dt.date, int], buckets: Buckets) -> Line:
    days = [edge.date() for edge in buckets.edges[:-1]]
    return Line(label=outcome, values=[counts.get(day, 0) for day in days], paint=_PAINTS[outcome])
