"""Fault points: every named place of the product, struck at its first, second and third time.

A part of the proof. Each trial is a run of real processes on a real PostgreSQL, in which one dies,
fails, or loses its connection on either side of a commit, at one point, once. Everything is
started again, all work must be done, and the history must hold. It also fails if a point of the
table is never reached, if one has no run, or if a name is reached that is not in the table. The
points of Spark have parts of their own (proof/sparkpoints, proof/pipelinepoints).
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from onceq.engine.faultpoints import POINTS
from proof import goals
from proof.fault_ground import CUTS, FAULTS, KILL, REVOKE, Ground, Trial, Verdict
from proof.fault_scenes import LAST, SCENES
from proof.part import Limits, Measure, Order, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAME: Final = "faultpoints"
OCCURRENCES: Final = (1, 2, 3)
AT_ONCE: Final = 4
LOST: Final = "connections lost at a commit"
OF_ARCHIVE: Final = frozenset(one for one in POINTS if one.lower().startswith("archive"))
OF_BULK: Final = frozenset(one for one in POINTS if one.startswith("bulk."))
OF_SPARK: Final = frozenset(one for one in POINTS if one.startswith("spark."))
OF_BRIDGES: Final = frozenset(
    one for one in POINTS if one.lower().startswith(("stream", "relay", "into."))
)
ELSEWHERE: Final = OF_ARCHIVE | OF_BULK | OF_SPARK | OF_BRIDGES
"""Points met in no scene here: proof/sparkpoints and proof/pipelinepoints have them.

Those of bridges: tests/streams/bridge/test_killed.py.
"""
LONG_ROUNDS: Final = 10
"""How often the long run does everything, each time in another order."""


def every_pair(round_no: int = 0) -> list[Trial]:
    """Returns each point of each scene, at each occurrence, with each fault that it can meet.

    If another scene is the same on the sync driver, a round has one occurrence of each pair, and
    the next round another.
    """
    pairs = [
        (name, point, what)
        for name, scene in SCENES.items()
        for point in sorted(scene.points)
        for what in (*FAULTS, REVOKE)
        if (scene.over_a_wire or what not in CUTS) and (what != REVOKE or point in scene.revocable)
    ]
    return [
        Trial(scene=name, point=point, occurrence=occurrence, what=what)
        for number, (name, point, what) in enumerate(pairs, round_no)
        for occurrence in occurrences(number, is_one=SCENES[name].is_twin)
    ]


def occurrences(number: int, *, is_one: bool) -> tuple[int, ...]:
    """Returns the occurrences at which to try something: each, or one chosen by the number."""
    return (OCCURRENCES[number % len(OCCURRENCES)],) if is_one else OCCURRENCES


def each_once() -> list[Trial]:
    """Returns each point in one scene, once, with a kill -9."""
    found = {point: name for name, scene in reversed(SCENES.items()) for point in scene.points}
    return [
        Trial(scene=name, point=point, occurrence=1, what=KILL)
        for point, name in sorted(found.items())
    ]


def trials(size: Size, chance: random.Random) -> list[Trial]:
    """Returns what a size tries, in random order."""
    rounds = LONG_ROUNDS if size is Size.LONG else 1
    found: list[Trial] = []
    for round_no in range(rounds):
        some = each_once() if size is Size.SMALL else every_pair(round_no)
        chance.shuffle(some)
        found += some
    return found


def holes(scenes: Iterable[str] = SCENES) -> list[str]:
    """Returns what is wrong with the tables: points without a run, and runs without a point."""
    tried = {point for name in scenes for point in SCENES[name].points}
    met = tried | ELSEWHERE
    return [
        *(f"no run reaches the fault point {one}" for one in sorted(set(POINTS) - met)),
        *(f"{one} is tried, and no fault point" for one in sorted(tried - set(POINTS))),
    ]


def faults_of(verdict: Verdict) -> list[str]:
    """Returns what is wrong with one trial."""
    trial = verdict.trial
    strange = sorted(set(verdict.reached) - set(POINTS))
    return [
        *verdict.violations,
        *(f"{trial}: {one} was reached, and is not in the table" for one in strange),
        *([] if verdict.came else [f"{trial}: it was never reached"]),
        *_not_struck(verdict),
    ]


def _not_struck(verdict: Verdict) -> list[str]:
    trial = verdict.trial
    last = trial.what in CUTS and (trial.point, trial.occurrence) in LAST
    if not verdict.came or verdict.struck != last:
        return []
    return [f"{trial}: {'a commit follows it, and LAST has it' if last else 'it was not struck'}"]


def run_all(order: Order, chosen: Sequence[Trial]) -> list[Verdict]:
    """Runs trials, several at once; returns what became of each."""
    found: list[Verdict] = []
    with Ground() as ground, ThreadPoolExecutor(AT_ONCE) as pool:
        for verdict in pool.map(ground.run, chosen):
            found.append(verdict)
            order.say(str(verdict.trial), len(found), len(chosen))
    return found


def run(order: Order) -> Outcome:
    """Runs the trials of a size."""
    verdicts = run_all(order, trials(order.size, random.Random(order.seed)))
    wrong = [one for verdict in verdicts for one in faults_of(verdict)]
    missed = {one.trial.point for one in verdicts if not one.came}
    tried = {one.trial.point for one in verdicts}
    return Outcome(
        measures=[
            Measure(
                what=goals.FAULT_POINTS,
                reached=len(tried - missed),
                goal=len(set(POINTS) - ELSEWHERE),
            ),
            Measure(what=LOST, reached=sum(one.lost for one in verdicts)),
            Measure(what=goals.KILLS, reached=sum(one.kills for one in verdicts)),
            Measure(what=goals.EVENTS, reached=sum(one.events for one in verdicts)),
        ],
        violations=[*holes(), *wrong],
        page=page(verdicts),
    )


def page(verdicts: Sequence[Verdict], scenes: Iterable[str] = SCENES) -> str:
    """Returns a table of what was tried: a row for each scene."""
    rows = [
        "| in the life of | points | trials | struck | kill -9 | connections lost at a commit |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in scenes:
        own = [one for one in verdicts if one.trial.scene == name]
        counts = Counter(one.trial.point for one in own)
        figures = (
            len(counts),
            len(own),
            sum(one.struck for one in own),
            sum(one.kills for one in own),
            sum(one.lost for one in own),
        )
        rows.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return "\n".join([*rows, ""])


PART: Final = Part(
    name=NAME,
    text="every fault point, struck by kill -9, an exception, and a connection lost at a commit",
    run=run,
    states=(goals.FAULT_POINTS, goals.KILLS, goals.EVENTS),
    in_memory=True,
    limits=Limits(small_s=240.0),
)
