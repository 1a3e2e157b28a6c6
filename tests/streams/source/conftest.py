"""What tests of sources share."""

from __future__ import annotations

import pytest

from tests.streams.source.towns import Town


@pytest.fixture
def town() -> Town:
    """A stream of three numbers; a lacks the last one."""
    made = Town()
    made.begun()
    for number in range(2):
        made.send(number, "abc", epoch=1)
    made.send(2, "bc", epoch=1, stable=2)
    made.asked.clear()
    return made
