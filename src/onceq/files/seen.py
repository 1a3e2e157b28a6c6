"""The rids of a file, each with the first row that has it; on disk, as memory may be too small.

Used by `submit` if a column names the rows. A temporary SQLite database of this process alone: it
has no name, and nothing of it outlives a run.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Sequence
from typing import Final

CACHE_KIB: Final = 16_384


class SeenRids:
    """The rids in the rows so far. OSError: there is no room for them."""

    def __init__(self) -> None:
        with _room():
            self._database = sqlite3.connect("", isolation_level=None)
            for text in ("journal_mode = off", "synchronous = off", f"cache_size = -{CACHE_KIB}"):
                self._database.execute(f"pragma {text}")
            self._database.execute(
                "create table seen (rid text primary key, row int) without rowid"
            )

    def add(self, rows: Sequence[tuple[str, int]]) -> dict[int, int]:
        """Adds (rid, number) of rows; for those whose rid came before, returns the first row."""
        if not rows:
            return {}
        before = self._database.total_changes
        with _room():
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


@contextlib.contextmanager
def _room() -> Generator[None]:
    """A block in which SQLite needs room in its directory for temporary files."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(
            f"the rids seen so far cannot be kept ({error}): make room where SQLite has its "
            "temporary files, or name another directory by SQLITE_TMPDIR, and run again: what was "
            "sent stays sent"
        ) from error
