"""The scoreboard in its small size: onceq alone, and the control that the harness sees doubles."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proof.part import Size
from proof.scoreboard.contest import LOOK_S, TRIAL, Kills
from proof.scoreboard.part import AFTER, PART, Score, chosen, page, violations, without_figures
from proof.scoreboard.servers.base import HALF_S
from proof.scoreboard.subjects import SUBJECTS
from tests.small import small_outcome

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Score(
    subject=SUBJECTS[0],
    kills=Kills(kills=11, twice=0, missing=0, unfinished=0, seconds=1.0),
    deaths=3,
)


def test_onceq_has_nothing_twice_all_finished_and_dies_to_the_limit(tmp_path: Path) -> None:
    outcome = small_outcome(PART, tmp_path)
    assert {one.what: (one.reached, one.goal) for one in outcome.measures} == {
        "onceq: requests finished": (60, 60),
        "onceq: kills at work": (11, 11),
        "onceq: processes killed by the poison": (3, 3),
    }
    assert "| onceq, default | 0 | 0 | 11 | 3 |" in outcome.page


@pytest.mark.parametrize("field", ["twice", "missing", "unfinished"])
def test_whatever_is_wrong_with_the_kills_is_a_violation(field: str) -> None:
    assert GOOD.kills is not None
    kills = Kills(**{**{n: getattr(GOOD.kills, n) for n in Kills.__slots__}, field: 1})
    assert violations(GOOD) == []
    assert len(violations(replace(GOOD, kills=kills))) == 1


@pytest.mark.parametrize("deaths", [2, 4])
def test_a_poison_that_kills_less_or_more_is_a_violation(deaths: int) -> None:
    assert len(violations(replace(GOOD, deaths=deaths))) == 1


def test_without_figures_onceq_is_in_violation_and_a_peer_is_skipped_with_the_reason() -> None:
    broken = Score(subject=SUBJECTS[1], reason="the peers were not installed: no | network")
    assert violations(replace(broken, subject=SUBJECTS[0]))
    text = page([broken])
    assert "skipped: the peers were not installed: no / network" in text
    assert re.search(
        r"procrastinate \d+\.\S+, pgqueuer \d+\.\S+, absurd \d+\.\S+, dbos \d+\.", text
    )


def test_a_peer_without_figures_fails_the_part() -> None:
    broken = Score(subject=SUBJECTS[1], reason="it broke down")
    (said,) = without_figures([GOOD, broken])
    assert "no figures: it broke down" in said


def test_a_kill_falls_before_the_work_ends() -> None:
    for trial in (TRIAL, AFTER):
        assert trial.moments_s[1] + LOOK_S < 2 * HALF_S


def test_each_peer_takes_part_in_both_settings() -> None:
    settings = {(one.system, one.setting) for one in chosen(Size.PROOF)} - {("onceq", "default")}
    assert settings == {
        (peer, setting)
        for peer in ("procrastinate", "pgqueuer", "absurd", "dbos")
        for setting in ("default", "safest")
    }
