"""How long a batch lasts (S3): as its finish and its commit took last time."""

from __future__ import annotations

import pytest

from onceq.engine.perform.together import Together
from onceq.model import ops

BATCH = ops.Begin(slot=1, seq=-1, token="test", isolation="read committed", alone=False)


@pytest.mark.parametrize(
    ("took_s", "lasts_s"), [(0.0, 0.005), (0.001, 0.005), (0.01, 0.04), (1.0, 0.1)]
)
def test_the_slower_a_commit_the_more_share_it(took_s: float, lasts_s: float) -> None:
    """Far from its database, a batch of 5 ms would be two or three requests; and it has a bound."""
    batch = Together()
    batch.ended(took_s)
    batch.begin(BATCH, 1.0)
    assert not batch.is_over(1.0 + lasts_s * 0.99)
    assert batch.is_over(1.0 + lasts_s * 1.01)
