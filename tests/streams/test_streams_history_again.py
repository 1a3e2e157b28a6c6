"""What a life of a source sends again in a later epoch: the history checker of streams knows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onceq.streams.history import kinds
from tests.streams.test_streams_history import LIVE, ONE, A, broken

AGAIN: list[kinds.StreamEvent] = [
    kinds.Began(**ONE, epoch=5, number=0),
    kinds.Sent(**ONE, first=0, last=11, content="x"),
    kinds.StableTold(**ONE, first=0, last=7),
    kinds.Began(**ONE, epoch=6, number=12),
    kinds.StableTold(**ONE, first=8, last=11),
    kinds.Entered(**LIVE, number=0, epoch=5, is_stable_only=False),
    kinds.Delivered(**LIVE, first=0, last=11, epoch=5, content="x"),
    kinds.RolledBack(**LIVE, first=10, last=11),
    kinds.Delivered(**LIVE, first=10, last=11, epoch=6, content="x"),
    kinds.Held(**A, first=0, last=9, epoch=5, content="x"),
    kinds.Held(**A, first=10, last=11, epoch=6, content="x"),
]
"""A life sends again, in a later epoch, what it was not told of."""


def test_what_a_life_sends_again_in_a_later_epoch_is_in_vain_before() -> None:
    assert broken(AGAIN) == []


@pytest.mark.parametrize(
    ("at", "instead"),
    [(2, {"last": 10}), (7, {"first": 9}), (7, {"first": 7})],
    ids=["told before", "a store has it as it was", "told before, and a store has it"],
)
def test_what_stays_as_it_was_is_not_in_vain(at: int, instead: dict[str, int]) -> None:
    found = broken([*AGAIN[:at], replace(AGAIN[at], **instead), *AGAIN[at + 1 :]])
    assert [one.rule for one in found if "are stable" in one.text] == ["rolled-back"]
