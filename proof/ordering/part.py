"""Schedules of a queue in strict order (Q8): nothing is overtaken, and never two are in flight.

A part of the proof. Two processes share one PostgreSQL; each runs its schedules in chunks, each
chunk in a repository of its own. The control: a claim that does not note what has begun must be
found. A violation names its schedule: `python -m proof.ordering.part SEED` runs it again.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from onceq.engine.embedded import open_embedded
from onceq.engine.schema.migrate import apply_with
from onceq.engine.schema.scripts import function_sources, in_schema
from proof import goals
from proof.ordering.schedules import KINDS, Schedule
from proof.part import Control, Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proof.part import Order

SCHEDULES: Final = {Size.SMALL: 60, Size.PROOF: 5_000, Size.LONG: 100_000}
CONTROLS: Final = {Size.SMALL: 40, Size.PROOF: 400, Size.LONG: 2_000}
LEAST: Final = {Size.SMALL: 1, Size.PROOF: 100, Size.LONG: 2_000}
"""How often each kind of thing must have happened."""
CHUNK: Final = 20
PROCESSES: Final = 2
SHOWN_MAX: Final = 50
SETTINGS: Final = {"fsync": "off"}
"""Nothing happens to PostgreSQL here, so it need not wait for its disk."""
NOTES: Final = "insert into onceq.begun (queue_id, ring, seq) values (p_queue_id, 0, first)"
FORGETS: Final = "insert into onceq.begun select 0, 0, 0 where false"
CONTROL: Final = "a claim that does not note what has begun"


@dataclass(slots=True)
class Tally:
    """The result of some schedules. did: by kind; wrong: by schedule."""

    schedules: int = 0
    did: Counter[str] = field(default_factory=Counter[str])
    wrong: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def add(self, other: Tally) -> None:
        """Adds what others have found."""
        self.schedules += other.schedules
        self.did += other.did
        self.wrong |= other.wrong


def run_seeds(conninfo: str, repository: str, seeds: Iterable[int]) -> Tally:
    """Runs the schedules of some seeds in a repository."""
    tally = Tally()
    for seed in seeds:
        schedule = Schedule(conninfo, repository, seed)
        schedule.run()
        tally.schedules += 1
        tally.did += schedule.did
        if schedule.wrong:
            tally.wrong[seed] = schedule.wrong
    return tally


def _run_chunk(conninfo: str, seeds: range, *, is_broken: bool = False) -> Tally:
    """The same in a repository that is made for it, and dropped."""
    repository = f"{'broken' if is_broken else 'line'}_{seeds.start}"
    apply_with(conninfo, repository)
    if is_broken:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(in_schema(_forgetful(), repository).encode())
    try:
        return run_seeds(conninfo, repository, seeds)
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"drop schema {repository} cascade".encode())


def _forgetful() -> str:
    """Returns the functions of a strict queue with the mistake. ValueError: they have changed."""
    text = dict(function_sources())["order.sql"]
    if text.count(NOTES) != 1:
        raise ValueError(f"{NOTES!r} stands {text.count(NOTES)} times in order.sql")
    return text.replace(NOTES, FORGETS)


def _chunks(first: int, count: int) -> list[range]:
    last = first + count
    return [range(one, min(one + CHUNK, last)) for one in range(first, last, CHUNK)]


def run(order: Order) -> Outcome:
    """Runs the schedules from the order's seed on, two at a time, and then the control's."""
    began = time.monotonic()
    total, control = Tally(), Tally()
    with (
        open_embedded(order.place / "postgresql", settings=SETTINGS) as server,
        multiprocessing.get_context("spawn").Pool(PROCESSES) as pool,
    ):
        sound = functools.partial(_run_chunk, server.conninfo)
        for tally in pool.imap_unordered(sound, _chunks(order.seed, SCHEDULES[order.size])):
            total.add(tally)
            order.say("schedules", total.schedules, SCHEDULES[order.size])
        broken = functools.partial(_run_chunk, server.conninfo, is_broken=True)
        for tally in pool.imap_unordered(broken, _chunks(order.seed, CONTROLS[order.size])):
            control.add(tally)
            order.say(CONTROL, control.schedules, CONTROLS[order.size])
    least = LEAST[order.size]
    return Outcome(
        measures=[
            Measure(what=goals.ORDERED, reached=total.schedules),
            *(Measure(what=kind, reached=total.did[kind], goal=least) for kind in KINDS),
        ],
        violations=[
            f"schedule {seed}: {'; '.join(wrong[:3])}"
            for seed, wrong in sorted(total.wrong.items())[:SHOWN_MAX]
        ],
        controls=[Control(what=CONTROL, broke=len(control.wrong), of=control.schedules)],
        page=page(total, control, time.monotonic() - began),
    )


def page(total: Tally, control: Tally, seconds: float) -> str:
    """Returns the section of the report."""
    lines = [
        f"{total.schedules:,} schedules in {seconds:,.0f} s, each of three servers and several",
        "senders at one queue in strict order, with all that is counted here. In none was anything",
        "overtaken that was sent before it, and never were two in flight.",
        "",
        "| | times |",
        "|---|--:|",
        *(f"| {kind} | {total.did[kind]:,} |" for kind in KINDS),
        "",
        f"Of {control.schedules:,} schedules with {CONTROL}, {len(control.wrong):,} broke the",
        "order.",
    ]
    return "\n".join(lines) + "\n"


PART: Final = Part(
    name="ordering",
    text="a queue in strict order under late commits, aborts, deaths and kills: none overtaken",
    run=run,
    states=(goals.ORDERED,),
    controls={CONTROL: 0.01},
    in_memory=True,
    limits=Limits(small_s=180.0, proof_s=1500.0),
)


def main(seed: int) -> None:
    """Runs one schedule, and says what is wrong with it."""
    with (
        tempfile.TemporaryDirectory(prefix="onceq-ordering-") as place,
        open_embedded(Path(place), settings=SETTINGS) as server,
    ):
        tally = _run_chunk(server.conninfo, range(seed, seed + 1))
    sys.stdout.write(f"{dict(tally.did)}\n{tally.wrong or 'nothing is wrong'}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
