"""What a person sees of a run: progress on standard error, one table at the end."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import peers
from bench.report import HEADINGS, row_of
from bench.results import Lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from bench.record import Recorded
    from bench.results import Result

DRAW_S = 120
WIDTH = 140
STYLES = {True: "green", False: "red", None: ""}


class Terminal:
    """Is told of a run; keeps its results, and shows how far it is."""

    def __init__(self, console: Console, expected: Sequence[str], lines: Lines) -> None:
        self.results: list[Result] = []
        self._lines = lines
        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._bar = self._progress.add_task("", total=len(expected))

    def started(self, what: str) -> None:
        """Show what is being measured."""
        self._progress.update(self._bar, description=what)

    def found(self, result: Result) -> None:
        """Keep a result, write its lines, show it."""
        self.results.append(result)
        self._lines.write(result)
        name, value, spread, target, *_ = row_of(result, {})
        style = STYLES[result.met]
        self._progress.console.print(f"{name}  {value}  {spread}  {target}", style=style)
        self._progress.advance(self._bar)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def wide_console(*, stderr: bool) -> Console:
    """Return a console that is wide enough for the table if nobody says how wide it is."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH)


def table(results: Sequence[Result], recorded: dict[str, Recorded]) -> Table:
    """Return the one table of a run."""
    made = Table(title="onceq by the other, median of rounds")
    for heading in HEADINGS:
        made.add_column(heading, overflow="fold")
    for result in results:
        made.add_row(*row_of(result, recorded), style=STYLES[result.met])
    return made


def draw(folder: Path) -> str:
    """Draw the plots with the peers' Python; return what became of it, in words."""
    python = peers.python()
    python = peers.python()
    if python is None:
        return "no plots: the peers' environment is not there"
    command = [python, "-m", "bench.plots", str(folder / "report.json"), str(folder)]
    said = subprocess.run(
        command,
        cwd=folder.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=DRAW_S,
    )
    if said.returncode:
        return f"no plots: {said.stderr.strip().splitlines()[-1]}"
    return "plots: " + ", ".join(sorted(path.name for path in folder.glob("*.svg")))
