"""The committed page of the proof says what was recorded, and every goal has a part."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import msgspec
import pytest

from proof import judging, page, record
from proof.__main__ import why_not_written
from proof.goals import GOALS, STATES
from proof.part import Control, Measure, Outcome, Size
from proof.parts import PARTS
from proof.record import Record, Shown
from proof.running import MEMORY, Result
from tests.proof.tiny_parts import PARTS as TINY

RUN = record.Run(seed=1, date="2026-01-01", machine={"onceq": "0.0.1 (abc)"})


def shown(name: str, *measures: Measure, seconds: float = 1.0) -> Shown:
    return Shown(
        name=name, text="", date="2026-01-01", seed=1, seconds=seconds, measures=list(measures)
    )


def recorded(*shown: Shown, size: Size = Size.PROOF) -> Record:
    return Record(size=size, shown=list(shown))


def test_the_names_of_parts_are_unique() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_every_goal_has_a_part_that_states_it() -> None:
    stated = {what for part in PARTS for what in part.states}
    assert stated == {goal.what for goal in GOALS}


@pytest.mark.parametrize("size", [Size.PROOF, Size.LONG])
def test_the_page_says_what_was_recorded(size: Size) -> None:
    held = record.read(record.path_of(size))
    path = page.path_of(size)
    assert path.exists() == (held is not None)
    assert held is None or path.read_text() == page.text(held)


def test_in_a_whole_run_a_goal_without_a_part_is_missed() -> None:
    done = [shown(part.name) for part in TINY]
    missed = {row.what for row in judging.rows(TINY, done, Size.PROOF) if row.verdict == "MISSED"}
    assert missed == {goal.what for goal in GOALS}


def test_a_part_that_runs_again_replaces_only_itself() -> None:
    old = recorded(shown("good", seconds=1), shown("missed", seconds=2), shown("gone", seconds=3))
    new = msgspec.structs.replace(recorded(shown("missed", seconds=4)), took_s=5.0)
    together = record.merged(old, new, [part.name for part in TINY])
    assert [(one.name, one.seconds) for one in together.shown] == [("good", 1), ("missed", 4)]
    assert (new.took_s, together.took_s) == (5.0, None)


@pytest.mark.parametrize("folder", [tempfile.gettempdir(), str(MEMORY)])
def test_what_is_recorded_names_no_place(folder: str) -> None:
    (good, *_) = TINY
    said = f"in {record.FOLDER}/part.py: {folder}/onceq-proof-x/log"
    failed = record.shown(Result(part=good, seconds=1.0, failure=said), RUN)
    broken = Result(part=good, seconds=1.0, outcome=Outcome(violations=[said]))
    assert failed.failure == "in proof/part.py: onceq-proof-x/log"
    assert record.shown(broken, RUN).violations == [failed.failure]


def test_runs_of_two_sizes_are_not_put_together() -> None:
    old = recorded(shown("good"), size=Size.SMALL)
    new = recorded(shown("missed"))
    assert record.merged(old, new, ["good", "missed"]) == new


def test_each_part_says_on_which_revision_and_machine_it_ran() -> None:
    one, other = (
        msgspec.structs.replace(shown(name), machine={"onceq": revision, "cores": "2"})
        for name, revision in (("good", "0.0.1 (aaa)"), ("missed", "0.0.1 (bbb)"))
    )
    text = page.text(recorded(one, other))
    assert "| cores | 2 |" in text
    assert "| onceq |" not in text
    assert "onceq 0.0.1 (aaa), cores 2." in text
    assert "onceq 0.0.1 (bbb), cores 2." in text


def test_a_goal_for_which_nothing_was_run_is_a_row_all_the_same() -> None:
    rows = judging.rows(TINY, [shown("violation")], Size.PROOF)
    assert [row.what for row in rows] == [goal.what for goal in GOALS]
    by_name = {row.what: row.verdict for row in rows}
    assert by_name[STATES] == "not run"


@pytest.mark.parametrize(
    ("size", "changed", "said"),
    [
        (Size.SMALL, None, "the small size"),
        (Size.PROOF, "the tree is changed (3 files)", "the tree is changed"),
    ],
)
def test_what_is_not_to_be_recorded_is_refused(
    size: Size, changed: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proof.machine.why_not_recorded", lambda: changed)
    assert said in (why_not_written(size) or "")
    assert why_not_written(Size.LONG) == changed


def control(broke: int, of: int) -> list[Control]:
    part = replace(TINY[0], controls={"it": 0.5})
    outcome = Outcome(controls=[Control(what="it", broke=broke, of=of)])
    return record.shown(Result(part=part, seconds=1.0, outcome=outcome), RUN).controls


@pytest.mark.parametrize(("broke", "of", "is_met"), [(1, 2, True), (1, 3, False), (0, 0, False)])
def test_a_control_must_fail_as_often_as_declared(broke: int, of: int, *, is_met: bool) -> None:
    (made,) = control(broke, of)
    assert made.is_met == is_met
