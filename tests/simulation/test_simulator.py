"""Seeded schedules keep every guarantee; a failing one is named by its seed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onceq.testing.simulator import main, simulate

if TYPE_CHECKING:
    import pytest

SCHEDULES = int(os.environ.get("SCHEDULES", "2000"))


def test_every_schedule_keeps_every_guarantee() -> None:
    broken: list[str] = []
    faults = 0
    for seed in range(SCHEDULES):
        result = simulate(seed)
        faults += len(result.faults)
        broken += [f"seed {seed}: {violation}" for violation in result.violations]
        assert len(broken) < 20, broken
    replay = "replay: python -m onceq.testing.simulator --shrink --seed N"
    assert not broken, "\n".join([*broken, replay])
    assert faults > SCHEDULES


def test_a_seed_is_one_schedule() -> None:
    assert [simulate(7), simulate(8)] == [simulate(7), simulate(8)]


def test_a_replay_says_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert "Connect(" in said
    assert "1 schedules" in said


def test_many_schedules_are_counted() -> None:
    assert main(["--schedules", "3"]) == 0
