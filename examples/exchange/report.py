"""The report of a run: tables for a person, one object for a program. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from examples.exchange.faults import Deed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from examples.exchange.checks import Verdict
    from examples.exchange.faults import Strike, Struck


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the runner saw. rate: bars a second that the feeds kept to; 0: as fast as they went.

    working_s: from the first message to the last effect. stable_s: percentiles of the time until a
    message was stable. fenced: frozen feeds that found their successor. kills_least: with fewer the
    run has failed. unasked: what ended, or did not, as it should.
    """

    seed: int
    directory: str
    rate: int
    bars: int
    working_s: float
    struck: tuple[Struck, ...]
    missed: tuple[Strike, ...]
    fenced: int
    kills_least: int
    unasked: tuple[str, ...]
    stable_s: Mapping[str, float]
    cut_short: str | None

    @property
    def per_s(self) -> float:
        """Bars a second, all outages included."""
        return self.bars / self.working_s if self.working_s else 0.0

    @property
    def frozen(self) -> int:
        """How many feeds were frozen."""
        return sum(one.deed is Deed.FREEZE for one in self.struck)

    @property
    def kills(self) -> int:
        """How many parts were killed with -9; of one store the directory was deleted, too."""
        return sum(one.deed in {Deed.KILL, Deed.WIPE} for one in self.struck)

    @property
    def failures(self) -> list[str]:
        """Returns why this run shows too little, whatever its witnesses have."""
        missed = "; ".join(map(str, self.missed))
        return [
            text
            for has_failed, text in (
                (
                    self.kills < self.kills_least,
                    f"too few kills: {self.kills}, and {self.kills_least} are the least",
                ),
                (bool(self.missed), f"not struck, as the work was over before: {missed}"),
                (
                    self.fenced != self.frozen,
                    f"frozen feeds: {self.frozen}, of which {self.fenced} were fenced",
                ),
                (self.cut_short is not None, f"cut short: {self.cut_short}"),
            )
            if has_failed
        ]

    @property
    def recovery_s(self) -> dict[str, list[float]]:
        """The seconds until a part was at work again, in ascending order, by its kind and deed."""
        found: dict[str, list[float]] = {}
        for one in self.struck:
            if one.recovery_s is not None:
                found.setdefault(_kind(one), []).append(one.recovery_s)
        return {kind: sorted(found[kind]) for kind in sorted(found)}


def _kind(one: Struck) -> str:
    """What was struck, without its number, and how if it was not killed."""
    kind = one.target.partition("-")[0]
    return kind if one.deed is Deed.KILL else f"{kind}, {one.deed.name.lower()}"


def exit_code(facts: Facts, verdict: Verdict) -> int:
    """0 when everything agrees, all was done and struck, and each frozen feed fenced; else 1."""
    return 0 if verdict.agrees and not facts.failures else 1


def as_whole(runs: Sequence[tuple[Facts, Verdict]]) -> dict[str, Any]:
    """Returns the report of all runs for programs; its keys are public, `v` counts their versions.

    runs: that with strikes first, then the unpaced one.
    """
    found = [as_object(*run) for run in runs]
    return {"v": 1, "ok": all(run["ok"] for run in found), "runs": found}


def as_object(facts: Facts, verdict: Verdict) -> dict[str, Any]:
    """Returns the report of a run for programs."""
    return {
        "ok": exit_code(facts, verdict) == 0,
        "seed": facts.seed,
        "directory": facts.directory,
        "paced_per_s": facts.rate or None,
        "bars_per_s": round(facts.per_s, 1),
        "working_s": round(facts.working_s, 2),
        "stable_s": dict(facts.stable_s),
        "found": {
            what: {"found": str(found), "expected": str(wanted)}
            for what, found, wanted in verdict.rows
        },
        "kills": facts.kills,
        "kills_least": facts.kills_least,
        "failures": facts.failures,
        "strikes": [
            {
                "deed": str(one.deed),
                "target": one.target,
                "at_s": round(one.at_s, 2),
                "booked": one.booked,
                "recovery_s": None if one.recovery_s is None else round(one.recovery_s, 2),
            }
            for one in facts.struck
        ],
        "recovery_s": {
            kind: [round(one, 2) for one in took] for kind, took in facts.recovery_s.items()
        },
        "strikes_missed": [str(one) for one in facts.missed],
        "frozen": facts.frozen,
        "fenced": facts.fenced,
        "ended_unasked": list(facts.unasked),
        "cut_short": facts.cut_short,
        "mismatches": {one.what: list(one.names) for one in verdict.mismatches},
    }


def as_tables(facts: Facts, verdict: Verdict) -> list[RenderableType]:
    """Returns the report for a person."""
    strikes = [_strikes(facts)] if facts.struck else []
    return [_result(facts, verdict), *strikes, _times(facts), *_end(facts, verdict)]


def _result(facts: Facts, verdict: Verdict) -> Table:
    how = f"{facts.rate:,} bars a second, with kills" if facts.rate else "unpaced"
    table = Table(title=f"The exchange, seed {facts.seed}, {how}", title_justify="left")
    table.add_column("what")
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    table.add_column("")
    for what, found, expected in verdict.rows:
        table.add_row(what, f"{found:,}", f"{expected:,}", _mark(is_right=found == expected))
    if facts.rate:
        enough = _mark(is_right=facts.kills >= facts.kills_least)
        table.add_row("kills", str(facts.kills), f"≥ {facts.kills_least}", enough)
    return table


def _mark(*, is_right: bool) -> str:
    return "[green]ok[/]" if is_right else "[red]WRONG[/]"


def _strikes(facts: Facts) -> Table:
    table = Table(title=f"{len(facts.struck)} strikes, all at work", title_justify="left")
    table.add_column("at s", justify="right")
    table.add_column("bars booked", justify="right")
    table.add_column("part")
    table.add_column("what")
    table.add_column("at work again after s", justify="right")
    for one in facts.struck:
        after = "the end" if one.recovery_s is None else f"{one.recovery_s:.1f}"
        table.add_row(f"{one.at_s:.1f}", f"{one.booked:,}", one.target, str(one.deed), after)
    return table


def _times(facts: Facts) -> Table:
    table = Table(title="Times", title_justify="left")
    table.add_column("what")
    table.add_column("", justify="right")
    table.add_row("from the first message to the last effect", f"{facts.working_s:.1f} s")
    table.add_row("bars a second, all outages included", f"{facts.per_s:,.0f}")
    for name, seconds in facts.stable_s.items():
        table.add_row(f"sent until stable, {name}", f"{1000 * seconds:,.1f} ms")
    for kind, took in facts.recovery_s.items():
        middle = statistics.median(took)
        table.add_row(
            f"{kind}: at work again after, median and most", f"{middle:.1f} s, {took[-1]:.1f} s"
        )
    return table


def _end(facts: Facts, verdict: Verdict) -> Iterator[str]:
    for text in facts.failures:
        yield f"[red]FAILED[/] {escape(text)}"
    for text in facts.unasked:
        yield f"not as it should: {escape(text)}"
    for mismatch in verdict.mismatches:
        yield f"[red]MISMATCH[/] {escape(str(mismatch))}"
    if exit_code(facts, verdict) == 0:
        yield "[green]Everything agrees[/]: file, stores, ledger, queue, topic, moves, tapes."
    yield f"the run's files: {escape(facts.directory)}"
