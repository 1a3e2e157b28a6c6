"""`python -m onceq.streams.history FILES... [--json]`: checks what was recorded of streams.

FILES: files of events, or folders of them (*.events). Exit code 0: no rule is broken; 1: some are;
2: the files cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from onceq.history.__main__ import SAID_MAX
from onceq.streams.history.checker import Report, check_files
from onceq.streams.history.rules import RULES


def main(arguments: list[str] | None = None) -> int:
    """Check files; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m onceq.streams.history",
        description="Checks recorded events of streams against the guarantee G11.",
    )
    parser.add_argument("files", type=Path, nargs="+", help="files of events, or their folders")
    parser.add_argument("--json", action="store_true", help="say it as one JSON object")
    chosen = parser.parse_args(arguments)
    try:
        report = check_files(chosen.files)
    except (OSError, msgspec.DecodeError) as error:
        where = "".join(f" {note}" for note in getattr(error, "__notes__", []))
        sys.stderr.write(f"{error}{where}\n")
        return 2
    sys.stdout.write(_as_json(report) if chosen.json else _as_text(report))
    return int(bool(report.violations))


def _as_json(report: Report) -> str:
    return msgspec.json.encode(report).decode() + "\n"


def _as_text(report: Report) -> str:
    found = len(report.violations)
    lines = [str(one) for one in report.violations[:SAID_MAX]]
    if found > SAID_MAX:
        lines.append(f"and {found - SAID_MAX} more: --json says them all")
    broken = [RULES[name] for name in dict.fromkeys(one.rule for one in report.violations)]
    lines += [f"{rule.name}: {rule.text} ({rule.of})" for rule in broken]
    seen = f"{report.sent} numbers sent, {report.stable} stable, {report.delivered} shown"
    lines.append(f"{report.events} events of {report.streams} streams: {seen}")
    lines.append(f"{found} violations")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
