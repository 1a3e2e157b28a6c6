"""What a person sees of a run: how far each part is, on standard error; one table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from proof.judging import IN_PART, MET, MISSED, NOT_TRIED, tally

if TYPE_CHECKING:
    from typing import Self

    from rich.progress import TaskID

    from proof.part import Part
    from proof.record import Judged
    from proof.running import Result, Running

WIDTH = 120
STYLES = {MET: "green", MISSED: "bold red", NOT_TRIED: "yellow", IN_PART: "yellow"}


def console() -> Console:
    """Return standard error, wide enough for the table if nobody says how wide it is."""
    made = Console(stderr=True, highlight=False)
    return made if made.is_terminal else Console(stderr=True, highlight=False, width=WIDTH)


class Terminal:
    """Is told of a run; shows a bar for each running part, and a line for each that has ended."""

    def __init__(self, to: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[name]:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=to,
            transient=True,
        )
        self._bars: dict[str, TaskID] = {}

    def began(self, part: Part) -> None:
        """Show a part that has been started."""
        self._bars[part.name] = self._progress.add_task("starts", name=part.name, total=None)
        self._progress.console.print(f"{part.name}: {part.text}", markup=False)

    def went_on(self, running: Running) -> None:
        """Show how far a part is."""
        said = running.said
        self._progress.update(
            self._bars[running.part.name],
            description=said.text,
            completed=said.done,
            total=said.of or None,
        )

    def ended(self, result: Result) -> None:
        """Show what became of a part; everything that is wrong is repeated at the end."""
        self._progress.remove_task(self._bars.pop(result.part.name))
        word, style = _word(result)
        self._progress.console.print(
            f"{result.part.name}: {word} after {result.seconds:.1f} s", style=style, markup=False
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _word(result: Result) -> tuple[str, str]:
    outcome = result.outcome
    if outcome is None:
        return "FAILED", "bold red"
    if outcome.skipped:
        return f"not tried ({outcome.skipped})", "yellow"
    if outcome.violations:
        return f"{len(outcome.violations)} VIOLATIONS", "bold red"
    stated = ", ".join(f"{m.what} {m.reached:,}" for m in outcome.measures)
    return f"done: {stated}", "green"


def show_end(to: Console, judged: Judged, about: str) -> None:
    """Print the table of goals, everything that is wrong, and the verdict."""
    made = Table(title=about)
    for heading in ("measure", "goal", "reached", "seconds", ""):
        made.add_column(heading, justify="left" if heading in {"measure", ""} else "right")
    for row in judged.rows:
        numbers = (f"{row.goal:,}", f"{row.reached:,}", f"{row.seconds:,.0f}")
        made.add_row(row.what, *numbers, row.verdict, style=STYLES.get(row.verdict))
    to.print(made)
    for one in judged.wrong:
        to.print(one, style="red", markup=False)
    said = f"FAILED: {len(judged.wrong)} wrong" if judged.wrong else "nothing lost, nothing twice"
    to.print(f"proof: {said}; {tally(judged.rows)}", soft_wrap=True)
