"""The part of the proof that plants each mutant and checks whether the tests catch it.

Besides the mutants it runs their tests on the tree as it is: if these fail, their results on a
mutant mean nothing.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proof.goals import MUTANTS
from proof.mutants import page
from proof.mutants.lane import Lane, open_lane
from proof.mutants.table import Kind, Mutant, faults_of, kinds
from proof.mutants.verdict import Fate, Verdict
from proof.part import Limits, Measure, Order, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SMALL = 4
"""How many mutants, each of another kind, are tried in `make test`."""
LANES = 2


@dataclass(slots=True)
class Trials:
    """What is still to be run, and the results of the rest. Shared by the lanes.

    waiting: a mutant with its tests, or None with tests to run on the tree as it is.
    sound: of the runs without a mutant; verdicts: by the name of the mutant.
    """

    say: Callable[[str, int, int], None]
    waiting: deque[tuple[Mutant | None, list[str]]] = field(
        default_factory=deque["tuple[Mutant | None, list[str]]"]
    )
    sound: list[Verdict] = field(default_factory=list[Verdict])
    verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    all: int = 0

    def fill(self, mutants: Sequence[Mutant], lanes: int) -> None:
        """Takes the mutants, and before them their tests, in a share for each lane."""
        tests = list(dict.fromkeys(test for one in mutants for test in one.tests))
        size = -(-len(tests) // lanes)
        shares = [tests[at : at + size] for at in range(0, len(tests), size)]
        self.waiting.extend((None, share) for share in shares)
        self.waiting.extend((one, one.tests) for one in mutants)
        self.all = len(self.waiting)

    def run_in(self, place: Path) -> None:
        """Runs one after the other in a lane of its own, until nothing is waiting."""
        with open_lane(place) as lane:
            while (following := self._next()) is not None:
                self._try(lane, *following)

    def _next(self) -> tuple[Mutant | None, list[str]] | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def _try(self, lane: Lane, mutant: Mutant | None, tests: list[str]) -> None:
        name = "no mutant" if mutant is None else mutant.name
        self.say(name, len(self.sound) + len(self.verdicts), self.all)
        if mutant is None:
            self.sound.append(lane.run(tests))
            return
        with lane.planted(mutant):
            self.verdicts[mutant.name] = lane.run(tests, mutant.raises)


def picked(all_kinds: Sequence[Kind], size: Size, seed: int) -> list[Mutant]:
    """Returns the mutants to try: all, or, in the small size, some of different kinds."""
    if size is not Size.SMALL:
        return [mutant for kind in all_kinds for mutant in kind.mutant]
    chance = random.Random(seed)
    return [chance.choice(kind.mutant) for kind in chance.sample(list(all_kinds), SMALL)]


def tried(mutants: Sequence[Mutant], place: Path, say: Callable[[str, int, int], None]) -> Trials:
    """Runs these mutants in copies of the tree under `place`; returns the results."""
    trials = Trials(say)
    lanes = min(LANES, -(-len(mutants) // SMALL))
    trials.fill(mutants, lanes)
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(trials.run_in, [place / f"lane-{number}" for number in range(lanes)]))
    return trials


def violations(mutants: Sequence[Mutant], trials: Trials) -> list[str]:
    """Returns what was not caught, and what makes the other results worthless."""
    found = [
        f"the tests of the mutants fail on the tree as it is: {verdict.by} {verdict.says}"
        for verdict in trials.sound
        if verdict.fate is not Fate.MISSED
    ]
    for mutant in mutants:
        verdict = trials.verdicts[mutant.name]
        if verdict.fate is not Fate.CAUGHT:
            found.append(
                f"mutant {mutant.name!r} ({mutant.guarantee}) was {verdict.fate}: {verdict.says}; "
                f"repeat: python -m proof.mutants --only {mutant.name!r}"
            )
    return found


def run(order: Order) -> Outcome:
    """Runs the part."""
    all_kinds = kinds()
    mutants = picked(all_kinds, order.size, order.seed)
    unfit = faults_of(all_kinds)
    if unfit:
        return Outcome(
            violations=unfit, measures=[Measure(what=MUTANTS, reached=0, goal=len(mutants))]
        )
    trials = tried(mutants, order.place, order.say)
    caught = sum(one.fate is Fate.CAUGHT for one in trials.verdicts.values())
    return Outcome(
        measures=[Measure(what=MUTANTS, reached=caught, goal=len(mutants))],
        violations=violations(mutants, trials),
        page=page.summary(all_kinds, trials.verdicts),
    )


PART = Part(
    name="mutants",
    text="variants broken on purpose, of the product and of the checker: the tests catch each",
    run=run,
    states=(MUTANTS,),
    in_memory=True,
    limits=Limits(small_s=300.0),
)
