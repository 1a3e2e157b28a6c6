"""The archive's job killed where its commit is done and not known: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.engine.faultpoints import POINTS as EVERY
from proof import goals
from proof.archive import part
from proof.part import Size
from tests.small import reached, small_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(400)
def test_each_row_is_in_files_once_whatever_was_killed(tmp_path: Path) -> None:
    outcome = small_outcome(part.PART, tmp_path)
    figures = reached(outcome)
    assert figures[goals.ARCHIVED] == part.ROWS[Size.SMALL]
    assert (figures[goals.KILLS], figures[part.STEPS]) == (2, 2)
    assert [control.broke for control in outcome.controls] == [1, 1]


def test_every_step_of_the_job_is_struck() -> None:
    struck = {*part.POINTS, *part.MORE_POINTS}
    assert set(part.SMALL_POINTS) < struck < set(EVERY)
    assert len(struck) == len(part.POINTS) + len(part.MORE_POINTS)
    assert len(struck) + 2 * part.BY_CHANCE[Size.PROOF] >= 20
