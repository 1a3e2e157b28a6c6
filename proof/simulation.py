"""Seeded schedules of everything that ships: 20,000 in the proof, and which fault hit which Op.

Two processes. Each schedule is one seed, and `python -m proof.simulator.simulator --seed N` shows
every step of it.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.simulator.chances import FAULTS, Coverage
from proof.simulator.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Order

SCHEDULES = {Size.SMALL: 1_000, Size.PROOF: 20_000, Size.LONG: 2_000_000}
PROCESSES = 2
CHUNK = 250
SHOWN_MAX = 50
REPLAY = "replay: python -m proof.simulator.simulator --shrink --seed"


@dataclass(slots=True)
class Tally:
    """The result of some schedules. faults: how many hit."""

    schedules: int = 0
    steps: int = 0
    faults: int = 0
    broken: list[str] = field(default_factory=list[str])
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, other: Tally) -> None:
        """Adds the results of others."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.faults += other.faults
        self.broken += other.broken
        self.coverage.add(other.coverage)


def run_seeds(seeds: tuple[int, int]) -> Tally:
    """Runs the schedules of seeds from the first up to the last, excluded."""
    tally = Tally()
    for seed in range(*seeds):
        result = simulate(seed)
        tally.schedules += 1
        tally.steps += result.steps
        tally.faults += len(result.faults)
        tally.broken += [f"{one}; {REPLAY} {seed}" for one in result.violations[:3]]
        tally.coverage.add(result.coverage)
    return tally


def run(order: Order) -> Outcome:
    """Runs the schedules from the order's seed on."""
    count = SCHEDULES[order.size]
    last = order.seed + count
    chunks = [(first, min(first + CHUNK, last)) for first in range(order.seed, last, CHUNK)]
    total = Tally()
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for tally in pool.imap_unordered(run_seeds, chunks):
            total.add(tally)
            order.say("schedules", total.schedules, count)
    seconds = time.monotonic() - began
    violations = total.broken[:SHOWN_MAX]
    if order.size is not Size.SMALL:
        missing = total.coverage.missing()
        violations += [f"no schedule had {fault!r} at {op}" for op, fault in missing]
    return Outcome(
        measures=[
            Measure(what=goals.SCHEDULES, reached=total.schedules),
            Measure(what="steps of schedules", reached=total.steps),
            Measure(what="faults in schedules", reached=total.faults),
        ],
        violations=violations,
        page="\n".join(_page(total, seconds)),
    )


def _page(total: Tally, seconds: float) -> Iterator[str]:
    rate = round(total.schedules / seconds)
    yield f"{total.schedules:,} schedules of {total.steps:,} steps, {total.faults:,} faults;"
    yield f"{rate:,} schedules a second in {PROCESSES} processes. How often each fault hit each"
    yield "operation; `-` where it cannot:"
    yield ""
    yield "| operation | performed | " + " | ".join(FAULTS) + " |"
    yield "|---|" + "--:|" * (len(FAULTS) + 1)
    possible = {(one.op, fault) for one in total.coverage.offers for fault in one.faults}
    for op in sorted({one.op for one in total.coverage.offers}):
        hits = [
            f"{total.coverage.hits[op, fault]:,}" if (op, fault) in possible else "-"
            for fault in FAULTS
        ]
        yield f"| {op} | {total.coverage.ops[op]:,} | " + " | ".join(hits) + " |"


PART = Part(
    name="simulation",
    text="Seeded schedules of the Programs that ship, with faults at every step, in memory.",
    run=run,
    states=(goals.SCHEDULES,),
    limits=Limits(small_s=300.0, long_s=12 * 3600.0),
)
