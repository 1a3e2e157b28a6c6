"""The history checker as a part of the proof: it is fast, and finds what is broken and no more."""

from __future__ import annotations

import resource
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.history import check_files
from proof.goals import INVENTED
from proof.history.clients import invent
from proof.history.corruptions import CORRUPTIONS, corrupted
from proof.part import Control, Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from pathlib import Path

    from proof.part import Order

EVENTS_OF = {Size.SMALL: 200_000, Size.PROOF: 5_000_000, Size.LONG: 100_000_000}
HISTORY_MAX = 5_000_000
"""The events of one history: a longer part checks several, one after the other."""
ROUNDS_OF = {Size.SMALL: 1, Size.PROOF: 6, Size.LONG: 100}
BLOCK = 4_000
"""Requests that are invented at a time: clients with names of their own, the same servers."""
SPEED = "events checked a second, on one core"
SPEED_MIN = 300_000
MEMORY = "MiB of memory in use at most"
BROKEN = "a history that is broken at one place has no violation"
PLANTED = "planted violations found"


@dataclass(slots=True)
class Checked:
    """What was checked of valid histories. cpu_s: of the check alone, reading included."""

    events: int = 0
    rows: int = 0
    cpu_s: float = 0.0
    violations: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Planted:
    """What was found of what was planted. by_guarantee: how often each was named correctly."""

    tried: int = 0
    found: int = 0
    by_guarantee: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])


def check_valid(order: Order, events: int) -> Checked:
    """Writes and checks valid histories of so many events together."""
    checked = Checked()
    number = 0
    while checked.events < events:
        folder = order.place / f"history-{number}"
        folder.mkdir()
        seed = f"{order.seed}.{number}"
        left = min(HISTORY_MAX, events - checked.events)
        _write(order, folder, seed, left)
        order.say("checking events", checked.events, events)
        began = time.process_time()
        report = check_files(folder)
        checked.cpu_s += time.process_time() - began
        checked.events += report.events
        checked.rows += report.rows
        checked.violations += [
            f"in the valid history {seed}: {one}" for one in report.violations[:5]
        ]
        shutil.rmtree(folder)
        number += 1
    return checked


def _write(order: Order, folder: Path, seed: str, events: int) -> None:
    written = block = 0
    while written < events:
        written += invent(seed, BLOCK, f"{block}-").append_to(folder)
        block += 1
        order.say("inventing events", min(written, events), events)


def plant(order: Order, rounds: int) -> Planted:
    """Breaks one history for each kind, and repeats that."""
    planted = Planted()
    for turn in range(rounds):
        for name in CORRUPTIONS:
            seed = f"{order.seed}.{turn}"
            wanted, before, after = corrupted(name, seed)
            named = {(one.guarantee, one.rid) for one in after}
            planted.tried += 1
            if before:
                planted.violations.append(f"before {name!r}, seed {seed}: {before[0]}")
            elif wanted in named:
                planted.found += 1
                planted.by_guarantee[wanted[0]] += 1
            else:
                planted.violations.append(f"{name!r} was not found, seed {seed}: {wanted}")
        order.say("planting violations", planted.tried, rounds * len(CORRUPTIONS))
    return planted


def run(order: Order) -> Outcome:
    """Checks valid histories and broken ones."""
    checked = check_valid(order, EVENTS_OF[order.size])
    unit = 1 << (20 if sys.platform == "darwin" else 10)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
    planted = plant(order, ROUNDS_OF[order.size])
    is_small = order.size is Size.SMALL  # a fraction of a second: only stated
    speed = int(checked.events / checked.cpu_s)
    return Outcome(
        measures=[
            Measure(what=INVENTED, reached=checked.events),
            Measure(what=SPEED, reached=speed, goal=None if is_small else SPEED_MIN),
            Measure(what=MEMORY, reached=memory),
            Measure(what=PLANTED, reached=planted.found, goal=planted.tried),
        ],
        violations=checked.violations + planted.violations,
        controls=[
            Control(
                what=BROKEN,
                broke=planted.found,
                of=planted.tried,
            )
        ],
        page=_page(checked, planted, memory),
    )


def _page(checked: Checked, planted: Planted, memory: int) -> str:
    rows = "\n".join(f"| {name} | {n} |" for name, n in sorted(planted.by_guarantee.items()))
    return f"""\
{checked.events:,} events of clients, native servers, batch servers, Spark, killers and operators,
in files as processes write them, and {checked.rows:,} rows of final states: read and checked in
{checked.cpu_s:.1f} s of one core, {checked.events / checked.cpu_s:,.0f} events a second, within
{memory:,} MiB. No violation is there, and none was found.

{planted.tried} more histories were broken at one place each, in {len(CORRUPTIONS)} ways, at places
that the seed decides; {planted.found} times the checker named the guarantee and the request.

| guarantee | planted and found |
|---|---:|
{rows}
"""


PART = Part(
    name="history",
    text="checks long valid histories, and histories broken at one place each",
    run=run,
    states=(INVENTED,),
    controls={BROKEN: 1.0},
    alone=True,  # it states a rate
    limits=Limits(small_s=120, proof_s=600, long_s=3 * 3600),
)
