"""What commands print: answers on standard output, hints and errors on standard error.

With --json an answer is one object, or JSON Lines; the first key of each is `"v": 1`.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from onceq.errors import OnceqError, Outcome

JSON_VERSION: Final = 1
PIPE_WIDTH: Final = 10_000
"""Width, in characters, of a table that goes into a pipe or a file: nothing is cut."""
PROSE: Final = {"error", "found", "advice", "text"}
"""Columns that hold sentences, which may be folded."""
PROSE_WIDTH_MIN: Final = 30
GAP: Final = 2
UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's answers go. as_json: they are for programs."""

    as_json: bool

    def item(self, values: Mapping[str, Any]) -> None:
        """Prints one object: as JSON, or as `name: value` lines."""
        if self.as_json:
            self.line(values)
            return
        width = max(len(name) for name in values)
        for name, value in values.items():
            print(f"{name:<{width}}  {plain(value)}")

    def either(self, values: Mapping[str, Any], shown: Mapping[str, Any] | str) -> None:
        """Prints one object for programs, or what is shown to people: a text, or like `item`."""
        if self.as_json:
            self.line(values)
        elif isinstance(shown, str):
            self.text(shown)
        else:
            self.item(shown)

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Prints a table with these columns; as JSON Lines, everything that the rows have."""
        if self.as_json:
            for row in rows:
                self.line(row)
            return
        cells = [[_cell(name, row.get(name)) for name in columns] for row in rows]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name, no_wrap=name not in PROSE, overflow="fold")
        for line in cells:
            table.add_row(*line)
        width = _width(columns, cells) if is_terminal() else PIPE_WIDTH
        Console(width=width, markup=False, highlight=False, emoji=False).print(table)

    def line(self, values: Mapping[str, Any]) -> None:
        """Prints one object as a line of JSON."""
        text = msgspec.json.encode({"v": JSON_VERSION, **values})
        print(text.decode(), flush=True)

    def event(self, name: str, text: str, **fields: Any) -> None:
        """Says on standard error that something happened; programs get it as an object, too."""
        if self.as_json:
            self.line({"event": name, **fields})
        hint(text)

    def text(self, text: str) -> None:
        """Prints a text that is itself the data."""
        print(text, flush=True)

    def failure(self, error: BaseException, code: int) -> None:
        """Says on standard error what went wrong, where, and what to do next."""
        kind = type(error).__name__
        outcome = error.outcome if isinstance(error, OnceqError) else Outcome.UNKNOWN
        if self.as_json:
            known = {"error": kind, "text": str(error), "outcome": outcome.value}
            encoded = msgspec.json.encode({"v": JSON_VERSION, **known, "exit_code": code})
            print(encoded.decode(), file=sys.stderr)
            return
        known_kind = "" if isinstance(error, OnceqError) else f"{kind}: "
        print(f"onceq: {known_kind}{error}", file=sys.stderr)
        if isinstance(error, OnceqError) and outcome is Outcome.UNKNOWN:
            print(
                "onceq: whether it took effect is unknown: look before trying again",
                file=sys.stderr,
            )


def is_terminal() -> bool:
    """Whether answers go to a terminal, as the system or TTY_COMPATIBLE says (1: yes, 0: no)."""
    said = os.environ.get("TTY_COMPATIBLE", "")
    return {"0": False, "1": True}.get(said, sys.stdout.isatty())


def _cell(name: str, value: object) -> str:
    """Returns a value as a table shows it; sentences lose their line breaks."""
    return " ".join(plain(value).split()) if name in PROSE else plain(value)


def _width(columns: Sequence[str], cells: list[list[str]]) -> int:
    """Returns how wide a table is printed on a terminal: only prose is folded into its column.

    If ids, names and times do not fit, the terminal folds the line: nobody can copy half an eid,
    or half a path inside a sentence.
    """
    needed = GAP * (len(columns) - 1)
    for at, name in enumerate(columns):
        found = [line[at] for line in cells]
        if name in PROSE:
            words = [len(word) for text in found for word in text.split()]
            needed += max([PROSE_WIDTH_MIN, *words])
        else:
            needed += max(len(text) for text in (name, *found))
    return max(Console().width, needed)


def duration(seconds: float) -> str:
    """Returns a length of time as a person reads it, in its largest unit."""
    unit, name = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{seconds / unit:.1f} {name}"


def hint(text: str) -> None:
    """Tells a person something, on standard error."""
    print(text, file=sys.stderr, flush=True)


def plain(value: object) -> str:
    """Returns a value as a person reads it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return _readable(value)
        case datetime():
            return value.astimezone().isoformat(sep=" ", timespec="milliseconds")
        case _:
            return str(value)


def _readable(value: bytes) -> str:
    """Returns bytes as text if they are text, otherwise as base64."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not value):
        return text
    return f"{len(value)} bytes, base64: {base64.b64encode(value).decode()}"
