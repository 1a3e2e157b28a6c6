"""The proof's part for the fault points of Spark: its tables, and some of its trials, small."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from proof.fault_ground import CUTS, KILL, RAISE, Ground, Trial
from proof.faultpoints import OCCURRENCES, OF_SPARK, faults_of
from proof.part import Size
from proof.sparkpoints import part
from proof.sparkpoints.driver import Driver
from proof.sparkpoints.trials import (
    ADDING,
    BROKEN,
    DRIVER,
    KEEPING,
    MASTERS,
    NOT_TRIED,
    PLAIN,
    SCENES,
    SparkRun,
)

if TYPE_CHECKING:
    from proof.harness.proxy import Proxy


def test_the_proof_has_every_pair() -> None:
    tried = {(one.point, one.occurrence, one.what) for one in part.every_trial()}
    ways = (KILL, RAISE, *CUTS)
    wanted = {(point, n, what) for point in OF_SPARK for n in OCCURRENCES for what in ways}
    assert wanted <= tried
    assert {point for point, _, what in tried if what == DRIVER} == OF_SPARK


def test_the_long_run_kills_the_driver_at_each_time() -> None:
    tried = part.trials(Size.LONG, random.Random(1))
    deaths = {(one.point, one.occurrence) for one in tried if one.what == DRIVER}
    assert deaths == {(point, n) for point in OF_SPARK for n in OCCURRENCES}


def test_what_a_scene_has_not_the_other_has() -> None:
    assert {scene for scene, _, _ in NOT_TRIED} == set(SCENES) - {PLAIN, BROKEN, KEEPING, ADDING}
    tried = {(one.scene, one.point, one.what) for one in part.every_trial()}
    assert not tried & set(NOT_TRIED)
    assert {(PLAIN, point, what) for _, point, what in NOT_TRIED} <= tried


@pytest.mark.parametrize("scene", [KEEPING, ADDING])
def test_the_driver_dies_at_every_point_with_a_state_and_with_rows_of_several(scene: str) -> None:
    tried = {(one.point, one.what) for one in part.every_trial() if one.scene == scene}
    assert tried == {(point, DRIVER) for point in OF_SPARK}


def test_only_what_kills_a_driver_has_one_of_its_own() -> None:
    shared, *others = part.lanes([part.CONTROL, *part.every_trial()])
    assert len(others) == 4
    mixed = [lane for lane in (shared, *others) if len({one.what == DRIVER for one in lane}) > 1]
    assert mixed == []


class Deaf(SparkRun):
    """A trial in which nobody cuts the connection that was to be lost."""

    def _do(self, proxy: Proxy, word: str) -> None:
        del proxy, word


@pytest.mark.timeout(400)
def test_a_fault_is_survived_and_what_is_broken_is_found() -> None:
    """By one driver: a connection lost after COMMIT, a cut never made, a broken server."""
    lost = Trial(scene=PLAIN, point="spark.concluded", occurrence=1, what="cut-after")
    with Ground() as ground:
        driver = Driver(ground, MASTERS[PLAIN])
        try:
            good, deaf, broken = (
                ground.run(trial, make=lambda *given, kind=kind: kind(*given, driver=driver))
                for kind, trial in ((SparkRun, lost), (Deaf, lost), (SparkRun, part.CONTROL))
            )
        finally:
            driver.kill()
    assert faults_of(good) == []
    assert (good.struck, driver.lives) == (True, 1)
    (unfailed, unstruck) = faults_of(deaf)
    assert "queries failed by {}, and not by {'ENVIRONMENT': 1}" in unfailed
    assert unstruck.endswith("it was not struck")
    assert any("G7" in text and "innocent" in text for text in broken.violations)
