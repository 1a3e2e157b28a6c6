"""A file of 20,000 rows, submitted and collected with six kills: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.large_file import PART
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(400)
def test_a_large_file_in_the_small_size(tmp_path: Path) -> None:
    reached = small(PART, tmp_path)
    assert (reached[goals.FILE_ROWS], reached[goals.KILLS]) == (20_000, 6)
    assert reached["peak MB of submit"] > 0
