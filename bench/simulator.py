"""How many schedules the simulator runs in a second, in one process.

The same seeds in each slice. It waits for little but the processor, so its rate
says how many schedules a check of a minute can have.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.pairs import Runner, alternate
from bench.results import Result, Slice
from proof.simulator.simulator import simulate

if TYPE_CHECKING:
    from bench.scene import Scene

NAMES = ("simulator/rate",)
SCHEDULES = 100
TARGET = 100.0


def run(scene: Scene) -> None:
    """Measure it."""
    (name,) = NAMES
    scene.told.started(name)
    runner = Runner(name="simulator", run=run_seeds, first=SCHEDULES, step=SCHEDULES)
    (side,) = alternate((runner,), scene.pace)
    scene.told.found(
        Result(
            name=name,
            question="seeded schedules of the simulator, one process",
            unit="/s",
            target=TARGET,
            rounds=tuple(one.per_s for one in side.slices),
            sides=(side,),
        )
    )


def run_seeds(number: int) -> Slice:
    """Run the first `number` seeds; raise if one is broken."""
    started = time.perf_counter()
    broken = [seed for seed in range(number) if simulate(seed).violations]
    if broken:
        raise AssertionError(f"schedules {broken} broke a guarantee")
    return Slice(number=number, seconds=time.perf_counter() - started)
