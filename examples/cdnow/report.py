"""The report of a run: tables for a person, one object for a program.

Pure except for `read_receipts`; the runner prints what this returns.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
from rich.markup import escape
from rich.table import Table

from examples.cdnow.faults import KINDS, Strike, Struck
from examples.cdnow.shop import Pipeline, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import RenderableType

    from examples.cdnow.checks import Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the runner saw. sending_s: from the first request sent to the last receipt.

    missed: strikes for which no work was left. unasked: children that ended without a kill.
    cut_short: why the run ended before all was done, if it did.
    """

    seed: int
    source: str
    directory: str
    phases_s: Mapping[str, float]
    sending_s: float
    latencies_s: Mapping[str, float]
    struck: tuple[Struck, ...]
    missed: tuple[Strike, ...]
    unasked: tuple[str, ...] = ()
    cut_short: str | None = None
    pipeline: Pipeline | None = None


def exit_code(facts: Facts, verdict: Verdict) -> int:
    """0 when everything agrees, else 1."""
    is_wrong = verdict.mismatches or facts.cut_short or _wrong_of_pipeline(facts, verdict)
    return 1 if is_wrong else 0


def _wrong_of_pipeline(facts: Facts, verdict: Verdict) -> bool:
    done = facts.pipeline
    return done is not None and (done.archived, done.violations) != (verdict.orders, 0)


def read_receipts(paths: list[Path]) -> Iterator[Recorded]:
    """Yields the lines of the clients' receipts files; a client that never began has none."""
    decoder = msgspec.json.Decoder(Recorded)
    for path in paths:
        if path.exists():
            for line in path.read_bytes().splitlines():
                yield decoder.decode(line)


def as_object(facts: Facts, verdict: Verdict) -> dict[str, Any]:
    """Returns the report for programs; its keys are public, `v` counts their versions."""
    struck = collections.Counter(one.kind for one in facts.struck)
    return {
        "v": 1,
        "ok": exit_code(facts, verdict) == 0,
        "seed": facts.seed,
        "source": facts.source,
        "directory": facts.directory,
        "orders": verdict.orders,
        "customers": verdict.customers,
        "dollars": {name: str(amount) for name, amount in verdict.dollars.items()},
        "requests_sent": verdict.requests_sent,
        "executed_once": verdict.executed_once,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "receipts": verdict.receipts,
        "crashes_survived": {kind.replace(" ", "_").lower(): struck[kind] for kind in KINDS},
        "kills": [
            {
                "kind": one.kind.replace(" ", "_").lower(),
                "target": one.target,
                "at_s": round(one.at_s, 2),
                "booked": one.booked,
                "recovery_s": None if one.recovery_s is None else round(one.recovery_s, 2),
            }
            for one in facts.struck
        ],
        "kills_missed": [str(one) for one in facts.missed],
        "ended_unasked": list(facts.unasked),
        "requests_per_second": round(verdict.receipts / facts.sending_s, 1)
        if facts.sending_s
        else None,
        "latency_s": dict(facts.latencies_s),
        "phases_s": {name: round(seconds, 2) for name, seconds in facts.phases_s.items()},
        "cut_short": facts.cut_short,
        "pipeline": None if facts.pipeline is None else msgspec.to_builtins(facts.pipeline),
        "mismatches": [dataclasses.asdict(one) for one in verdict.mismatches],
    }


def as_tables(facts: Facts, verdict: Verdict) -> list[RenderableType]:
    """Returns the report for a person."""
    kills = [_kills(facts)] if facts.struck else []
    return [_result(facts, verdict), *kills, _times(facts, verdict), *_end(facts, verdict)]


def _result(facts: Facts, verdict: Verdict) -> Table:
    table = Table(title=f"{facts.source}, seed {facts.seed}", title_justify="left")
    table.add_column("what")
    table.add_column("found", justify="right")
    table.add_column("expected", justify="right")
    table.add_column("")
    orders, dollars = verdict.orders, verdict.dollars["file"]
    rows: list[tuple[str, object, object]] = [
        ("requests sent", verdict.requests_sent, orders),
        ("executed exactly once", verdict.executed_once, orders),
        ("lost", verdict.lost, 0),
        ("doubled", verdict.doubled, 0),
        ("receipts, received exactly once", verdict.receipts, orders),
        ("dollars booked", verdict.dollars["booked"], dollars),
        (f"dollars in {verdict.customers:,} customers' totals", verdict.dollars["totals"], dollars),
        ("dollars on the receipts", verdict.dollars["receipts"], dollars),
    ]
    if facts.pipeline is not None:
        rows += [
            ("requests in the archive", facts.pipeline.archived, orders),
            ("violations that the audit found", facts.pipeline.violations, 0),
        ]
    for what, found, expected in rows:
        mark = "[green]ok[/]" if found == expected else "[red]WRONG[/]"
        table.add_row(what, f"{found:,}", f"{expected:,}", mark)
    return table


def _kills(facts: Facts) -> Table:
    table = Table(title=f"{len(facts.struck)} kills with -9, all at work", title_justify="left")
    table.add_column("at s", justify="right")
    table.add_column("orders booked", justify="right")
    table.add_column("killed")
    table.add_column("at work again after s", justify="right")
    for one in facts.struck:
        after = "the end" if one.recovery_s is None else f"{one.recovery_s:.1f}"
        table.add_row(f"{one.at_s:.1f}", f"{one.booked:,}", f"{one.kind} ({one.target})", after)
    return table


def _times(facts: Facts, verdict: Verdict) -> Table:
    table = Table(title="Times", title_justify="left")
    table.add_column("what")
    table.add_column("", justify="right")
    for name, seconds in facts.phases_s.items():
        table.add_row(name, f"{seconds:.1f} s")
    if facts.sending_s:
        rate = verdict.receipts / facts.sending_s
        table.add_row("requests per second, all outages included", f"{rate:,.0f}")
    for name, seconds in facts.latencies_s.items():
        table.add_row(f"request to reply, {name}", f"{seconds:.2f} s")
    return table


def _end(facts: Facts, verdict: Verdict) -> Iterator[str]:
    if facts.missed:
        which = "; ".join(map(str, facts.missed))
        yield f"not struck, as the work, or the time for strikes, was over before: {which}"
    for text in facts.unasked:
        yield f"ended without being killed, and was started again: {escape(text)}"
    if facts.cut_short:
        yield f"[red]cut short[/]: {escape(facts.cut_short)}"
    for mismatch in verdict.mismatches:
        yield f"[red]MISMATCH[/] {escape(str(mismatch))}"
    if exit_code(facts, verdict) == 0:
        yield "[green]Everything agrees[/]: file, bookings, totals, history and receipts."
    yield f"the run's files: {escape(facts.directory)}"
    if facts.pipeline is not None:
        yield f"open in a browser: {escape(facts.pipeline.report)}"
        yield f"and the audit: {escape(facts.pipeline.audit)}"
