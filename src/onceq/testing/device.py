"""Testable devices (spec C8): printers whose state tells whether a reply was processed.

`Device` prints into a file, and outlives its process: for the clients of the crash tests and of
torture. `FakePrinter` prints in memory: for tests of programs that process replies. For one process
at a time; output is printed completely, or not at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceq.clerk import Reply


class Device:
    """A printer of lines, into a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def state(self) -> bytes:
        """Returns what has been printed so far, as its size."""
        return str(os.fstat(self._file).st_size).encode()

    def output(self, line: str) -> None:
        """Prints a line, which has no line break."""
        os.write(self._file, f"{line}\n".encode())

    def lines(self) -> list[str]:
        """Returns what has been printed."""
        return self._path.read_text(encoding="utf-8").splitlines()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


class Jam(Exception):
    """A FakePrinter that was told to jam has jammed."""


@dataclass
class FakePrinter:
    """A printer of numbered tickets. tickets: the rids on its paper, by their numbers, from 1 on.

    jams_before, jams_after: at how many more outputs it raises Jam, before or after printing.
    """

    tickets: dict[int, str] = field(default_factory=dict[int, str])
    number: int = 1
    jams_before: int = 0
    jams_after: int = 0

    def state(self) -> bytes:
        """Returns the number of the next ticket, which grows with each output."""
        return str(self.number).encode()

    def output(self, reply: Reply[Any]) -> None:
        """Prints a ticket with the reply's rid. Jam."""
        if self.jams_before > 0:
            self.jams_before -= 1
            raise Jam(f"before ticket {self.number}")
        self.tickets[self.number] = reply.rid
        self.number += 1
        if self.jams_after > 0:
            self.jams_after -= 1
            raise Jam(f"after ticket {self.number - 1}")

    def has_printed(self, reply: Reply[Any]) -> bool:
        """Returns whether there is a ticket with the reply's rid: what a person sees."""
        return reply.rid in self.tickets.values()

    def take_back(self, reply: Reply[Any]) -> None:
        """Takes back the tickets with the reply's rid, if there are any."""
        for number in [number for number, rid in self.tickets.items() if rid == reply.rid]:
            del self.tickets[number]

    @property
    def printed(self) -> list[str]:
        """The rids on the paper, in the order of their numbers."""
        return [self.tickets[number] for number in sorted(self.tickets)]
