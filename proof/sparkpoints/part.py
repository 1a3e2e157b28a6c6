"""The fault points of Spark: each struck at its first, second and third time, on a real Spark.

A part of the proof, beside that of the other points (proof/faultpoints.py), whose judge it shares.
A process that meets a fault is one of Spark's Python processes: the one that plans, that of a task,
the one that commits. It is killed, fails, or loses its connection at the next commit; or the whole
driver is killed there. A driver serves one trial after another, for as long as nothing kills it.
"""

from __future__ import annotations

import contextlib
import functools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from proof import goals
from proof.fault_ground import KILL, Ground, Trial, Verdict
from proof.faultpoints import LONG_ROUNDS, LOST, OF_SPARK, faults_of, occurrences, page
from proof.part import Control, Limits, Measure, Order, Outcome, Part, Size
from proof.sparkpoints.driver import AT_ONCE, Driver
from proof.sparkpoints.trials import (
    ADDING,
    BROKEN,
    DRIVER,
    KEEPING,
    MASTERS,
    NOT_TRIED,
    PLAIN,
    SCENES,
    TRYING,
    WAYS,
    SparkRun,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = "spark-faultpoints"
CONVICTED: Final = "G7"
"""The guarantee that the broken one breaks."""
DRIVERS: Final = "drivers of Spark begun"
CONTROL: Final = Trial(scene=BROKEN, point="spark.concluded", occurrence=1, what=KILL)


def every_trial(round_no: int = 0) -> list[Trial]:
    """Returns each point of each scene, at each occurrence, in each way that the scene has.

    Where a driver dies, which takes seconds to begin, and where Spark tries a task again, a round
    has one occurrence of each, and the next round another.
    """
    return [
        Trial(scene=name, point=point, occurrence=occurrence, what=what)
        for name, scene in SCENES.items()
        for number, point in enumerate(sorted(scene.points), round_no)
        for what in WAYS[name]
        if (name, point, what) not in NOT_TRIED
        for occurrence in occurrences(number, is_one=what == DRIVER or name == TRYING)
    ]


def each_once() -> list[Trial]:
    """Returns each point once, with a kill -9."""
    return [Trial(scene=PLAIN, point=point, occurrence=1, what=KILL) for point in sorted(OF_SPARK)]


def trials(size: Size, chance: random.Random) -> list[Trial]:
    """Returns what is tried in a size, in an order of chance."""
    rounds = LONG_ROUNDS if size is Size.LONG else 1
    found: list[Trial] = []
    for round_no in range(rounds):
        some = each_once() if size is Size.SMALL else every_trial(round_no)
        chance.shuffle(some)
        found += some
    return found


def lanes(chosen: Sequence[Trial]) -> list[list[Trial]]:
    """Returns the trials by the driver that serves them: those that kill one have their scene's."""
    found: dict[tuple[str, str], list[Trial]] = {}
    for trial in chosen:
        own = trial.scene if trial.what == DRIVER else ""
        found.setdefault((MASTERS[trial.scene], own), []).append(trial)
    return list(found.values())


def run_lane(driver: Driver, ground: Ground, own: Sequence[Trial]) -> Iterator[Verdict]:
    """Runs the trials of a driver, and ends it; yields what became of each."""
    make = functools.partial(SparkRun, driver=driver)
    with contextlib.ExitStack() as undo:
        undo.callback(driver.kill)
        pool = undo.enter_context(ThreadPoolExecutor(1 if own[0].what == DRIVER else AT_ONCE))
        yield from pool.map(functools.partial(ground.run, make=make), own)


def run(order: Order) -> Outcome:
    """Runs the trials of a size, two drivers at a time."""
    chosen = [CONTROL, *trials(order.size, random.Random(order.seed))]
    verdicts: list[Verdict] = []
    drivers: list[Driver] = []

    def through(own: Sequence[Trial]) -> None:
        driver = Driver(ground, MASTERS[own[0].scene])
        drivers.append(driver)
        for verdict in run_lane(driver, ground, own):
            verdicts.append(verdict)
            order.say(str(verdict.trial), len(verdicts), len(chosen))

    with Ground() as ground, ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(through, lanes(chosen)))
    return outcome(verdicts, sum(one.lives for one in drivers))


def outcome(every: Sequence[Verdict], drivers: int) -> Outcome:
    """Returns what the trials have come to. drivers: how many were begun."""
    verdicts = [one for one in every if one.trial.scene != BROKEN]
    found = [text for one in every if one.trial.scene == BROKEN for text in one.violations]
    missed = {one.trial.point for one in verdicts if not one.came}
    tried = {one.trial.point for one in verdicts}
    return Outcome(
        measures=[
            Measure(what=goals.FAULT_POINTS, reached=len(tried - missed), goal=len(OF_SPARK)),
            Measure(what=DRIVERS, reached=drivers),
            Measure(what=LOST, reached=sum(one.lost for one in verdicts)),
            Measure(what=goals.KILLS, reached=sum(one.kills for one in verdicts)),
            Measure(what=goals.EVENTS, reached=sum(one.events for one in verdicts)),
        ],
        violations=[one for verdict in verdicts for one in faults_of(verdict)],
        controls=[Control(what=BROKEN, broke=int(any(CONVICTED in one for one in found)), of=1)],
        page=page(verdicts, [PLAIN, TRYING, KEEPING, ADDING]),
    )


PART: Final = Part(
    name=NAME,
    text="every fault point of Spark, struck in its Python processes, or with its whole driver",
    run=run,
    states=(goals.FAULT_POINTS, goals.KILLS, goals.EVENTS),
    controls={BROKEN: 1.0},
    in_memory=True,
    on_spark=True,
    limits=Limits(small_s=180.0, proof_s=1500.0),
)
