"""Schedules of a queue in strict order: small. More of them: tests/ordering."""

from __future__ import annotations

import pytest

from proof.ordering.part import PART
from tests.small import small_apart


@pytest.mark.timeout(240)  # later than the part's own limit, which says what it was doing
def test_a_strict_queue_is_never_overtaken() -> None:
    small_apart(PART)
