"""Native servers and Spark decode 3,000 invented requests alike: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.decoding.part import JAVA, LAX, PART
from tests.small import reached, small_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("spark")
def test_every_server_decodes_alike(tmp_path: Path) -> None:
    outcome = small_outcome(PART, tmp_path)
    figures = reached(outcome)
    assert figures[goals.DECODED] == 3_000
    assert figures[JAVA] > 0
    (control,) = outcome.controls
    assert control.broke > control.of * PART.controls[LAX]
