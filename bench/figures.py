"""The tables of a report: those of report.md, and those that docs/performance.md includes.

`python -m bench report FOLDER...` fills the marked places of docs/performance.md with the tables of
these runs, and prints the page; `--write` writes it. If runs have a result in common, the later
one counts. A run with --commit-delay fills a column of its own.

A marked place is between `<!-- figures: NAME -->` and `<!-- end of figures -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.results import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
PLACE = re.compile(
    r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL | re.MULTILINE
)
MET = {True: "met", False: "missed", None: ""}
DELAY = "commit_delay_us"
DIRTY = "-dirty"
"""Follows the revision of a tree with uncommitted changes."""

Report = dict[str, Any]
Row = dict[str, Any]


def text_of(row: Row) -> str:
    """Return the value for people: with its unit, or why there is none."""
    if row.get("value") is None:
        return f"skipped: {row['skipped']}" if row.get("skipped") else f"error: {row.get('error')}"
    return f"{row['value']:g}" if row["kind"] == "ratio" else f"{row['value']:,g} {row['kind']}"


def target_of(row: Row) -> str:
    """Return the target for people."""
    if row.get("target") is None:
        return ""
    return f"{'≥' if row['better'] == 'more' else '≤'} {rounded(row['target']):,g}"


def spread_of(row: Row) -> str:
    """Return the least and the greatest round."""
    found = row.get("rounds", ())
    return f"{rounded(min(found)):,g}-{rounded(max(found)):,g}" if len(found) > 1 else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in one)} |" for one in lines
    )


def merged(reports: Sequence[Report]) -> list[Row]:
    """Return the results of all runs without a delay; a later one replaces an earlier one."""
    held = {
        row["name"]: row for one in reports if not one["machine"][DELAY] for row in one["results"]
    }
    return list(held.values())


def machines(reports: Sequence[Report]) -> str:
    """Return what the runs were made on, one column each."""
    abouts = [one["machine"] for one in reports]
    keys = dict.fromkeys(key for about in abouts for key in about)
    headings = ["", *(f"run {number}" for number in range(1, len(abouts) + 1))]
    return table(
        headings,
        ([key.replace("_", " "), *(str(about.get(key, "")) for about in abouts)] for key in keys),
    )


def targets(reports: Sequence[Report]) -> str:
    """Return what has a target; with its value under a delay of commits, if there is one."""
    delayed = [one for one in reports if one["machine"][DELAY]]
    headings = ["case", "value", "rounds", "target", ""]
    headings += [f"with a commit delay of {one['machine'][DELAY]} µs" for one in delayed]
    others = [{row["name"]: row for row in one["results"]} for one in delayed]

    def cells(row: Row) -> list[str]:
        found = [one.get(row["name"]) for one in others]
        return [*_cells(row), *("" if one is None else text_of(one) for one in found)]

    return table(headings, [cells(row) for row in merged(reports) if row.get("target") is not None])


def without_targets(reports: Sequence[Report]) -> str:
    """Return what has no target."""
    rows = [row for row in merged(reports) if row.get("target") is None]
    return table(("case", "value", "rounds"), [_cells(row)[:3] for row in rows])


def _cells(row: Row) -> list[str]:
    return [row["name"], text_of(row), spread_of(row), target_of(row), MET[row.get("met")]]


def _sides(reports: Sequence[Report]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for one in reports:
        if not one["machine"][DELAY]:
            for side in one["sides"]:
                found.setdefault((side["question"], side["case"]), []).append(side)
    return found


def rates(reports: Sequence[Report]) -> str:
    """Return the rates of all sides; if a side was measured in several pairs, their median."""

    def median(sides: Sequence[Row], key: str) -> str:
        values = [side[key] for side in sides if side.get(key) is not None]
        return f"{rounded(statistics.median(values)):,g}" if values else ""

    keys = ("median_per_s", "p50_us", "p99_us")
    rows = [
        [question, side, *(median(found, key) for key in keys)]
        for (question, side), found in _sides(reports).items()
    ]
    return table(("question", "side", "a second", "p50 µs", "p99 µs"), rows)


def guarantees(reports: Sequence[Report]) -> str:
    """Return what each side does not guarantee, and how it is run."""
    sides = {side["case"]: side for one in reports for side in one["sides"] if side.get("how")}
    rows = [
        [name, side["version"], side.get("weaker", ""), side["how"]]
        for name, side in sorted(sides.items())
    ]
    return table(("side", "version", "weaker than onceq in", "how it is run"), rows)


TABLES: Mapping[str, Callable[[Sequence[Report]], str]] = {
    "machines": machines,
    "targets": targets,
    "without-targets": without_targets,
    "rates": rates,
    "guarantees": guarantees,
}


def is_of_no_revision(report: Report) -> bool:
    """Return whether a run was made from a tree with uncommitted changes."""
    return str(report["machine"]["revision"]).endswith(DIRTY)


def text(report: Report) -> str:
    """Return report.md: all tables of one run."""
    parts = [f"## {name}\n\n{make([report])}\n" for name, make in TABLES.items()]
    return "# Benchmark\n\n" + "\n".join(parts)


def filled(page: str, reports: Sequence[Report]) -> str:
    """Return the page with the tables of these runs in its marked places."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]](reports)}\n{found[3]}", page)


def main(arguments: Sequence[str]) -> int:
    """Fill the page."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="write the page, and print nothing")
    options = parser.parse_args(arguments)
    reports = [json.loads((folder / "report.json").read_text()) for folder in options.folders]
    dirty = [one["machine"]["revision"] for one in reports if is_of_no_revision(one)]
    if options.write and dirty:
        parser.error(f"figures of a changed tree belong to no revision: {', '.join(dirty)}")
    page = filled(PAGE.read_text(), reports)
    if options.write:
        PAGE.write_text(page)
    else:
        sys.stdout.write(page)
    return 0
