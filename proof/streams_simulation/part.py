"""The simulation of streams as parts of the proof: schedules of what ships, then mistakes in it.

Half of the schedules have stores in memory that outlive their processes: a part; half have stores
on disks that fail: another, which takes twice as long. Each hunts the mistakes of its half.
"""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
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

SCHEDULES = {Size.SMALL: 20, Size.PROOF: 10_000, Size.LONG: 200_000}
"""Of each half."""
PROCESSES = 2
CHUNK = 50
SHOWN_MAX = 50
AGAIN = "python -m proof.streams_simulation --variant"
HEAD = """\
What ships of sources, receivers and stores, on a clock of its own: their Programs and cores, and on
disks the log of a store, over disks that lose, tear and flip what they have, fill and fail to sync.
Lives are killed and stand still, links are cut, deaf in one direction, lose and
double; lists of stores change, numbers are given up; then all faults end. No more disks are lost at
a time than G11 allows. `python -m proof.streams_simulation --first N --runs 1` repeats a schedule,
with `--disks` one on disks; `--variant NAME` hunts a mistake.
"""


def run(order: Order, *, on_disks: bool) -> Outcome:
    """Run the schedules of a half from the order's seed on, hunt its mistakes, two at a time."""
    total = Tally()
    caught: list[Caught] = []
    runs, hunts = _runs(order, on_disks=on_disks), _hunts(order, on_disks=on_disks)
    judges = [one for one in BLIND if VARIANTS[one.variant].on_disks is on_disks]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for made in pool.imap_unordered(tally, runs):
            total.add(made)
            order.say("schedules", total.schedules, SCHEDULES[order.size])
        seconds = time.monotonic() - began
        for found in pool.imap_unordered(hunt_for, hunts):
            caught.append(found)
            order.say(f"mistake {found.variant}", len(caught), len(hunts))
        blind = pool.map(is_caught, [(one, order.place) for one in judges])
    caught.sort(key=lambda one: one.variant)
    return Outcome(
        measures=[
            *_measures(total, caught, len(hunts)),
            Measure(
                what="blind judges of streams, told from one that sees by one schedule each",
                reached=sum(blind),
                goal=len(judges),
            ),
        ],
        violations=[*total.broken[:SHOWN_MAX], *_uncaught(caught)],
        page=page(total, caught, seconds),
    )


def _runs(order: Order, *, on_disks: bool) -> list[Run]:
    last = order.seed + SCHEDULES[order.size]
    return [
        Run(seeds=range(first, min(first + CHUNK, last)), on_disks=on_disks, home=order.place)
        for first in range(order.seed, last, CHUNK)
    ]


def _seen(*, on_disks: bool) -> list[str]:
    """Return the mistakes that the schedules of a half must notice."""
    return [name for name in SEEN if VARIANTS[name].on_disks is on_disks]


def _hunts(order: Order, *, on_disks: bool) -> list[tuple[str, range, Path]]:
    """Return the mistakes to hunt, and in which schedules."""
    is_small = order.size is Size.SMALL
    firsts = {
        name: VARIANTS[name].shown_by if is_small else order.seed
        for name in _seen(on_disks=on_disks)
    }
    return [
        (name, range(first, first + VARIANTS[name].within), order.place)
        for name, first in firsts.items()
    ]


def _measures(total: Tally, caught: Sequence[Caught], hunted: int) -> Iterator[Measure]:
    yield Measure(what=goals.STREAM_SIMULATED, reached=total.schedules)
    yield Measure(what="recoveries in the simulation of streams", reached=total.did["recoveries"])
    yield Measure(what="numbers stable in the simulation of streams", reached=total.stable)
    yield Measure(
        what="mistakes in what ships of streams, noticed by the simulation",
        reached=sum(bool(one.broken) for one in caught),
        goal=hunted,
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


def _part(name: str, text: str, *, on_disks: bool) -> Part:
    return Part(
        name=name,
        text=text,
        run=partial(run, on_disks=on_disks),
        states=(goals.STREAM_SIMULATED,),
        in_memory=True,
        limits=Limits(small_s=300.0, long_s=12 * 3600.0),
    )


PART = _part(
    "streams-simulation",
    "Seeded schedules of what ships of streams, over links and processes that fail.",
    on_disks=False,
)
ON_DISKS = _part(
    "streams-disks",
    "Seeded schedules of what ships of streams, over disks that fail, too.",
    on_disks=True,
)
