"""Compares what was shown with the goals: the rows of the table, and everything that is wrong.

Pure: the page and the exit code are made from the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.goals import GOALS
from proof.record import Judged, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proof.goals import Goal
    from proof.part import Measure, Part, Size
    from proof.record import Shown

MET, MISSED, STATED = "met", "MISSED", "stated"
NOT_TRIED, IN_PART, NOT_RUN = "not tried here", "in part", "not run"
TABLE = {goal.what: goal for goal in GOALS}


def rows(parts: Sequence[Part], shown: Sequence[Shown], size: Size) -> list[Row]:
    """Return a row for each goal, whether something was run that adds to it or not."""
    return [_row(goal, parts, shown, size) for goal in GOALS]


def _row(goal: Goal, parts: Sequence[Part], shown: Sequence[Shown], size: Size) -> Row:
    adding = {part.name for part in parts if goal.what in part.states}
    tried = [one for one in shown if one.name in adding]
    found = [m for one in tried for m in one.measures if m.what == goal.what]
    is_whole = {part.name for part in parts} <= {one.name for one in shown}
    wanted = goal.of(size)
    if goal.all_of:
        wanted = max(wanted, sum(measure.goal or 0 for measure in found))
    reached = sum(measure.reached for measure in found)
    return Row(
        what=goal.what,
        goal=wanted,
        reached=reached,
        seconds=sum(one.seconds for one in tried),
        verdict=_verdict(reached, wanted, tried, len(adding)) if tried or is_whole else NOT_RUN,
    )


def _verdict(reached: int, wanted: int, tried: Sequence[Shown], adding: int) -> str:
    if tried and all(one.skipped for one in tried):
        return NOT_TRIED
    if wanted == 0:
        return STATED
    if reached >= wanted:
        return MET
    return IN_PART if 0 < len(tried) < adding else MISSED


def judged(parts: Sequence[Part], shown: Sequence[Shown], size: Size) -> Judged:
    """Return the rows, what is wrong, and which parts were not run."""
    names = {one.name for one in shown}
    return Judged(
        rows=rows(parts, shown, size),
        wrong=complaints(parts, shown, size),
        not_run=[part.name for part in parts if part.name not in names],
    )


def tally(found: Sequence[Row]) -> str:
    """Return how many goals were reached and missed, and which were not tried or only in part."""
    untried = [row.what for row in found if row.verdict in {NOT_TRIED, NOT_RUN, IN_PART}]
    missed = sum(row.verdict == MISSED for row in found)
    reached = sum(row.verdict == MET for row in found)
    named = f": {', '.join(untried)}" if untried else ""
    return f"{reached} goals reached, {missed} missed, {len(untried)} not tried{named}"


def complaints(parts: Sequence[Part], shown: Sequence[Shown], size: Size) -> list[str]:
    """Return everything that is wrong, each in one sentence; ideally nothing."""
    found = [
        f"{row.what}: {row.reached:,} of {row.goal:,}"
        for row in rows(parts, shown, size)
        if row.verdict == MISSED
    ]
    by_name = {part.name: part for part in parts}
    for one in shown:
        found += [f"{one.name}: {what}" for what in _wrong_with(one, by_name[one.name])]
    return found


def _wrong_with(one: Shown, part: Part) -> Iterator[str]:
    if one.failure:
        yield one.failure
    if one.skipped:
        yield f"not tried: {one.skipped}; `--without {one.name}` leaves it out"
    yield from one.violations
    yield from (f"{m.what}: {m.reached:,} of {m.goal:,}" for m in one.measures if _falls_short(m))
    yield from _wrong_controls(one, part)
    stated = {measure.what for measure in one.measures}
    if not one.failure and not one.skipped:
        yield from (f"did not state: {what}" for what in part.states if what not in stated)
    undeclared = (stated & TABLE.keys()) - set(part.states)
    yield from (f"adds to what it does not name in `states`: {what}" for what in sorted(undeclared))
    yield from (
        f"does not say of how many: {m.what}"
        for m in one.measures
        if m.what in TABLE and TABLE[m.what].all_of and m.goal is None
    )


def _wrong_controls(one: Shown, part: Part) -> Iterator[str]:
    for c in one.controls:
        if not c.is_met:
            share = f"{c.broke:,} of {c.of:,}, at least {c.least:.0%}"
            yield f"the control did not fail: {c.what} ({share})"
        if c.what not in part.controls:
            yield f"a control that it does not declare: {c.what}"
    if not one.failure and not one.skipped:
        tried = {c.what for c in one.controls}
        yield from (
            f"did not try the control: {what}" for what in part.controls if what not in tried
        )


def _falls_short(measure: Measure) -> bool:
    """Whether a goal of the part's own is missed; the table's rows are compared as a whole."""
    return measure.what not in TABLE and not measure.is_met
