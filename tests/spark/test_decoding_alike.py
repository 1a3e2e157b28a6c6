"""Native servers and Spark decode 3,000 invented requests alike: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.decoding.part import JAVA, PART
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("spark")
def test_every_server_decodes_alike(tmp_path: Path) -> None:
    reached = small(PART, tmp_path)
    assert reached[goals.DECODED] == 3_000
    assert reached[JAVA] > 0
