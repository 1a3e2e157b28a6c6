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

from bench import figures, record
from bench.results import side_line

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def row_of(result: Result, recorded: dict[str, Recorded]) -> tuple[str, ...]:
    """Return the cells of a result in a table."""
    row = result.line()
    return (
        result.name,
        figures.text_of(row),
        figures.spread_of(row),
        figures.target_of(row),
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
        "results": [
            {**one.line(), "against_record": record.moved(one, recorded)} for one in results
        ],
        "sides": [side_line(one.question, side) for one in results for side in one.sides],
    }
    (folder / "report.json").write_text(json.dumps(held, indent=1) + "\n")
    plots = [f"\n![{plot.stem}]({plot.name})\n" for plot in sorted(folder.glob("*.svg"))]
    (folder / "report.md").write_text(figures.text(held) + "".join(plots))
