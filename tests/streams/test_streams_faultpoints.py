"""Fault points of streams: some are struck in real processes, and each is a step of what ships."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks, ops
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.outstanding import Outstanding
from proof.part import Size
from proof.streams_faultpoints.part import OCCURRENCES, PART, ROLE, SMALL, trials
from proof.streams_faultpoints.points import POINTS, Armed, Planned, Point, What, suffer
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_some_points_are_struck_and_nothing_is_lost(tmp_path: Path) -> None:
    assert small(PART, tmp_path)["trials at fault points of streams"] == SMALL


@pytest.mark.parametrize("point", POINTS.values(), ids=list(POINTS))
def test_each_point_is_a_step_of_what_ships(point: Point) -> None:
    assert callable(point.of.__dict__[point.method])
    assert point.role in ROLE


def test_the_proof_tries_each_point_in_each_way_at_each_time() -> None:
    planned = trials(Size.PROOF, random.Random(1))
    assert len(planned) == len(set(planned)) == len(POINTS) * len(What) * len(OCCURRENCES)


def armed(place: Path, point: str, occurrence: int = 1) -> Armed:
    return Armed(point=point, occurrence=occurrence, what=What.RAISE, struck=place / "struck")


def test_a_point_strikes_at_its_time_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(Outstanding, "end", lambda *_: ended.append(1))
    monkeypatch.setattr("onceq.streams.net.link.Link.connection_made", lambda *_: None)
    suffer(armed(tmp_path, "receiver.delivered", occurrence=2))
    one = Outstanding(0)
    one.end(0)
    with pytest.raises(Planned):
        one.end(0)
    one.end(0)
    assert len(ended) == 3
    assert (tmp_path / "struck").exists()


def test_of_several_asks_only_the_one_that_is_meant_counts() -> None:
    look = asks.Look(topic="bars", session=9)
    fence = asks.Fence(stream=1, epoch=1, life=1, own=listed("a"))
    for given, counts in ((look, False), (fence, True)):
        op = ops.AskStores(asked={"a": given}, enough=lambda _: True, within_s=1.0)
        assert POINTS["source.fenced"].is_done_by((op,)) is counts
