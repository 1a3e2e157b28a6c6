"""The model of streams as a part of the proof: schedules by all rules, then the variants."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.streams_model.hunting import Tally, hunt_from, run_seeds
from proof.streams_model.rules import PROMISES, VARIANT_BY_NAME, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proof.part import Order
    from proof.streams_model.hunting import Caught

SCHEDULES = {Size.SMALL: 400, Size.PROOF: 100_000, Size.LONG: 2_000_000}
PROCESSES = 2
CHUNK = 200
SHOWN_MAX = 50
AGAIN = "python -m proof.streams_model --variant"
HEAD = """\
Lives of a source, several at once, over abstract stores, with two receivers; by the tables, the
choice and the quorums of the product. In each schedule asks and answers are lost, stores go down,
are wiped, damaged, filled and trimmed, lists of stores change, numbers are given up; then all
faults end. No more disks are lost at a time than G11 allows: those lost contain no stable set.
`python -m proof.streams_model --seed N` shows one, `--variant NAME` hunts a variant.
"""


def run(order: Order) -> Outcome:
    """Run the schedules from the order's seed on, and hunt the variants, two at a time."""
    count = SCHEDULES[order.size]
    last = order.seed + count
    chunks = [(first, min(first + CHUNK, last)) for first in range(order.seed, last, CHUNK)]
    total = Tally()
    caught: list[Caught] = []
    began = time.monotonic()
    hunts = _hunts(order)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for tally in pool.imap_unordered(run_seeds, chunks):
            total.add(tally)
            order.say("schedules", total.schedules, count)
        seconds = time.monotonic() - began
        for found in pool.imap(hunt_from, hunts):
            caught.append(found)
            order.say(f"variant {found.variant}", len(caught), len(hunts))
    return Outcome(
        measures=list(_measures(total, caught)),
        violations=[*total.broken[:SHOWN_MAX], *_uncaught(caught)],
        page=page(total, caught, seconds),
    )


def _hunts(order: Order) -> list[tuple[str, int]]:
    """Return the variants to hunt, and the first schedule of each."""
    if order.size is not Size.SMALL:
        return [(one.name, order.seed) for one in VARIANTS]
    return [(one.name, one.shown_by) for one in VARIANTS]


def _measures(total: Tally, caught: Sequence[Caught]) -> Iterator[Measure]:
    yield Measure(what=goals.STREAM_SCHEDULES, reached=total.schedules)
    yield Measure(what="recoveries of sources in these schedules", reached=total.recoveries)
    yield Measure(what="numbers reported stable in them", reached=total.stable)
    yield Measure(
        what="broken variants of the recovery of streams, caught",
        reached=sum(bool(one.promise) for one in caught),
        goal=len(caught),
    )


def _uncaught(caught: Sequence[Caught]) -> Iterator[str]:
    for one in caught:
        if not one.promise:
            text = f"variant {one.variant} broke nothing in {one.schedules:,} schedules"
            yield f"{text} ({AGAIN} {one.variant})"


def page(total: Tally, caught: Sequence[Caught], seconds: float) -> str:
    """Return the section of the report."""
    lines = [
        f"{total.schedules:,} schedules, {total.recoveries:,} recoveries, {total.stable:,} numbers",
        f"stable; {total.schedules / seconds:,.0f} schedules a second in {PROCESSES} processes.",
        "",
        HEAD,
        "What is promised:",
        "",
        *(f"- {name}: {text}" for name, text in PROMISES.items()),
        "",
        "What befell them, how often:",
        "",
        "| | times |",
        "| --- | --: |",
        *(f"| {what} | {count:,} |" for what, count in sorted(total.did.items())),
        "",
        "Each of these variants leaves out a rule, and must break a promise in so many schedules.",
        "",
        "| variant | what was broken | caught by | in schedule | of at most |",
        "| --- | --- | --- | --: | --: |",
    ]
    for found in caught:
        variant = VARIANT_BY_NAME[found.variant]
        by = found.promise or "nothing"
        cells = f"{by} | {found.schedules:,} | {variant.within:,}"
        lines.append(f"| {variant.name} | {variant.text} | {cells} |")
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-model",
    text="Seeded schedules of the recovery of streams, by the product's tables, in memory.",
    run=run,
    states=(goals.STREAM_SCHEDULES,),
    limits=Limits(small_s=300.0, long_s=12 * 3600.0),
)
