"""The abstract model, explored in the small size; each broken variant of it is caught."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

import proof.model
from proof.goals import GOALS, STATES
from proof.model.__main__ import main
from proof.model.layout import Kind, Rules, Setting
from proof.model.part import PART
from proof.model.search import Search, search
from proof.model.settings import BY_NAME, SETTINGS
from proof.model.variants import VARIANTS
from proof.part import Outcome
from tests.small import reached, small_outcome

FOLDER = Path(proof.model.__file__).parent
GOAL = next(goal for goal in GOALS if goal.what == STATES)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """No promise is broken, and every variant is caught: it is judged here."""
    return small_outcome(PART, tmp_path_factory.mktemp("model"))


def test_as_many_states_as_promised(outcome: Outcome) -> None:
    assert reached(outcome)[STATES] >= GOAL.small


def test_each_rule_is_broken_by_one_variant() -> None:
    assert sorted(v.rule for v in VARIANTS) == sorted(field.name for field in fields(Rules))
    assert len(VARIANTS) >= 20


def test_each_guarantee_catches_a_variant() -> None:
    """A guarantee that caught nothing might not be looked at."""
    assert {v.guarantee for v in VARIANTS} == {*(f"G{n}" for n in range(1, 9)), "G12"}


def test_the_page_names_every_configuration_and_variant(outcome: Outcome) -> None:
    for name in (*(s.name for s in SETTINGS), *(v.name for v in VARIANTS)):
        assert f"| {name} |" in outcome.page


def test_what_is_found_is_the_same_again() -> None:
    first, second = (search(BY_NAME["client"]) for _ in range(2))
    assert (first.states, first.steps, first.depth) == (second.states, second.steps, second.depth)
    assert first.is_all


def test_a_run_that_stops_short_is_found() -> None:
    """An element that nobody serves: the ideal server is there, the native one never starts."""
    stuck = Setting(name="stuck", text="", kinds=(Kind.GOOD,), entries=1, processes=0, batch=1)
    found = search(stuck)
    assert (found.broken, found.states) == ("G12", 1)


def test_the_command_prints_the_way_to_what_a_variant_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["model", "--variant", "anchor"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "BROKEN: G6" in lines[1]
    assert lines[-3].split(maxsplit=1)[1] == "a ghost of client 1: its send commits"
    assert lines[-2].strip().startswith("request 1: queued, outcome -, effects 0")


def test_the_command_explores_a_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["model", "--configuration", "client", "--size", "small", "--states", "300"]
    monkeypatch.setattr("sys.argv", asked)
    assert main() == 0
    assert "up to the limit: nothing is broken" in capsys.readouterr().out


def texts_of_steps() -> set[str]:
    """Return the texts of all steps in the source that are plain strings."""
    found: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="move" | "fault"),
                    args=[_, _, ast.Tuple(elts=[ast.Constant(value=str() as text), *_]), *_],
                ):
                    found.add(text)
                case _:
                    pass
    return found


def texts_near(setting: Setting) -> set[str]:
    """Return the texts of the steps from the first states of a setting."""
    one = Search(setting, Rules())
    frontier, known, texts = [one.w.start()], {one.w.start()}, set[str]()
    while frontier and len(known) < 8000:
        found = [move for state in frontier for move in one.moves(state)]
        texts.update(label[0] for _, label, _ in found)
        frontier = list({bytes(draft) for _, _, draft in found} - known)
        known.update(frontier)
    return texts


def test_every_step_of_the_model_is_taken() -> None:
    """A rule that no exploration reaches would prove nothing."""
    texts = texts_of_steps()
    assert len(texts) > 50
    calm = [replace(setting, faults=0) for setting in SETTINGS]
    troubled = [replace(setting, faults=2) for setting in SETTINGS]
    assert texts - set[str]().union(*map(texts_near, calm + troubled)) == set()
