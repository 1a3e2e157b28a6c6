"""The small size of a part fails its test if anything is wrong with it, and only then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from proof.goals import SCHEDULES
from tests.proof.tiny_parts import PARTS
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path

BY_NAME = {part.name: part for part in PARTS}


def test_a_part_is_asked_for_its_own_goals_only(tmp_path: Path) -> None:
    assert small(BY_NAME["good"], tmp_path) == {SCHEDULES: 20_000}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("violation", "violation: lost r7: seed 1990"),
        ("missed", "missed: of its own: 2 of 3"),
        ("missed-row", "model states: 7 of 200,000"),
        ("not-all", "mutants caught: 41 of 42"),
        ("silent", "silent: did not state: model states"),
        ("blind", "blind: the control did not fail: the broken one"),
        ("uncontrolled", "uncontrolled: did not try the control: the broken one"),
        ("skipped", "skipped: not tried: no such device here"),
    ],
)
def test_whatever_is_wrong_with_it_fails_the_test(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "said.log").write_text("its last words")
    with pytest.raises(AssertionError, match=f"(?s){re.escape(said)}.*its last words"):
        small(BY_NAME[name], tmp_path)
