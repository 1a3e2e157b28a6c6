"""How far every process of a run is, at a glance: counters in a file that all map.

Each participant has a row and is the only one that writes to it, whatever life it is in. The
conductor reads all, and only it writes whether it is time to end. Only for those who watch: the
history is what is judged.
"""

from __future__ import annotations

import enum
import mmap
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_CELL_BYTES: Final = 8
_ROWS_MAX: Final = 256


class Count(enum.IntEnum):
    """What is counted in a row."""

    ACKNOWLEDGED = 0
    REPLIES = 1
    DOUBTS = 2
    EXECUTED = 3
    POISONED = 4


class Board:
    """The counters of a run, in a file."""

    def __init__(self, path: Path) -> None:
        size = _CELL_BYTES * (1 + _ROWS_MAX * len(Count))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, size)
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._cells = memoryview(self._map).cast("q")

    def end(self) -> None:
        """Says that it is time to end."""
        self._cells[0] = 1

    @property
    def is_ending(self) -> bool:
        """Whether nothing new is to be sent."""
        return self._cells[0] != 0

    def add(self, row: int, count: Count, by: int = 1) -> None:
        """Counts, in one's own row."""
        self._cells[1 + row * len(Count) + count] += by

    def total(self, count: Count) -> int:
        """Returns a count over all rows."""
        return sum(self._cells[1 + count :: len(Count)].tolist())

    def of(self, row: int, count: Count) -> int:
        """Returns a count of one row."""
        return self._cells[1 + row * len(Count) + count]
