"""The simulation of streams as a part of the proof: schedules of what ships, then mistakes in it.

Half of the schedules have stores in memory that outlive their processes, half stores on disks that
fail.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.streams_model.rules import PROMISES
from proof.streams_simulation.blind import BLIND, is_caught
from proof.streams_simulation.hunting import Run, Tally, hunt_for, tally
from proof.streams_simulation.variants import SEEN, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from proof.part import Order
    from proof.streams_simulation.hunting import Caught

SCHEDULES = {Size.SMALL: 40, Size.PROOF: 20_000, Size.LONG: 400_000}
PROCESSES = 2
CHUNK = 50
SHOWN_MAX = 50
AGAIN = "python -m proof.streams_simulation --variant"
HEAD = """\
What ships of sources, receivers and stores, on a clock of its own: their Programs and cores, and in
half of the schedules the log of a store, over disks that lose, tear and flip what they have, fill
and fail to sync. Lives are killed and stand still, links are cut, deaf in one direction, lose and
double; lists of stores change, numbers are given up; then all faults end. No more disks are lost at
a time than G11 allows. `python -m proof.streams_simulation --first N --runs 1` repeats a schedule,
`--disks` one of the other half, `--variant NAME` hunts a mistake.
"""


def run(order: Order) -> Outcome:
    """Run the schedules from the order's seed on, and hunt the mistakes, two at a time."""
    total = Tally()
    caught: list[Caught] = []
    runs, hunts = _runs(order), _hunts(order)
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for made in pool.imap_unordered(tally, runs):
            total.add(made)
            order.say("schedules", total.schedules, SCHEDULES[order.size])
        seconds = time.monotonic() - began
        for found in pool.imap_unordered(hunt_for, hunts):
            caught.append(found)
            order.say(f"mistake {found.variant}", len(caught), len(hunts))
        blind = pool.map(is_caught, [(one, order.place) for one in BLIND])
    caught.sort(key=lambda one: one.variant)
    return Outcome(
        measures=[
            *_measures(total, caught),
            Measure(
                what="blind judges of streams, told from one that sees by one schedule each",
                reached=sum(blind),
                goal=len(BLIND),
            ),
        ],
        violations=[*total.broken[:SHOWN_MAX], *_uncaught(caught)],
        page=page(total, caught, seconds),
    )


def _runs(order: Order) -> list[Run]:
    half = SCHEDULES[order.size] // 2
    last = order.seed + half
    return [
        Run(seeds=range(first, min(first + CHUNK, last)), on_disks=on_disks, home=order.place)
        for first in range(order.seed, last, CHUNK)
        for on_disks in (False, True)
    ]


def _hunts(order: Order) -> list[tuple[str, range, Path]]:
    """Return the mistakes to hunt, and in which schedules."""
    is_small = order.size is Size.SMALL
    firsts = {name: VARIANTS[name].shown_by if is_small else order.seed for name in SEEN}
    return [
        (name, range(first, first + VARIANTS[name].within), order.place)
        for name, first in firsts.items()
    ]


def _measures(total: Tally, caught: Sequence[Caught]) -> Iterator[Measure]:
    yield Measure(what=goals.STREAM_SIMULATED, reached=total.schedules)
    yield Measure(what="recoveries in the simulation of streams", reached=total.did["recoveries"])
    yield Measure(what="numbers stable in the simulation of streams", reached=total.stable)
    yield Measure(
        what="mistakes in what ships of streams, noticed by the simulation",
        reached=sum(bool(one.broken) for one in caught),
        goal=len(SEEN),
    )
    yield Measure(
        what="promises of streams by which some mistake was noticed",
        reached=len({name for one in caught for name in one.broken}),
    )


def _uncaught(caught: Sequence[Caught]) -> Iterator[str]:
    for one in caught:
        if not one.broken:
            text = f"the mistake {one.variant} broke nothing in {one.schedules:,} schedules"
            yield f"{text} ({AGAIN} {one.variant})"


def page(total: Tally, caught: Sequence[Caught], seconds: float) -> str:
    """Return the section of the report."""
    lines = [
        f"{total.schedules:,} schedules, {total.did['recoveries']:,} recoveries,",
        f"{total.stable:,} numbers stable; {total.schedules / seconds:,.0f} schedules a second in",
        f"{PROCESSES} processes.",
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
        "With each of these mistakes in what ships, a promise must break in so many schedules.",
        "",
        "| mistake | what is wrong | broken | in schedule | of at most |",
        "| --- | --- | --- | --: | --: |",
    ]
    for found in caught:
        variant = VARIANTS[found.variant]
        by = ", ".join(sorted(found.broken)) or "nothing"
        cells = f"{by} | {found.schedules:,} | {variant.within:,}"
        lines.append(f"| {found.variant} | {variant.text} | {cells} |")
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-simulation",
    text="Seeded schedules of what ships of streams, over links, disks and processes that fail.",
    run=run,
    states=(goals.STREAM_SIMULATED,),
    in_memory=True,
    limits=Limits(small_s=300.0, long_s=12 * 3600.0),
)
