"""The rids of a file, each with the first row that has it; on disk, as memory may be too small.

Used by `submit` if a column names the rows. A temporary SQLite database of this process alone: it
has no name, and nothing of it outlives a run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

CACHE_KIB: Final = 16_384


class SeenRids:
    """The rids in the rows so far. Raises sqlite3.Error, such as when the disk is full."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for setting in ("journal_mode = off", "synchronous = off", f"cache_size = -{CACHE_KIB}"):
            self._database.execute(f"pragma {setting}")
        self._database.execute("create table seen (rid text primary key, row int) without rowid")

    def add(self, rows: Sequence[tuple[str, int]]) -> dict[int, int]:
        """Adds (rid, number) of rows; for those whose rid came before, returns the first row."""
        if not rows:
            return {}
        before = self._database.total_changes
        self._database.execute("begin")
        self._database.executemany("insert or ignore into seen values (?, ?)", rows)
        self._database.execute("commit")
        if self._database.total_changes - before == len(rows):
            return {}
        return {number: first for rid, number in rows if (first := self._first(rid)) != number}

    def _first(self, rid: str) -> int:
        (number,) = self._database.execute("select row from seen where rid = ?", [rid]).fetchone()
        return int(number)

    def close(self) -> None:
        """Removes it."""
        self._database.close()
