"""The tables of runs fill the marked places of the page, and nothing else of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.figures import PAGE, PLACE, TABLES, filled, main, merged, text
from bench.results import Result, Side, Slice, side_line

if TYPE_CHECKING:
    from pathlib import Path

SIDES = tuple(
    Side(name=name, slices=(Slice(number=100, seconds=1.0),), version="1", weaker="", how="threads")
    for name in ("onceq safe", "raw safe")
)
RATIO = Result(name="a/raw", question="?", rounds=(0.8, 1.0, 0.9), target=0.85, sides=SIDES)
SKIPPED = Result(name="a/pgmq", question="?", target=2.0, skipped="not | here")
RATE = Result(name="ceiling/x", question="!", unit="/s", rounds=(1234.0, 2345.0))


def run(*results: Result, delay: int = 0) -> dict[str, Any]:
    return {
        "machine": {"cpus": 2, "commit_delay_us": delay},
        "results": [one.line() for one in results],
        "sides": [side_line(one.question, side) for one in results for side in one.sides],
    }


def test_what_has_a_target_stands_in_one_table_and_the_rest_in_another() -> None:
    reports = [run(RATIO, SKIPPED, RATE)]
    lines = TABLES["targets"](reports).splitlines()
    assert lines[2] == "| a/raw | 0.9 | 0.8-1 | ≥ 0.85 | met |"
    assert lines[3] == "| a/pgmq | skipped: not \\| here |  | ≥ 2 |  |"
    assert len(lines) == 4
    assert "1,790 /s" in TABLES["without-targets"](reports)


def test_a_run_with_a_delay_is_a_column_and_never_the_value() -> None:
    delayed = Result(name="a/raw", question="?", rounds=(2.0,), target=0.85)
    found = TABLES["targets"]([run(RATIO), run(delayed, delay=120)]).splitlines()
    assert found[0].endswith("with a commit delay of 120 µs |")
    assert found[2] == "| a/raw | 0.9 | 0.8-1 | ≥ 0.85 | met | 2 |"


def test_a_later_run_takes_the_place_of_an_earlier() -> None:
    later = Result(name="a/raw", question="?", rounds=(0.5,), target=0.85)
    assert [row["value"] for row in merged([run(RATIO), run(later)])] == [0.5]


def test_only_the_marked_places_are_filled_and_they_can_be_filled_again() -> None:
    page = "before\n<!-- figures: rates -->\nold\n<!-- end of figures -->\nafter\n"
    once = filled(page, [run(RATIO)])
    assert once.startswith("before\n<!-- figures: rates -->\n| question |")
    assert once.endswith("|\n<!-- end of figures -->\nafter\n")
    assert "old" not in once
    assert filled(once, [run(RATIO)]) == once


def test_figures_of_a_changed_tree_are_not_written_into_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(RATIO)
    made["machine"]["revision"] = "abc1234-dirty"
    (tmp_path / "report.json").write_text(json.dumps(made))
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--write"])
    assert "belong to no revision: abc1234-dirty" in capsys.readouterr().err


def test_the_page_has_a_place_for_every_table() -> None:
    assert {found[2] for found in PLACE.finditer(PAGE.read_text())} == set(TABLES)


def test_a_report_holds_all_tables() -> None:
    found = text(run(RATIO, SKIPPED, RATE))
    assert [name for name in TABLES if f"## {name}\n" not in found] == []
