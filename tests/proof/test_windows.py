"""A client with many requests outstanding, killed at random points, in small (C6, G1, G5, G6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proof import goals
from proof.windows.client import Line
from proof.windows.judge import judge
from proof.windows.part import PART
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(170)
def test_a_thousand_outstanding_requests_survive_ten_kills(tmp_path: Path) -> None:
    reached = small(PART, tmp_path)
    assert (reached[goals.OUTSTANDING], reached[goals.KILLS]) == (1000, 10)


GOOD = [
    Line(what="connected"),
    Line(what="sent", rids=["1", "2"]),
    Line(what="received", rids=["1"], digest="a"),
    Line(what="again", rids=["1"], digest="a"),
    Line(what="acknowledges", rids=["1"]),
]


@pytest.mark.parametrize(
    ("following", "wrong"),
    [
        ([Line(what="connected", rids=["1", "2"])], False),
        ([Line(what="connected", rids=["2"])], False),
        ([Line(what="connected", rids=["1"])], True),
        ([Line(what="acknowledged", rids=["1"]), Line(what="connected", rids=["1", "2"])], True),
        ([Line(what="again", rids=["1"], digest="b")], True),
        ([Line(what="received", rids=["3"], digest="c")], True),
        (
            [Line(what="connected", rids=["2"]), Line(what="received", rids=["1"], digest="a")],
            True,
        ),
    ],
)
def test_the_judge_knows_what_a_life_may_not_contradict(
    following: list[Line], *, wrong: bool
) -> None:
    assert bool(judge([*GOOD, *following]).violations) is wrong
