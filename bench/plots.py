"""Draws a report: `PYTHON -m bench.plots REPORT.json FOLDER`, with a Python that has matplotlib.

Run by the benchmark in the peers' environment, since onceq's own has no matplotlib. Imports
nothing of onceq.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

WIDTH_INCHES = 9.0
ROW_INCHES = 0.28
SIDE_INCHES = 1.2


def figure(rows: int) -> tuple[Any, Any, Any]:
    """Return the library, a figure and its axes, for so many rows."""
    importlib.import_module("matplotlib").use("svg")
    library = importlib.import_module("matplotlib.pyplot")
    made, axes = library.subplots(figsize=(WIDTH_INCHES, SIDE_INCHES + ROW_INCHES * rows))
    return library, made, axes


def ratios(results: list[dict[str, Any]], path: Path) -> None:
    """Draw every ratio, with its spread and its target."""
    shown = [one for one in results if one["kind"] == "ratio" and one["value"] is not None]
    if not shown:
        return
    library, made, axes = figure(len(shown))
    for place, one in enumerate(reversed(shown)):
        color = {True: "tab:green", False: "tab:red", None: "tab:gray"}[one["met"]]
        axes.barh(place, one["value"], color=color, height=0.6)
        axes.plot([min(one["rounds"]), max(one["rounds"])], [place, place], color="black", lw=1)
        if one.get("target") is not None:
            axes.plot([one["target"]] * 2, [place - 0.4, place + 0.4], color="black", lw=2)
    axes.set_yticks(range(len(shown)), [one["name"] for one in reversed(shown)])
    axes.set_xscale("log")
    axes.set_xlabel("our rate by the other's; the thick mark is the target, the line the rounds")
    axes.axvline(1.0, color="gray", lw=0.8)
    save(library, made, path)


def rates(sides: list[dict[str, Any]], folder: Path) -> None:
    """Draw for each question the median rates of all sides."""
    for number, question in enumerate(dict.fromkeys(side["question"] for side in sides)):
        found: dict[str, list[float]] = {}
        for side in sides:
            if side["question"] == question:
                found.setdefault(side["case"], []).append(side["median_per_s"])
        medians = sorted((sorted(rates)[len(rates) // 2], name) for name, rates in found.items())
        library, made, axes = figure(len(medians))
        axes.barh([name for _, name in medians], [rate for rate, _ in medians], height=0.6)
        axes.set_title(question)
        axes.set_xlabel("a second, the median of slices")
        save(library, made, folder / f"rates-{number:02}.svg")


def save(library: Any, made: Any, path: Path) -> None:
    """Write a figure and forget it."""
    made.tight_layout()
    made.savefig(path)
    library.close(made)


def main() -> None:
    """Draw the report that is named."""
    report, folder = Path(sys.argv[1]), Path(sys.argv[2])
    held = json.loads(report.read_text())
    ratios(held["results"], folder / "ratios.svg")
    rates(held["sides"], folder)


if __name__ == "__main__":
    main()
