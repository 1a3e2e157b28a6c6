"""When a registration is in use: by how many stores, and how surely, for sources and receivers."""

from __future__ import annotations

import itertools

import pytest

from onceq.streams.model.quorum import Intragroup, StoreList, listed
from onceq.streams.model.uses import (
    BEAT_S_MAX,
    InUse,
    Watch,
    beat_s,
    is_receiver_in_use,
    is_source_in_use,
    may_take_over,
    own_part,
)

ABC = listed("a b c")
ALL = listed("a b c", intragroup=Intragroup.ALL)


def test_a_store_is_sure_of_a_user_that_it_hears_again_and_again() -> None:
    watch = Watch()
    for heard, sure in ((4, ""), (5, ""), (5, ""), (6, "a"), (6, "a")):
        watch.note({"a": InUse(life=1, heard=heard)})
        assert watch.sure == set(sure)
    watch.note({"a": InUse(life=2, heard=9)})
    assert not watch.sure, "another one has come"
    watch.note({"a": InUse(life=2, heard=10)})
    watch.note({})
    watch.note({"a": InUse(life=2, heard=11)})
    assert not watch.sure, "it was gone"


def test_one_that_never_says_anything_is_never_sure() -> None:
    watch = Watch()
    for _ in range(9):
        watch.note({"a": InUse(life=1), "b": InUse(life=1)})
    assert not watch.sure


@pytest.mark.parametrize(
    ("own", "free", "used", "may", "is_in_use"),
    [
        (ABC, "abc", "", True, False),
        (ABC, "a", "", True, False),
        (ABC, "ab", "c", True, False),
        (ABC, "a", "c", False, False),
        (ABC, "", "c", False, False),
        (ABC, "a", "bc", False, True),
        (ABC, "", "bc", False, True),
        (ABC, "", "abc", False, True),
        (ALL, "ab", "c", True, False),
        (ALL, "a", "bc", False, True),
        (listed("a"), "", "a", False, True),
        (listed("a b"), "b", "a", False, False),
        (listed("a b"), "", "ab", False, True),
        (listed("a; b"), "a", "b", False, True),
    ],
)
def test_a_source_takes_over_or_is_refused_or_waits(
    own: StoreList, free: str, used: str, *, may: bool, is_in_use: bool
) -> None:
    assert may_take_over((own,), set(free), set(used)) is may
    assert is_source_in_use((own,), set(used)) is is_in_use
    assert not (may and is_in_use)


@pytest.mark.parametrize(
    ("own", "used", "is_in_use"),
    [(ABC, "", False), (ABC, "a", False), (ABC, "ab", True), (ALL, "a", True), (ALL, "", False)],
)
def test_a_receiver_is_refused_if_it_can_not_be_registered(
    own: StoreList, used: str, *, is_in_use: bool
) -> None:
    assert is_receiver_in_use((own,), set(used)) is is_in_use
    assert is_receiver_in_use((listed("d e f"), own), set(used)) is is_in_use


def test_a_user_is_heard_several_times_before_it_counts_as_gone() -> None:
    assert beat_s(0) == 0
    assert 3 * beat_s(400) < 0.4
    assert beat_s(30_000) == BEAT_S_MAX


def test_each_waits_for_a_while_of_its_own() -> None:
    parts = [own_part(life, turn) for life, turn in itertools.product((1, 2), range(1, 9))]
    assert len(set(parts)) == len(parts)
    assert all(0 <= part < 1 for part in parts)
    assert own_part(1, 0) == own_part(2, 0) == 0
