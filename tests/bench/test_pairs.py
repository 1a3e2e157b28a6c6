"""Slices alternate, are sized by the warm-up, and the ratio is that of the same round."""

from __future__ import annotations

import pytest

from bench.cases import CASES
from bench.pairs import Pace, Runner, alternate, pair, ratios
from bench.results import Result, Side, Slice
from bench.rows import expected


def runner(
    name: str, per_s: float, ran: list[tuple[str, int]], *, step: int = 1, most: int = 10_000
) -> Runner:
    def run(number: int) -> Slice:
        ran.append((name, number))
        return Slice(number=number, seconds=number / per_s)

    return Runner(name=name, run=run, first=100, step=step, most=most)


def test_rounds_alternate_and_the_first_is_not_counted() -> None:
    ran: list[tuple[str, int]] = []
    sides = alternate([runner("a", 100, ran), runner("b", 100, ran)], Pace(rounds=3))
    assert [name for name, _ in ran] == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert [len(side.slices) for side in sides] == [3, 3]


def test_a_slice_lasts_as_long_as_asked_for() -> None:
    ran: list[tuple[str, int]] = []
    alternate([runner("a", 5000, ran)], Pace(rounds=1, slice_s=0.5))
    assert ran == [("a", 100), ("a", 2500)]


def test_the_number_of_a_slice_is_a_multiple_and_bounded() -> None:
    ran: list[tuple[str, int]] = []
    alternate([runner("a", 5000, ran, step=64, most=1000)], Pace(rounds=1))
    assert ran == [("a", 64), ("a", 960)]


def test_a_ratio_is_of_one_round() -> None:
    rates = zip((100.0, 400.0), (200.0, 400.0), strict=True)
    ours, other = (
        Side(name=name, slices=tuple(Slice(number=100, seconds=100 / rate) for rate in found))
        for name, found in zip("ab", zip(*rates, strict=True), strict=True)
    )
    assert ratios(ours, other) == (0.5, 1.0)


def test_a_pair_is_our_rate_by_theirs() -> None:
    ran: list[tuple[str, int]] = []
    found = pair("a/b", "?", (runner("a", 300, ran), runner("b", 100, ran)), Pace(), target=2.0)
    assert found.value == pytest.approx(3.0)
    assert found.met


@pytest.mark.parametrize(
    ("better", "value", "met"),
    [("more", 1.0, True), ("more", 0.9, False), ("less", 1.0, True), ("less", 1.1, False)],
)
def test_targets(better: str, value: float, *, met: bool) -> None:
    found = Result(name="a", question="?", rounds=(value,), target=1.0, better=better)  # type: ignore[arg-type] # the table's
    assert found.met is met


def test_without_a_value_no_target_is_met_or_missed() -> None:
    assert Result(name="a", question="?", target=1.0, skipped="not here").met is None


def test_every_result_of_the_table_has_a_name_of_its_own() -> None:
    names = expected(CASES)
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {case.name for case in CASES}


def test_first_slices_are_multiples() -> None:
    assert [case.name for case in CASES if case.first % case.step] == []
