"""What a run leaves behind: lines.jsonl, report.json, report.md, and plots if matplotlib is there.

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
from bench.figures import DIRTY
from bench.results import side_line
from onceq.engine.embedded.binaries import find_binaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.record import Recorded
    from bench.results import Result

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).with_name("report")
CPUS = Path("/proc/cpuinfo")
CHANGES = {True: "met", False: "MISSED", None: ""}


def new_folder() -> Path:
    """Make the folder of this run, where git does not look."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = FOLDER / stamp
    folder.mkdir()
    return folder


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def changes() -> list[str]:
    """Return the uncommitted changes of the tree, except the record itself."""
    return _git("status", "--porcelain", "--", ".", ":!bench/recorded.json").splitlines()


def revision() -> str:
    """Return the revision that figures of this tree are of, and whether it has changes."""
    return f"{_git('describe', '--always') or 'unknown'}{DIRTY if changes() else ''}"


def fingerprint() -> str:
    """Return what tells this machine from others: its processors, memory, PostgreSQL, Python."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in CPUS.read_text().splitlines()
            if line.startswith("model name")
        )
        if CPUS.exists()
        else iter(()),
        platform.processor(),
    )
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    postgres = subprocess.run(
        [find_binaries().program("postgres"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    server = postgres.stdout.split()[2]
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{os.cpu_count()} x {model}, {gib:.0f} GiB, PostgreSQL {server}, Python {python}"


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "fingerprint": fingerprint(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "revision": revision(),
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
