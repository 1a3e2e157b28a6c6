"""Torture as a part of the proof: every fault at once, on real processes and a real PostgreSQL.

The same as `make torture`. It must find its controls: a finish without its fence, a
client that orders again whenever it does not know, a connection that breaks and is charged, and
claims that come back two minutes late.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proof import goals
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.torture import Plan, run
from proof.torture.command import spark_command
from proof.torture.evidence import ABORTS_NAME
from proof.torture.life import LOGS
from proof.torture.plan import BY_NAME, CONTROLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proof.part import Order
    from proof.torture import Progress, Report

SECONDS: Final = {Size.SMALL: 20.0, Size.PROOF: 1080.0, Size.LONG: 7 * 3600.0}
BROKEN: Final = {
    "fence": "torture without the fence of a finish",
    "clerk": "torture of a client that orders again when it does not know",
    "charge": "torture of servers that are charged for connections that broke",
    "claim": "torture of claims that come back two minutes late",
}
PROVES: Final = {
    "fence": re.compile(
        r"G[28]\b.*(there \d+ times|committed \d+ times|\d effects are there, not 1"
        r"|by several transactions|and its effect is there)$"
    ),
    "clerk": re.compile(r"G2\b.*(booked by \d+ requests|booked by several requests)$"),
    "charge": re.compile(r"G7\b.* was charged for the death of \d+, which "),
    "claim": re.compile(r"G12: .* is put off for longer than any back-off$"),
}
"""How each control must be found: the effect of a lost claim, an order booked twice, an
innocent request that was charged, and one that is kept waiting."""
KEPT: Final = Path(__file__).parents[2] / ".data"
LONG_ENOUGH_S: Final = 600.0
"""A run of this length has each kind of fault at least once, or says why not."""
CONTROL_SECONDS: Final = 120.0
"""How soon a control must be found; its run ends when it is."""
CONTROLS_ABREAST: Final = {Size.SMALL: 2, Size.PROOF: 1, Size.LONG: 1}
LOOKS_S: Final = 1.0
"""How often it is looked whether a control is found."""


def torture(order: Order) -> Outcome:
    """Tortures, and then tortures versions broken on purpose."""
    seconds = SECONDS[order.size]

    def watch(progress: Progress) -> None:
        text = (
            f"{progress.phase}: {progress.acknowledged:,} requests, {progress.kills:,} kills, "
            f"{progress.violations} violations"
        )
        order.say(text, min(round(progress.elapsed_s), round(seconds)), round(seconds))

    spark = spark_command(minutes=seconds / 60, wanted=None)
    plan = Plan(seconds=seconds, seed=order.seed, place=order.place / "run", spark=spark)
    report = run(plan, watch)
    if report.violations:
        sys.stderr.write(f"torture: events and logs are kept in {kept(plan)}\n")
    controls = tried(order)
    return Outcome(
        measures=_measures(report),
        violations=[
            f"{text} ({report.repeat})"
            for text in (*report.violations, *(unmade(report) if seconds >= LONG_ENOUGH_S else ()))
        ],
        controls=controls,
        page=report.page(),
    )


def kept(plan: Plan) -> Path:
    """Keeps what shows how a violation came to be, which no second run may show again."""
    where = KEPT / f"torture-{plan.seed}-{time.time_ns()}"
    where.mkdir(parents=True)
    for name in ("events", LOGS, ABORTS_NAME, "said.txt", "report.md"):
        if (plan.place / name).exists():
            shutil.move(plan.place / name, where / name)
    return where


def _measures(report: Report) -> list[Measure]:
    return [
        Measure(what=goals.REQUESTS, reached=report.acknowledged),
        Measure(what=goals.KILLS, reached=report.kills),
        Measure(what=goals.CRASHES, reached=report.crashes),
        Measure(what=goals.CUT, reached=report.made("cut")),
        Measure(what=goals.SILENT, reached=report.made("silence")),
        Measure(what=goals.ENDED, reached=report.made("end")),
        Measure(what=goals.UNKNOWN_COMMITS, reached=report.unknown_total),
        Measure(what=goals.EVENTS, reached=report.events),
        Measure(what="processes killed a minute, in torture", reached=int(report.kills_per_minute)),
    ]


def unmade(report: Report) -> list[str]:
    """Returns the kinds of faults that were never made, if nothing says why not."""
    explained = {text.partition(",")[0] for text in report.not_made}
    return [
        f"G12: no fault '{name}' was made, and nothing says why"
        for name in BY_NAME
        if not report.faults.get(name) and name not in explained
    ]


def is_proved(broken: str, violations: Iterable[str]) -> bool:
    """Whether one of these violations is what this control breaks, and not any other trouble."""
    return any(PROVES[broken].match(text) for text in violations)


def tried(order: Order) -> list[Control]:
    """Runs the controls: one at a time in this thread, so that an interrupt ends it at once.

    Where several run abreast, an error or an interrupt cancels those that wait, and is raised when
    those that run have ended.
    """
    abreast = CONTROLS_ABREAST[order.size]
    if abreast == 1:
        return [_control(order, broken) for broken in CONTROLS]
    pool = ThreadPoolExecutor(abreast)
    try:
        return list(pool.map(lambda broken: _control(order, broken), CONTROLS))
    finally:
        pool.shutdown(cancel_futures=True)


def _control(order: Order, broken: str) -> Control:
    """Runs a control; it ends as soon as something wrong is seen."""
    order.say(f"breaking the {broken} on purpose", 0, 1)
    place = order.place / broken
    plan = Plan(
        seconds=CONTROL_SECONDS, seed=order.seed, place=place, broken=broken, looks_s=LOOKS_S
    )
    report = run(plan)
    return Control(what=BROKEN[broken], broke=int(is_proved(broken, report.violations)), of=1)


PART = Part(
    name="torture",
    text="clients, servers, Spark and PostgreSQL under every fault at once; their whole history",
    run=torture,
    states=(
        goals.REQUESTS,
        goals.KILLS,
        goals.CRASHES,
        goals.CUT,
        goals.SILENT,
        goals.ENDED,
        goals.UNKNOWN_COMMITS,
        goals.EVENTS,
    ),
    controls=dict.fromkeys(BROKEN.values(), 1.0),
    alone=True,
    limits=Limits(small_s=300.0, long_s=9 * 3600.0),
)
