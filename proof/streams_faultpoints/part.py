"""Fault points of streams as a part of the proof: a run of real processes for each trial."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.streams_faultpoints.points import POINTS, Armed, What
from proof.streams_torture.judge import judged
from proof.streams_torture.stand import Role, Stand

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proof.part import Order

OCCURRENCES = (1, 2, 5)
"""The first, the second, and a later one."""
SMALL = 4
AT_ONCE = 3
REACHED_S = 60.0
LIFE_S = 4.0
"""A process that has not suffered within this ends, and another goes on."""
SEGMENT_BYTES = 256 << 10
KEPT_BYTES = 600 << 10
"""Little, so that segments are freed, and copied forward, soon."""
ROLE = {"source": "source", "store": "a", "receiver": "stable"}
HEAD = """\
Each point is struck at its first, second and a later occurrence, in a process of a run of three
stores, a source and two receivers: it dies, an exception is raised, or all of its links end, before
the step or after it. It is started again if it ended. Then all must be stable, and delivered: what
each recorded, and the logs of the stores, are judged by the history checker
(`onceq.streams.history`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried."""

    point: str
    occurrence: int
    what: What

    def __str__(self) -> str:
        return f"{self.point}, time {self.occurrence}, {self.what.value}"


def trials(size: Size, chance: random.Random) -> list[Trial]:
    """Return what a size tries, in random order."""
    found = [
        Trial(point=point, occurrence=occurrence, what=what)
        for point in POINTS
        for occurrence in OCCURRENCES
        for what in What
    ]
    chance.shuffle(found)
    if size is Size.SMALL:
        return found[:SMALL]
    return found * (10 if size is Size.LONG else 1)


def tried(trial: Trial, home: Path) -> list[str]:
    """Try it; return what is wrong."""
    struck = home.with_suffix(".struck")
    armed = Armed(point=trial.point, occurrence=trial.occurrence, what=trial.what, struck=struck)
    stand = Stand(
        home,
        kept_bytes=KEPT_BYTES,
        segment_bytes=SEGMENT_BYTES,
        armed={ROLE[POINTS[trial.point].role]: armed},
    )
    suffering = next(role for role in stand.roles if role.name in stand.armed)
    try:
        _reach(stand, suffering, struck)
        in_time = stand.finish()
    finally:
        stand.close()
    if not struck.exists():
        return [f"{trial}: it was never reached"]
    found = judged(stand)
    wrong = [*found.wrong, *(() if in_time else ("not all is stable and delivered",))]
    return [f"{trial}: {text}" for text in wrong]


def _reach(stand: Stand, suffering: Role, struck: Path) -> None:
    """Run until it has struck; what a life does only once is done by the next one, too."""
    until, killed = time.monotonic() + REACHED_S, time.monotonic()
    while not struck.exists() and time.monotonic() < until:
        stand.tick()
        if time.monotonic() > killed + LIFE_S:
            suffering.kill(0.0)
            killed = time.monotonic()


def run(order: Order) -> Outcome:
    """Try everything, several at once."""
    planned = trials(order.size, random.Random(order.seed))
    wrong: list[str] = []
    done: list[Trial] = []

    def one(numbered: tuple[int, Trial]) -> None:
        number, trial = numbered
        found = tried(trial, order.place / f"trial-{number}")
        wrong.extend(f"{text} (seed {order.seed})" for text in found)
        done.append(trial)
        order.say("trials", len(done), len(planned))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(one, enumerate(planned)))
    return Outcome(
        measures=[
            Measure(
                what=goals.STREAM_POINTS,
                reached=len({trial.point for trial in done}),
                goal=len({trial.point for trial in planned}),
            ),
            Measure(what="trials at fault points of streams", reached=len(done)),
        ],
        violations=wrong,
        page=page(done),
    )


def page(done: Sequence[Trial]) -> str:
    """Return the section of the report."""
    lines = [
        f"{len(done):,} trials.",
        "",
        HEAD,
        "| point | what has happened by then | trials |",
        "| --- | --- | --: |",
        *(
            f"| {name} | {point.text} | {sum(one.point == name for one in done)} |"
            for name, point in POINTS.items()
        ),
    ]
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-faultpoints",
    text="Every fault point of streams, struck in four ways at its first, second and later time.",
    run=run,
    states=(goals.STREAM_POINTS,),
    in_memory=True,
    limits=Limits(small_s=300.0),
)
