"""Stable and recover sets, over all lists of at most three groups of at most three stores."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from onceq.errors import InvalidValue
from onceq.streams.model.quorum import (
    STORES_MAX,
    Intergroup,
    Intragroup,
    StoreList,
    are_recovered,
    are_stable,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = [sizes for count in (1, 2, 3) for sizes in itertools.product((1, 2, 3), repeat=count)]


def list_of(sizes: tuple[int, ...], intragroup: Intragroup, intergroup: Intergroup) -> StoreList:
    names = iter("abcdefghi")
    groups = tuple(tuple(itertools.islice(names, size)) for size in sizes)
    return StoreList(groups=groups, intragroup=intragroup, intergroup=intergroup)


def lists() -> Iterator[StoreList]:
    for sizes in SIZES:
        for intragroup in Intragroup:
            for intergroup in Intergroup:
                yield list_of(sizes, intragroup, intergroup)


def subsets(stores: frozenset[str]) -> list[frozenset[str]]:
    ordered = sorted(stores)
    return [
        frozenset(one)
        for count in range(len(ordered) + 1)
        for one in itertools.combinations(ordered, count)
    ]


def satisfied(of: StoreList, holders: frozenset[str]) -> list[bool]:
    """By counting, as UM's guide says it: the groups in which it is stable."""
    have = [len(holders.intersection(group)) for group in of.groups]
    if of.intragroup is Intragroup.ALL:
        return [n == len(group) for n, group in zip(have, of.groups, strict=True)]
    return [2 * n > len(group) for n, group in zip(have, of.groups, strict=True)]


def test_a_stable_set_is_what_the_guide_says() -> None:
    for one in lists():
        for holders in subsets(one.stores):
            groups = satisfied(one, holders)
            expected = all(groups) if one.intergroup is Intergroup.ALL else any(groups)
            assert one.is_stable(holders) is expected, (one, holders)


def test_in_all_active_groups_it_must_be_stable_and_in_one_at_least() -> None:
    for sizes in SIZES:
        for intragroup in Intragroup:
            one = list_of(sizes, intragroup, Intergroup.ALL_ACTIVE)
            if len(one.stores) > 5:
                continue
            for responsive in subsets(one.stores):
                active = [2 * len(responsive.intersection(g)) > len(g) for g in one.groups]
                for holders in subsets(one.stores):
                    groups = satisfied(one, holders)
                    asked = [has for has, on in zip(groups, active, strict=True) if has or on]
                    assert one.is_stable(holders, responsive) is (bool(asked) and all(asked))


def test_every_recover_set_meets_every_stable_set() -> None:
    """Whatever was stable, one of those that answered has it; `all_active` counts as any."""
    for one in lists():
        everything = subsets(one.stores)
        stable = [holders for holders in everything if one.is_stable(holders)]
        least = [s for s in stable if not any(other < s for other in stable)]
        for answered in everything:
            meets = all(answered & holders for holders in least)
            assert one.recovers(answered) is meets, (one, answered)


def test_what_is_stable_stays_so_with_more_stores() -> None:
    for one in lists():
        for holders in subsets(one.stores):
            if one.is_stable(holders):
                assert all(one.is_stable(holders | {more}) for more in one.stores)
            if one.recovers(holders):
                assert all(one.recovers(holders | {more}) for more in one.stores)


def test_three_stores_go_on_with_two_and_not_with_one() -> None:
    one = listed("a b c")
    assert one.is_responsive({"a", "c"})
    assert not one.is_responsive({"c"})
    assert one.recovers({"b", "c"})
    assert not one.recovers({"b"})


def test_a_group_of_one_store_is_a_list() -> None:
    assert listed("a").is_stable({"a"})
    assert listed("a").recovers({"a"})


def test_all_stores_of_a_group_in_any_of_two_groups() -> None:
    one = listed("a b; c d", intragroup=Intragroup.ALL)
    assert one.is_stable({"c", "d"})
    assert not one.is_stable({"a", "c"})
    assert not one.recovers({"a", "b"})
    assert one.recovers({"a", "c"})


def test_of_several_lists_all_must_agree() -> None:
    two = (listed("a b c"), listed("a d e"))
    assert are_stable(two, {"a", "b", "d"})
    assert not are_stable(two, {"b", "c", "d"})
    assert are_recovered(two, {"a", "b", "e"})
    assert not are_recovered(two, {"b", "c", "e"})
    assert not are_stable((), {"a"})
    assert not are_recovered((), {"a"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no store"),
        ("a b;", "no store"),
        ("a; ; b", "no store"),
        ("a b; c a", "a is listed twice"),
        (" ".join(f"s{n}" for n in range(STORES_MAX + 1)), "at most 64"),
    ],
)
def test_a_list_that_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        listed(text)


def test_a_list_is_written_as_it_is_read() -> None:
    text = "127.0.0.1:7401 127.0.0.1:7402; 127.0.0.1:7403"
    assert listed(text).text() == text
    assert listed(listed(text).text()) == listed(text)
