"""What a person sees on stderr while it runs: phases with their seconds, bars, kills.

Used by the runner. On a terminal the bars move; elsewhere a line every few seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from typing import TYPE_CHECKING, Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rich.console import Console

LINE_EVERY_S = 5.0


class Display:
    """The display of one run; it also keeps the seconds of each phase and since the start."""

    def __init__(self, console: Console) -> None:
        self.phases_s: dict[str, float] = {}
        self._console = console
        self._began = time.monotonic()
        self._began_at = dt.datetime.now(dt.UTC)
        self._bars: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._next_line = 0.0

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    def moment(self, seconds: float) -> dt.datetime:
        """The time that many seconds after the run began."""
        return self._began_at + dt.timedelta(seconds=seconds)

    def note(self, text: str) -> None:
        """Prints a line above the bars."""
        self._console.print(
            f"{self.seconds:6.1f} s  {escape(text)}", highlight=False, soft_wrap=True
        )

    @contextlib.contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Names what is done in the block, and prints at its end how long it took."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = time.monotonic() - began
            self.note(f"{name}: {self.phases_s[name]:.1f} s")

    @contextlib.contextmanager
    def bars(self, totals: Mapping[str, int]) -> Generator[Self]:
        """Shows a bar for each name for the time of the block."""
        columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn())
        with contextlib.ExitStack() as undo:
            if self._console.is_terminal:
                self._bars = undo.enter_context(Progress(*columns, console=self._console))
                for name, total in totals.items():
                    self._rows[name] = self._bars.add_task(name, total=total)
            yield self

    def show(self, **counts: int) -> None:
        """Moves the bars."""
        if self._bars is not None:
            for name, count in counts.items():
                self._bars.update(self._rows[name], completed=count)
        elif self.seconds >= self._next_line:
            self._next_line = self.seconds + LINE_EVERY_S
            self.note(", ".join(f"{name} {count:,}" for name, count in counts.items()))
