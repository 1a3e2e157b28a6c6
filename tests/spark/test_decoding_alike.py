"""Native servers and Spark decode 3,000 invented requests alike: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.decoding.part import JAVA, LAX, PART
from proof.part import Order, Size

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("spark")
def test_every_server_decodes_alike(tmp_path: Path) -> None:
    order = Order(size=Size.SMALL, seed=1, place=tmp_path, say=lambda *_: None)
    outcome = PART.run(order)
    assert outcome.violations == []
    reached = {measure.what: measure.reached for measure in outcome.measures}
    assert reached[goals.DECODED] == 3_000
    assert reached[JAVA] > 0
    (control,) = outcome.controls
    assert control.what == LAX
    assert control.broke > control.of * PART.controls[LAX]
