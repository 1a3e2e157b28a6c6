"""The audit of a long history: the proof's part, small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.audit import part
from proof.audit.plants import PLANTS, Of, Plant
from proof.part import Order, Size

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.timeout(400)


@pytest.mark.usefixtures("spark")
def test_what_is_broken_is_named_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what breaks nothing, or breaks others too, is told of as that."""
    lame = Plant("nothing", "G2", Of.DONE, "select 1")
    others = "delete from {r}.booked where rid = 'order-7'"
    monkeypatch.setattr(part, "PLANTS", (*PLANTS, lame, Plant("wide", "G2", Of.DONE, others)))
    order = Order(size=Size.SMALL, seed=1, place=tmp_path, say=lambda *_: None)
    outcome = part.PART.run(order)
    assert outcome.violations[:2] == ["was not found: nothing", "was not found: wide"]
    assert all("G2 order-7:" in one for one in outcome.violations[2:])
    assert len(outcome.violations) == 3
    assert outcome.controls[0].broke == len(PLANTS)
    measured = {measure.what: measure.reached for measure in outcome.measures}
    assert measured[goals.AUDITED] == 0
