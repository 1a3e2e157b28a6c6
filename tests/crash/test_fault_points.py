"""Every fault point, once: a process dies there, all is started again, and nothing is lost.

The small size of the proof's part, which also has the other faults, and every occurrence.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceq.engine.faultpoints import POINTS
from proof import faultpoints, goals
from proof.fault_ground import FAULTS, REVOKE, Ground, Trial, Verdict
from proof.fault_scenes import ELSEWHERE, SCENES
from proof.part import Order, Size

if TYPE_CHECKING:
    from collections.abc import Iterator


def _said(text: str, done: int, of: int) -> None:
    assert text
    assert 0 < done <= of


@pytest.mark.timeout(400)
def test_a_death_at_every_point_loses_nothing(tmp_path: Path) -> None:
    order = Order(size=Size.SMALL, seed=1990, place=tmp_path, say=_said)
    outcome = faultpoints.run(order)
    assert outcome.violations == []
    (points,) = [one for one in outcome.measures if one.what == goals.FAULT_POINTS]
    assert points.is_met
    assert points.reached == len(POINTS) - len(ELSEWHERE)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground() as made:
        yield made


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize(
    ("scene", "point"), [("a client", "Send.before"), ("a server", "Commit.before")]
)
def test_each_fault_strikes_a_later_time_too(
    ground: Ground, scene: str, point: str, what: str
) -> None:
    verdict = ground.run(Trial(scene=scene, point=point, occurrence=2, what=what))
    assert faultpoints.faults_of(verdict) == []
    assert verdict.struck


def test_one_that_was_taken_for_dead_and_goes_on_changes_nothing(ground: Ground) -> None:
    trial = Trial(scene="a server", point="Finish.before", occurrence=1, what=REVOKE)
    assert faultpoints.faults_of(ground.run(trial)) == []


def test_a_point_that_is_not_reached_fails_the_part(ground: Ground) -> None:
    verdict = ground.run(Trial(scene="a schema", point="file.cut", occurrence=1))
    (text,) = faultpoints.faults_of(verdict)
    assert text.endswith("it was never reached")


def test_a_name_that_is_not_in_the_table_fails_the_part() -> None:
    trial = Trial(scene="a client", point="Send.after", occurrence=1)
    reached = {"Send.after": 1, "Sned.after": 1}
    seen = Verdict(trial=trial, reached=reached, came=True, lost=0, kills=1, events=9, seconds=1.0)
    (text,) = faultpoints.faults_of(seen)
    assert "Sned.after was reached, and is not in the table" in text


def test_every_point_has_a_run() -> None:
    assert faultpoints.holes() == []
    assert faultpoints.holes([name for name in SCENES if name != "files"]) == [
        f"no run reaches the fault point {one}"
        for one in sorted(one for one in POINTS if one.startswith(("file.", "parquet.")))
    ]


def test_a_point_without_a_scene_has_a_test_of_its_own() -> None:
    for point, path in ELSEWHERE.items():
        assert point.startswith("spark.")
        text = (Path(__file__).parents[2] / path).read_text(encoding="utf-8")
        assert "for point in POINTS:" in text, "the test kills a process at each of these points"
    assert not set(ELSEWHERE) & {point for scene in SCENES.values() for point in scene.points}


def test_the_proof_has_every_pair() -> None:
    pairs = faultpoints.trials(Size.PROOF, random.Random(1))
    assert {one.point for one in pairs} | set(ELSEWHERE) == set(POINTS)
    wanted = {(one, what) for one in faultpoints.OCCURRENCES for what in ("kill", "raise")}
    for point in set(POINTS) - set(ELSEWHERE):
        met = {(one.occurrence, one.what) for one in pairs if one.point == point}
        assert wanted <= met
