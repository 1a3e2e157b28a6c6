"""The mutants fit into the code as it is, and the page lists them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proof.mutants import page
from proof.mutants.table import ROOT, Change, Kind, Mutant, Unfit, faults_of, kinds, mutated

AT_LEAST = 40

PLAIN = Mutant(
    name="plain",
    guarantee="G1",
    why="Because.",
    tests=["tests/tidy/test_mutants.py"],
    change=[Change(file="proof/mutants/__init__.py", old="Deliberately", new="By chance")],
)


def changed(**fields: Any) -> Mutant:
    return replace(PLAIN, **fields)


def test_every_mutant_fits_once() -> None:
    """Whoever changes the code that a mutant changes fits the mutant to it, and runs it."""
    assert not faults_of(kinds())
    assert sum(len(kind.mutant) for kind in kinds()) >= AT_LEAST


def test_the_page_lists_exactly_the_mutants() -> None:
    assert not page.differences(kinds(), page.PATH.read_text(encoding="utf-8")), (
        "make the page anew: python -m proof.mutants --write"
    )


def test_a_page_that_differs_is_noticed() -> None:
    all_kinds = [Kind(title="Some", mutant=[PLAIN])]
    row = f"{page.row_start(PLAIN)}`x` | 1.0 |\n"
    assert page.differences(all_kinds, page.COLUMNS + row) == []
    for wrong in (
        "",
        row + row,
        row + "| other | G1 | x | y | z | 1.0 |\n",
        row.replace("G1", "G2"),
    ):
        assert page.differences(all_kinds, page.COLUMNS + wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        changed(guarantee="G13"),
        changed(tests=[]),
        changed(tests=["tests/nowhere.py"]),
        changed(change=[Change(file="proof/mutants/__init__.py", old="e", new="")]),
        changed(change=[Change(file="nowhere.py", old="x", new="")]),
        changed(change=[Change(file="proof/mutants/__init__.py", old="mutants", new="mutants")]),
    ],
)
def test_a_mutant_that_does_not_fit_is_named(wrong: Mutant) -> None:
    assert faults_of([Kind(title="Some", mutant=[wrong])])
    assert not faults_of([Kind(title="Some", mutant=[PLAIN])])


def test_two_of_one_name_are_named() -> None:
    assert faults_of([Kind(title="Some", mutant=[PLAIN, PLAIN])])


def test_nothing_is_written_where_it_does_not_fit() -> None:
    (text,) = mutated(PLAIN, ROOT).values()
    assert text.startswith('"""By chance')
    with pytest.raises(Unfit, match="stands 0 times"):
        mutated(changed(change=[Change(file="README.md", old="not there", new="")]), ROOT)
