"""Torture in its small size: real processes, real faults of every kind, no violation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.torture import KINDS, Plan, part, schedule
from proof.torture.part import PART
from proof.torture.plan import CALM_S, CYCLE_S
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("SEED", "1"))


@pytest.mark.timeout(600)
def test_torture_finds_nothing_wrong_but_what_was_broken_on_purpose(tmp_path: Path) -> None:
    reached = small(PART, tmp_path, seed=SEED)
    assert reached[goals.KILLS] >= 60
    assert reached[goals.CRASHES] >= 2
    assert reached[goals.REQUESTS] >= 500
    assert reached[goals.UNKNOWN_COMMITS] >= 5


def test_what_shows_how_a_violation_came_to_be_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "KEPT", tmp_path / "kept")
    plan = Plan(seconds=20, seed=SEED, place=tmp_path / "run")
    for name in ("events", "logs", "postgresql"):
        (plan.place / name).mkdir(parents=True)
        (plan.place / name / "one").write_text(name)
    (plan.place / "aborts.jsonl").write_text("{}")
    kept = part.kept(plan)
    assert {one.name for one in kept.iterdir()} == {"events", "logs", "aborts.jsonl"}
    assert (kept / "logs" / "one").read_text() == "logs"


def test_the_same_seed_gives_the_same_faults() -> None:
    faults = schedule(7, 600)
    assert faults == schedule(7, 600)
    assert faults != schedule(8, 600)
    assert faults[:100] == schedule(7, 1200)[:100]
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}


def test_postgresql_stays_up_for_a_part_of_each_cycle() -> None:
    kinds = {kind.name for kind in KINDS if kind.is_calm}
    moments = [fault.at_s % CYCLE_S for fault in schedule(7, 1800) if fault.kind in kinds]
    assert len(moments) > 500
    assert 75 < max(moments) < CYCLE_S - CALM_S
