"""The page of the proof, made from a record and nothing else, so that a test can compare them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proof.judging import tally
from proof.part import Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proof.record import Record, Shown

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "maintainers"
README = ROOT / "README.md"
SCOREBOARD: Final = re.compile(r"^\| system, setting (?:.|\n)*?(?=\n\n|\n*\Z)", re.MULTILINE)
"""The table that the README shows as the page has it."""
COMMANDS = {
    Size.PROOF: "WRITE=1 make proof",
    Size.LONG: "SIZE=long WRITE=1 make proof",
}
HEAD = """\
# What the proof reached

This page is written by the proof itself, when `WRITE=1` is set; do not edit it. How the layers work
is in [reliability.md](reliability.md); [guarantees.md](../guarantees.md) says what they test.
"""


def path_of(size: Size) -> Path:
    """Return where the page of a run is: the long run has its own."""
    return DOCS / ("proof-long.md" if size is Size.LONG else "proof.md")


def text(record: Record) -> str:
    """Return the page."""
    return "\n".join(_blocks(record))


def write(record: Record) -> None:
    """Write the page, and its scoreboard into the README, which shows that of the proof's size."""
    made = text(record)
    path_of(record.size).write_text(made, encoding="utf-8")
    board = SCOREBOARD.search(made)
    if record.size is Size.PROOF and board is not None:
        readme = SCOREBOARD.sub(lambda _: board[0], README.read_text(encoding="utf-8"))
        README.write_text(readme, encoding="utf-8")


def _blocks(record: Record) -> Iterator[str]:
    yield HEAD
    yield _about(record)
    yield "## Goals\n"
    yield from _table(
        ("measure", "goal", "reached", "seconds", ""),
        (
            (r.what, f"{r.goal:,}", f"{r.reached:,}", f"{r.seconds:,.0f}", r.verdict)
            for r in record.judged.rows
        ),
    )
    yield "Several parts may add to one row; its seconds are those of all of them.\n"
    violations = sum(len(one.violations) for one in record.shown)
    yield f"**Violations: {violations}.**\n"
    yield from _wrong(record.judged.wrong)
    yield from _controls(record.shown)
    yield f"{tally(record.judged.rows)}.\n"
    if record.judged.not_run:
        yield f"Not run here: {', '.join(record.judged.not_run)}.\n"
    yield "## The parts\n"
    yield "Whether the sources of a part have changed is said as of the last that was recorded;"
    yield "`python -m proof --status` says it now.\n"
    for one in record.shown:
        yield from _section(one, is_older=one.name in record.older)


def _about(record: Record) -> str:
    dates = sorted({one.date for one in record.shown})
    seeds = sorted({one.seed for one in record.shown})
    work = sum(one.seconds for one in record.shown) / 60
    took = "several runs" if record.took_s is None else f"{record.took_s / 60:.0f} minutes"
    facts = {
        "command": f"`{COMMANDS[record.size]}`",
        "date": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "seed": ", ".join(map(str, seeds)),
        "size": record.size.value,
        "took": f"{took}; the parts one by one: {work:.0f} minutes",
        **_alike(record.shown),
    }
    return "\n".join(_table(("", ""), facts.items()))


def _alike(shown: Sequence[Shown]) -> dict[str, str]:
    """Return what all parts ran on alike; the rest is said for each."""
    first = shown[0].machine if shown else {}
    return {k: v for k, v in first.items() if all(one.machine.get(k) == v for one in shown)}


def _on(one: Shown) -> str:
    """Return what a part ran on."""
    if not one.machine:
        return "revision and machine not recorded"
    return ", ".join(f"{what} {value}" for what, value in one.machine.items())


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> Iterator[str]:
    cells = [list(head), *(list(line) for line in lines)]
    cells.insert(1, ["---"] * len(cells[0]))
    yield "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in cells) + "\n"


def _cell(content: str) -> str:
    return content.replace("|", "\\|").replace("\n", " ")


def _wrong(found: Sequence[str]) -> Iterator[str]:
    if found:
        yield "### What is wrong\n"
        yield "\n".join(f"- {_cell(one)}" for one in found) + "\n"


def _controls(shown: Sequence[Shown]) -> Iterator[str]:
    lines = [
        (
            one.name,
            c.what,
            f"{c.broke:,} of {c.of:,}",
            f"{c.least:.0%}" if c.least else "once",
            "yes" if c.is_met else "NO",
        )
        for one in shown
        for c in one.controls
    ]
    if lines:
        yield "## Controls\n\nWhat must fail, so that the trials are known to see anything.\n"
        yield from _table(("part", "control", "failed", "at least", "as it must"), lines)


def _section(one: Shown, *, is_older: bool) -> Iterator[str]:
    yield f"### {one.name}\n"
    yield f"{one.text.rstrip('.')}.\n"
    yield f"Seed {one.seed}, {one.date}, {one.seconds:,.0f} s; {_on(one)}.\n"
    if not one.digest:
        yield "Its sources were not recorded.\n"
    else:
        yield f"Sources {one.digest}{', **changed since**' if is_older else ''}.\n"
    if one.failure:
        yield "**It failed**: it came to no outcome.\n"
    if one.skipped:
        yield f"**Not tried here**: {one.skipped}\n"
    if one.measures:
        lines = ((m.what, f"{m.reached:,}", _goal(m.goal)) for m in one.measures)
        yield from _table(("measure", "reached", "of"), lines)
    if one.page:
        yield one.page.strip() + "\n"


def _goal(goal: int | None) -> str:
    return "" if goal is None else f"{goal:,}"
