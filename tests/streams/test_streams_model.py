"""The model of streams in its small size: nothing broken, and every variant caught."""

from __future__ import annotations

from dataclasses import fields

import pytest

from onceq.streams.model import choice, quorum, states
from proof.goals import GOALS, STREAM_SCHEDULES
from proof.part import Order, Outcome, Size
from proof.streams_model.__main__ import main
from proof.streams_model.hunting import schedule
from proof.streams_model.part import PART
from proof.streams_model.rules import PROMISES, VARIANTS, Rules

GOAL = next(goal for goal in GOALS if goal.what == STREAM_SCHEDULES)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    def say(text: str, done: int, of: int) -> None:
        assert done <= of, text

    place = tmp_path_factory.mktemp("streams-model")
    return PART.run(Order(size=Size.SMALL, seed=0, place=place, say=say))


def test_no_promise_is_broken_and_every_variant_is_caught(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert all(measure.is_met for measure in outcome.measures)


def test_as_many_schedules_as_promised(outcome: Outcome) -> None:
    reached = {measure.what: measure.reached for measure in outcome.measures}
    assert reached[STREAM_SCHEDULES] >= GOAL.small
    assert reached["recoveries of sources in these schedules"] > 2 * GOAL.small
    assert reached["numbers reported stable in them"] > 2 * GOAL.small


def test_each_rule_is_left_out_by_one_variant() -> None:
    assert sorted(one.rule for one in VARIANTS) == sorted(one.name for one in fields(Rules))
    assert len(VARIANTS) >= 20
    assert len(VARIANTS) >= 20


def test_the_page_names_every_promise_and_variant(outcome: Outcome) -> None:
    for name in PROMISES:
        assert f"- {name}: " in outcome.page
    for variant in VARIANTS:
        assert f"| {variant.name} |" in outcome.page


def test_everything_befalls_some_schedule(outcome: Outcome) -> None:
    """What is never tried proves nothing."""
    for what in (
        "changes of lists settled",
        "disks filled",
        "disks wiped",
        "entries damaged",
        "losses told to receivers",
        "numbers overwritten",
        "numbers trimmed",
        "receivers rolled back",
        "records damaged",
        "recoveries: a number is given up",
        "recoveries: a store forgot",
        "recoveries: the list changes",
    ):
        assert f"| {what} |" in outcome.page, what


def test_a_schedule_is_the_same_again() -> None:
    first, second = schedule(11), schedule(11)
    assert first.promises.stable == second.promises.stable
    assert first.promises.sent == second.promises.sent
    assert first.did == second.did


def test_the_model_runs_by_the_tables_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is broken in the product breaks the model."""
    broken = {**states.FRAME}
    for (standing, memory, at), deed in states.FRAME.items():
        if standing is states.Standing.OWN:
            broken[states.Standing.OLDER, memory, at] = deed
    monkeypatch.setattr(states, "FRAME", broken)
    monkeypatch.setattr(choice, "are_recovered", quorum.are_stable)
    assert any(schedule(seed).promises.broken for seed in range(2_000))


def test_by_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--runs", "5"])
    assert main() == 0
    assert "5 schedules" in capsys.readouterr().out
    monkeypatch.setattr(
        "sys.argv", ["x", "--variant", VARIANTS[0].name, "--first", str(VARIANTS[0].shown_by)]
    )
    assert main() == 0
    assert f"{VARIANTS[0].name}: " in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["x", "--seed", "3"])
    assert main() == 0
    assert "->" in capsys.readouterr().out
