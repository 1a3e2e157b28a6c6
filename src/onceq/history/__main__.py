"""`python -m onceq.history FOLDER [--json]`: checks files of events.

FOLDER holds files *.events (`Recorder`) and the final state (`save_final`). Exit code 0: no
violation; 1: some; 2: the files cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import msgspec

from onceq.history import Report, check_files

SAID_MAX = 100


def main(arguments: list[str] | None = None) -> int:
    """Checks a folder; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m onceq.history",
        description="Checks recorded events against the guarantees G1 to G8 and G12.",
    )
    parser.add_argument("folder", type=Path, help="where the files of events and final.json are")
    parser.add_argument("--json", action="store_true", help="say it as one JSON object")
    chosen = parser.parse_args(arguments)
    try:
        report = check_files(chosen.folder)
    except (OSError, msgspec.DecodeError) as error:
        where = "".join(f" {note}" for note in getattr(error, "__notes__", []))
        sys.stderr.write(f"{chosen.folder}: {error}{where}\n")
        return 2
    sys.stdout.write(_as_json(report) if chosen.json else _as_text(report))
    return int(bool(report.violations))


def _as_json(report: Report) -> str:
    return msgspec.json.encode(asdict(report)).decode() + "\n"


def _as_text(report: Report) -> str:
    found = len(report.violations)
    lines = [str(one) for one in report.violations[:SAID_MAX]]
    if found > SAID_MAX:
        lines.append(f"and {found - SAID_MAX} more: --json says them all")
    lines.append(f"{report.events} events, {report.rows} rows in the end: {found} violations")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
