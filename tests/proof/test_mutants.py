"""The part of the mutants: what counts as caught, and a few of the mutants, chosen by a seed."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from proof.goals import MUTANTS
from proof.mutants.lane import Lane, open_lane
from proof.mutants.part import PART, Trials, violations
from proof.mutants.table import Change, Mutant
from proof.mutants.verdict import Fate, Verdict, judge
from proof.part import Size
from tests.small import small_outcome

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("MUTANTS_SEED", "1990"))
CHARGES = "tests/model/test_charges.py::test_the_numbers_of_lanes_are_those_in_rows"
ELEMENT = "src/onceq/model/element.py"


def line(
    kind: str = "AssertionError", text: str = "assert 1 == 2", **others: str
) -> dict[str, Any]:
    plain = {"test": "t", "phase": "call", "outcome": "failed", "kind": kind, "text": text}
    return {**plain, **others}


@pytest.mark.parametrize(
    ("told", "exit_code", "fate"),
    [
        ([line()], 1, Fate.CAUGHT),
        ([line("Failed", "DID NOT RAISE ClaimLost")], 1, Fate.CAUGHT),
        ([line("ReplyGone", "gone")], 1, Fate.CAUGHT),
        ([line("ReceiveTimeout", "no reply")], 1, Fate.BADLY_MADE),
        ([line("NameError", "x")], 1, Fate.BADLY_MADE),
        ([line("Failed", "it says no more")], 1, Fate.BADLY_MADE),
        ([line(text="' for update' stands 0 times in kill")], 1, Fate.BADLY_MADE),
        ([line(phase="setup")], 1, Fate.BADLY_MADE),
        ([], None, Fate.BADLY_MADE),
        ([], 5, Fate.BADLY_MADE),
        ([line("", "", outcome="passed")], 0, Fate.MISSED),
    ],
)
def test_only_a_finding_counts(
    told: list[dict[str, Any]], exit_code: int | None, fate: Fate
) -> None:
    assert judge(told, "ReplyGone", exit_code, 1.0).fate is fate


def mutant(new: str) -> Mutant:
    change = Change(file=ELEMENT, old="SUSPECT = 11", new=new)
    return Mutant(name="m", guarantee="G7", why="Because.", tests=[CHARGES], change=[change])


def test_a_lane_tells_the_harmless_and_the_broken_from_the_caught(tmp_path: Path) -> None:
    with open_lane(tmp_path / "lane") as lane:
        for new, fate in (
            ("SUSPECT = 12", Fate.CAUGHT),
            ("SUSPECT = 10 + 1", Fate.MISSED),
            ("SUSPECT = (", Fate.BADLY_MADE),
        ):
            with lane.planted(mutant(new)):
                verdict = lane.run([CHARGES])
            assert verdict.fate is fate, verdict
        assert lane.run([CHARGES]).fate is Fate.MISSED, "between mutants the tree is as it was"


def test_what_breaks_is_a_finding_and_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [Verdict(fate=Fate.MISSED), Verdict(fate=Fate.BADLY_MADE, says="it broke")]
    monkeypatch.setattr(Lane, "run", lambda *_: verdicts.pop(0))
    lane, trials = Lane(tmp_path), Trials(lambda *_: None)
    monkeypatch.setattr("proof.mutants.part.open_lane", lambda _: nullcontext(lane))
    monkeypatch.setattr(Lane, "planted", lambda *_: nullcontext())
    harmless = mutant("SUSPECT = 10 + 1")
    trials.fill([harmless], 1)
    trials.run_in(tmp_path)
    assert verdicts == []
    (found,) = violations([harmless], trials)
    assert "'m' (G7) was badly made: it broke" in found
    trials.sound[:] = [Verdict(fate=Fate.CAUGHT, by="t", says="it fails")]
    assert "on the tree as it is: t it fails" in violations([harmless], trials)[0]


@pytest.mark.timeout(PART.limits.of(Size.SMALL))  # as the proof ends it: four mutants, their tests
def test_some_mutants_of_different_kinds_are_caught(tmp_path: Path) -> None:
    """All of them: python -m proof.mutants. Others: MUTANTS_SEED."""
    said: list[str] = []
    outcome = small_outcome(
        PART, tmp_path, seed=SEED, say=lambda text, _done, _of: said.append(text)
    )
    assert [(one.what, one.reached, one.goal) for one in outcome.measures] == [(MUTANTS, 4, 4)]
    assert len(said) == 5
