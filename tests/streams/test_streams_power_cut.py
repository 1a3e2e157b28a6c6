"""Power cuts under three stores at once, and how they are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.store.log.segments import Files
from proof.powercut import devices
from proof.streams_powercut.part import CONTROL, PART
from proof.streams_powercut.trial import Told, Unsynced
from tests.small import small_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_nothing_that_was_stable_is_lost_and_without_fdatasync_some_is(tmp_path: Path) -> None:
    reason = devices.missing()
    if reason is not None:
        pytest.skip(reason)
    outcome = small_outcome(PART, tmp_path)
    assert [one.what for one in outcome.controls if one.broke] == [CONTROL]


def test_what_was_told_before_a_cut_counts_and_nothing_later() -> None:
    told = Told(at_ns=[10, 20, 30], below=[1, 5, 9])
    assert [told.stable_at(at) for at in (9, 10, 25, 99)] == [0, 1, 5, 9]


def test_the_control_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: pytest.fail("it was synced"))
    Unsynced(tmp_path).sync(-1)
    with pytest.raises(pytest.fail.Exception):
        Files(tmp_path).sync(-1)
