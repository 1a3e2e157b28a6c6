"""A little torture of streams, and what its messages tell; it is judged as histories are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof.streams_torture import messages
from proof.streams_torture.part import CONTROL, PART
from tests.small import small_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_the_control_loses(tmp_path: Path) -> None:
    outcome = small_outcome(PART, tmp_path)
    assert [one.what for one in outcome.controls if one.broke] == [CONTROL]


def test_a_message_tells_who_sent_it_as_which_number() -> None:
    body = messages.message(7, 12)
    assert messages.sender_of(body, 12) == "7"
    assert messages.sender_of(body, 13) == messages.NOBODY
    assert messages.sender_of(b"", 0) == messages.NOBODY
