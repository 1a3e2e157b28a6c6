"""Fault points of bridges: some are struck in real processes, and what breaks is seen."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onceq.engine import faultpoints
from proof.part import Size
from proof.streams_bridges.part import PART, REFUSES_NOTHING
from proof.streams_bridges.points import (
    CONTROL,
    HELD,
    KINDS,
    LINKED,
    OCCURRENCES,
    SMALL,
    Trial,
    What,
    trials,
)
from proof.streams_bridges.trying import _differs
from tests.small import small_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(600)
def test_some_points_are_struck_and_all_is_once(tmp_path: Path) -> None:
    outcome = small_outcome(PART, tmp_path)
    reached = {measure.what: measure.reached for measure in outcome.measures}
    assert reached["trials at fault points of bridges"] == len(SMALL)
    (control,) = outcome.controls
    assert (control.what, control.broke) == (REFUSES_NOTHING, 1)


def test_the_proof_tries_each_point_in_each_way_at_each_time() -> None:
    planned = trials(Size.PROOF, random.Random(1))
    assert len(planned) == len(set(planned)) == len(KINDS) * len(What) * len(OCCURRENCES)
    assert {*SMALL, CONTROL} <= set(planned)


@pytest.mark.parametrize("point", KINDS)
def test_each_point_is_a_step_of_what_ships(point: str) -> None:
    assert point in faultpoints.POINTS


def test_every_point_of_bridges_is_there() -> None:
    """What an Op of bridges changes has two points, and each that is named for them one."""
    of = {f"{name}{side}" for name in faultpoints.OPS for side in (".before", ".after")}
    named = {*of, *faultpoints.NAMED}
    wanted = {one for one in named if one.startswith(("Stream", "Relay", "into.", "relay."))}
    wanted -= {"StreamForget.before", "StreamForget.after"}  # a person does that, no bridge
    assert set(KINDS) - {"Commit.before", "Commit.after"} == wanted
    assert set(KINDS) >= HELD | LINKED


@pytest.mark.parametrize(
    ("point", "what", "cuts_links"),
    [
        ("relay.sent", What.CUT_AFTER, True),
        ("relay.sent", What.KILL, False),
        ("relay.planned", What.CUT_AFTER, False),
    ],
)
def test_where_messages_are_sent_links_are_cut(point: str, what: What, *, cuts_links: bool) -> None:
    assert Trial(point=point, occurrence=1, what=what).cuts_links is cuts_links


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([1, 1, 2], "3 of 2, doubled ['1'], lost []"),
        ([2], "1 of 2, doubled [], lost ['1']"),
        ([2, 1], "2 of 2, doubled [], lost []; not in order"),
        ([1, 2], "2 of 2, doubled [], lost []"),
    ],
)
def test_what_is_wrong_is_named(found: list[int], says: str) -> None:
    assert _differs(found, [1, 2]) == says
