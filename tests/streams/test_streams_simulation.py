"""What ships of sources, receivers and stores, over a network that fails: nothing promised breaks.

Mistakes in what ships must show, so that it is seen that the judge would notice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from proof.goals import GOALS, STREAM_SIMULATED
from proof.part import Order, Outcome, Size
from proof.streams_model.rules import I4, PROMISES
from proof.streams_simulation import part
from proof.streams_simulation.__main__ import main
from proof.streams_simulation.blind import BLIND, Blind, is_caught
from proof.streams_simulation.hunting import Run, hunt
from proof.streams_simulation.variants import SEEN, VARIANTS
from proof.streams_simulation.world import World

GOAL = next(goal for goal in GOALS if goal.what == STREAM_SIMULATED)
SEEDS = (*range(40), 47, 268)
"""In the last two a receiver is told of what was given up, and of what was acknowledged."""
ON_DISKS = range(1990, 2020)
ANYWHERE = (
    "recoveries",
    "stores killed",
    "stores wiped",
    "sources killed",
    "sources that sent with a store down",
    "sources that were succeeded",
    "wires cut",
    "partitions",
    "lists changed",
    "numbers given up",
    "numbers overwritten",
    "numbers trimmed",
    "receivers killed",
    "receivers rolled back",
    "losses told to receivers: trimmed",
)
IN_MEMORY = ("losses told to receivers: acknowledged", "losses told to receivers: reclaimed")
OF_DISKS = (
    "bits flipped",
    "disks filled",
    "links of receivers lost",
    "partitions, one way",
    "power cuts",
    "power cuts amid what a disk does",
    "power cuts of all stores at once",
    "processes paused",
    "stores in memory that ended",
    "syncs that failed",
)


pytestmark = pytest.mark.timeout(900)
"""Whichever test is first waits for `outcomes`, which take minutes where others run beside it."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    def say(text: str, done: int, of: int) -> None:
        assert done <= of, text

    return [
        one.run(Order(size=Size.SMALL, seed=1990, place=tmp_path_factory.mktemp(one.name), say=say))
        for one in (part.PART, part.ON_DISKS)
    ]


def test_no_promise_is_broken_and_every_mistake_is_noticed(outcomes: list[Outcome]) -> None:
    assert [text for outcome in outcomes for text in outcome.violations] == []
    assert all(measure.is_met for outcome in outcomes for measure in outcome.measures)


def test_as_many_schedules_as_promised(outcomes: list[Outcome]) -> None:
    reached = Counter[str]()
    for measure in (one for outcome in outcomes for one in outcome.measures):
        reached[measure.what] += measure.reached
    assert reached[STREAM_SIMULATED] >= GOAL.small
    assert reached["recoveries in the simulation of streams"] > GOAL.small
    assert reached["numbers stable in the simulation of streams"] > 10 * GOAL.small


def test_each_promise_and_each_mistake_is_told(outcomes: list[Outcome]) -> None:
    for name in PROMISES:
        assert all(f"- {name}: " in outcome.page for outcome in outcomes)
    for name in SEEN:
        assert sum(f"| {name} |" in outcome.page for outcome in outcomes) == 1
    assert reached_by(outcomes, "mistakes in what ships") == len(SEEN)
    assert reached_by(outcomes, "blind judges") == len(BLIND)


def reached_by(outcomes: list[Outcome], what: str) -> int:
    found = [one for outcome in outcomes for one in outcome.measures]
    return sum(one.reached for one in found if one.what.startswith(what))


@pytest.mark.parametrize(
    ("seeds", "on_disks", "befalls"),
    [(SEEDS, False, (*ANYWHERE, *IN_MEMORY)), (ON_DISKS, True, (*ANYWHERE, *OF_DISKS))],
    ids=["in memory", "on disks"],
)
def test_everything_befalls_some_schedule(
    tmp_path: Path, seeds: range, befalls: tuple[str, ...], *, on_disks: bool
) -> None:
    """What is never tried proves nothing."""
    did, stable = Counter[str](), 0
    for seed, world in Run(seeds=seeds, on_disks=on_disks, home=tmp_path).worlds():
        assert world.promises.broken == {}, seed
        did.update(world.did)
        stable += len(world.promises.stable)
    assert stable > 20 * len(seeds)
    assert [what for what in befalls if not did[what]] == []


@pytest.mark.parametrize("on_disks", [False, True])
def test_a_seed_is_always_the_same_schedule(tmp_path: Path, *, on_disks: bool) -> None:
    one, other = (World(3, tmp_path if on_disks else None).run() for _ in range(2))
    assert one.promises.stable == other.promises.stable
    assert one.did == other.did


UNSEEN = {
    "answers-of-an-epoch",
    "change-that-can-begin",
    "copies-end",
    "cut",
    "damage-not-cut",
    "damaged-forgets",
    "damaged-is-silent",
    "freed-when-synced",
    "given-up-told",
    "noting-knows-nothing",
    "one-admission",
    "registered-at-a-set",
    "renewed",
    "told-late",
    "trimmed-by-a-set",
    "unsynced-written-again",
}
"""Mistakes that no schedule notices, as far as they were hunted: what the simulation cannot see."""


def test_no_other_mistake_goes_unnoticed() -> None:
    assert {name for name, variant in VARIANTS.items() if not variant.within} == UNSEEN
    assert len(SEEN) + len(BLIND) >= 25


def test_a_hunt_that_finds_nothing_says_so(tmp_path: Path) -> None:
    found = hunt("cut", range(1), tmp_path)
    assert (found.schedules, found.broken) == (1, {})


@pytest.mark.parametrize("blind", BLIND, ids=lambda one: one.promise)
def test_a_judge_that_does_not_look_misses_what_one_that_looks_sees(
    blind: Blind, tmp_path: Path
) -> None:
    assert is_caught((blind, tmp_path))
    assert not is_caught((replace(blind, promise=I4), tmp_path)), "it sees"


def test_by_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--runs", "2", "--disks"])
    assert main() == 0
    assert "2 schedules" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["x", "--variant", "one-life"])
    assert main() == 0
    assert "one-life: noticed in" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["x", "--variant", "cut", "--runs", "1"])
    assert main() == 1
    assert "cut: NOT NOTICED in 1" in capsys.readouterr().out
