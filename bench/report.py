"""What a run leaves behind: lines.jsonl, report.json, report.md, and plots where matplotlib is.

The folder is `bench/report/TIME`; git ignores it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import record
from bench.results import rounded, side_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.record import Recorded
    from bench.results import Result

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).with_name("report")
CHANGES = {True: "met", False: "MISSED", None: ""}


def new_folder() -> Path:
    """Make the folder of this run, where git does not look."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = FOLDER / stamp
    folder.mkdir()
    return folder


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "revision": said.stdout.strip() or "unknown",
        "load_before": round(os.getloadavg()[0], 2),
    }


def text_of(result: Result) -> str:
    """Return the value for people: with its unit, or why there is none."""
    value = rounded(result.value)
    if value is None:
        return f"skipped: {result.skipped}" if result.skipped else f"error: {result.error}"
    return f"{value:g}" if result.unit == "ratio" else f"{value:,g} {result.unit}"


def target_of(result: Result) -> str:
    """Return the target for people."""
    if result.target is None:
        return ""
    return f"{'≥' if result.better == 'more' else '≤'} {result.target:,g}"


def spread_of(result: Result) -> str:
    """Return the least and the greatest round."""
    if len(result.rounds) < 2:
        return ""
    return f"{rounded(min(result.rounds)):,g}-{rounded(max(result.rounds)):,g}"


def row_of(result: Result, recorded: dict[str, Recorded]) -> tuple[str, ...]:
    """Return the cells of a result in a table."""
    return (
        result.name,
        text_of(result),
        spread_of(result),
        target_of(result),
        CHANGES[result.met],
        record.moved(result, recorded) or "",
    )


HEADINGS = ("case", "value", "rounds", "target", "", "against the record")


def write_report(
    folder: Path, results: Sequence[Result], recorded: dict[str, Recorded], about: dict[str, Any]
) -> None:
    """Write report.json and report.md."""
    held = {
        "v": 1,
        "machine": about,
        "results": [result.line() for result in results],
        "sides": [side_line(one.question, side) for one in results for side in one.sides],
    }
    (folder / "report.json").write_text(json.dumps(held, indent=1) + "\n")
    (folder / "report.md").write_text("\n".join(_text(folder, results, recorded, about)) + "\n")


def _text(
    folder: Path, results: Sequence[Result], recorded: dict[str, Recorded], about: dict[str, Any]
) -> Iterable[str]:
    yield "# Benchmark"
    yield ""
    yield "; ".join(f"{key} {value}" for key, value in about.items())
    yield ""
    yield "A ratio is the median over the rounds of our rate by the other's of the same round."
    yield ""
    yield from _table(HEADINGS, [row_of(result, recorded) for result in results])
    yield ""
    yield "## Sides"
    yield ""
    yield from _table(
        ("question", "side", "median a second", "p50 µs", "p99 µs"),
        [
            tuple(str(cell or "") for cell in row)
            for result in results
            for side in result.sides
            for row in [
                (
                    result.name,
                    side.name,
                    rounded(side.per_s),
                    rounded(side.median_us("p50_us")),
                    rounded(side.median_us("p99_us")),
                )
            ]
        ],
    )
    yield from _weaker(results)
    for plot in sorted(folder.glob("*.svg")):
        yield ""
        yield f"![{plot.stem}]({plot.name})"


def _weaker(results: Sequence[Result]) -> Iterable[str]:
    yield ""
    yield "## What each does not guarantee, and how it is run"
    yield ""
    sides = {side.name: side for result in results for side in result.sides if side.how}
    yield from _table(
        ("side", "version", "weaker than onceq in", "how"),
        [(side.name, side.version, side.weaker, side.how) for side in sides.values()],
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
