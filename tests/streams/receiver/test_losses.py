"""A receiver learns of what was lost before it is shown anything behind it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.frames import FrameKind
from onceq.streams.model.losses import Lost
from onceq.streams.receiver.delivering import Delivering
from tests.streams.receiver.test_delivering import ABC, S, frame, information, live, stable

LOST = (Lost(epoch=4, first=3, count=6),)


def test_what_was_lost_is_learned_of_before_anything_behind_it_is_shown() -> None:
    """A receiver of what is stable reads from stores, and goes by no epoch."""
    core = stable(5)
    given = asks.Range(begin=5, end=12, frames=2, lost=4)
    data = (frame(4, 5, 4, kind=FrameKind.VOID, stable=12), frame(4, 9, 3, stable=12))
    assert core.given("a", given, data) == []
    assert core.is_behind
    known = replace(information(4, (1, 0), (4, 3)), losses=LOST)
    assert core.inform(known) == [], "this life was shown nothing of it"
    assert core.next == 3, "what is sent under these numbers is not what it had acknowledged"
    data = (frame(4, 3, 6, kind=FrameKind.VOID, stable=12), frame(4, 9, 3, stable=12))
    assert len(core.given("a", asks.Range(begin=3, end=12, frames=2, lost=4), data)) == 4


def test_a_store_that_is_back_with_what_was_lost_is_not_believed() -> None:
    core = stable(3)
    known = replace(information(4, (1, 0), (4, 3)), losses=LOST)
    core.inform(known)
    old = (frame(1, 3, 3, stable=6),)
    assert core.given("b", asks.Range(begin=3, end=6, frames=1), old) == []
    assert core.next == 3


@pytest.mark.parametrize("make", [live, stable])
def test_what_was_shown_and_is_lost_is_told(make: Any) -> None:
    core = make()
    core.given("a", asks.Range(begin=0, end=4), (frame(1, 0, 4, stable=6),))
    core.inform(replace(information(2, (1, 0), (2, 4)), stable=4))
    core.given("a", asks.Range(begin=4, end=6), (frame(2, 4, 2, stable=6),))
    assert core.next == 6
    known = replace(information(4, (1, 0), (2, 4), (4, 3)), losses=LOST)
    assert core.inform(known) == [RolledBack(stream=S, first=3, last=5)]
    void = (frame(4, 3, 6, kind=FrameKind.VOID, stable=9),)
    assert core.given("a", asks.Range(begin=3, end=9, lost=4), void) == [
        Loss(stream=S, first=3, last=8, why=WhyLost.LOST)
    ]
    assert core.inform(replace(known, stage=Stage.SETTLED)) == [], "once"


def test_a_life_that_began_behind_it_hears_nothing_of_a_loss() -> None:
    core = Delivering(S, 20, (ABC,), is_stable_only=True)
    core.inform(replace(information(4, (1, 0), (4, 3)), losses=LOST))
    core.given("a", asks.Range(begin=20, end=21, lost=4), (frame(4, 20, stable=21),))
    later = replace(information(6, (1, 0), (4, 3), (6, 21)), losses=LOST)
    assert core.inform(later) == []
    assert core.next == 21
