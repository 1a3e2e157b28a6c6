"""Faults at the points of the archive and of bulk enqueue: the proof's part, small."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

import onceq
from proof import goals
from proof.fault_ground import CUTS, RAISE
from proof.faultpoints import LOST, OF_ARCHIVE, OF_BULK
from proof.part import Order, Size
from proof.pipelinepoints import part
from proof.pipelinepoints.part import ENQUEUED, Yard, trials
from proof.pipelinepoints.process import QUEUE

if TYPE_CHECKING:
    from pathlib import Path

    from proof.fault_ground import Trial, Verdict

REPOSITORY = "struck"


def _order(place: Path) -> Order:
    return Order(size=Size.SMALL, seed=1, place=place, say=lambda *_: None)


@pytest.mark.timeout(400)
def test_a_fault_leaves_each_row_once_and_what_is_broken_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last trial a row is enqueued once more by another, which must be found."""
    plain = Yard.run

    def run(yard: Yard, trial: Trial) -> Verdict:
        if trial != part.SMALL[-1]:
            return plain(yard, trial)
        verdict = plain(yard, trial)
        assert verdict.violations == []
        with onceq.open(yard.ground.conninfo, repository=REPOSITORY) as qm:
            qm.enqueue(QUEUE, "again", rid="1")
        return dataclasses.replace(plain(yard, trial), reached=verdict.reached)

    monkeypatch.setattr(Yard, "run", run)
    outcome = part.PART.run(_order(tmp_path))
    (text,) = outcome.violations
    assert text.endswith("not each row is there once: [('1', 1), ('1', 2)]")
    reached = {measure.what: measure for measure in outcome.measures}
    assert reached[goals.FAULT_POINTS].reached == reached[goals.FAULT_POINTS].goal == 2
    assert reached[LOST].reached == 1


def test_each_point_is_struck_in_every_way() -> None:
    tried = trials(Size.PROOF, random.Random(1))
    ways = {(one.point, one.what) for one in tried}
    assert len(tried) == len(ways)
    assert {point for point, _ in ways} == OF_ARCHIVE | OF_BULK
    for point in OF_ARCHIVE:
        (_, cut) = sorted((what for one, what in ways if one == point), key=RAISE.__ne__)
        assert (point, RAISE) in ways
        assert cut in CUTS
    every = {(one.point, one.what) for one in trials(Size.LONG, random.Random(1))}
    assert {(point, what) for point in OF_ARCHIVE for what in (RAISE, *CUTS)} < every
    for point in OF_BULK:
        own = [one for one in tried if (one.scene, one.point) == (ENQUEUED, point)]
        assert sorted(one.occurrence for one in own) == [1, 2, 3, 4]
