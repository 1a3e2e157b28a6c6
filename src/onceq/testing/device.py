"""A testable device (spec C8): a printer of lines whose state tells whether a reply was processed.

Used by the clients of the crash tests and of torture, which put its state into the checkpoint of
each receive. One process at a time; each line is printed whole, or not at all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Device:
    """A printer of lines, into a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def state(self) -> bytes:
        """Returns what has been printed so far, as its size."""
        return str(os.fstat(self._file).st_size).encode()

    def output(self, line: str) -> None:
        """Prints a line, which has no line break."""
        os.write(self._file, f"{line}\n".encode())

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)
