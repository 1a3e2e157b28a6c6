"""The control of the method: numbers written one after the other, and what is left of them.

For this package only. One thread commits each number before it writes the next. Another commits
with `synchronous_commit` off, which PostgreSQL answers before the disk has it. All of the first's
must be there; of the second's a last part may be missing, and in most cuts is. If none ever were,
a cut would lose nothing, and the proof would prove nothing.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

_PAUSE_S = {"on": 0.004, "off": 0.0001}


def make_tables(conninfo: str) -> None:
    """Makes the tables of the witness."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for commit in _PAUSE_S:
            connection.execute(f"create table witness_{commit} (number integer)".encode())


class Witness:
    """Two threads that write, for the time of a block; what made one end is raised at its end."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._stop = threading.Event()
        self._acknowledged: dict[str, list[int]] = {commit: [] for commit in _PAUSE_S}
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(c,)) for c in _PAUSE_S]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self, commit: str) -> None:
        try:
            self._write(commit)
        except psycopg.Error as error:  # raised in __exit__
            self._error = error

    def _write(self, commit: str) -> None:
        acknowledged = self._acknowledged[commit]
        statement = f"insert into witness_{commit} values (%s)".encode()
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f"set synchronous_commit = {commit}".encode())
            while not self._stop.wait(_PAUSE_S[commit]):
                connection.execute(statement, [len(acknowledged)])
                acknowledged.append(time.monotonic_ns())

    def acknowledged(self, commit: str, before_ns: int) -> int:
        """Returns how many numbers had been answered for before then."""
        return sum(at < before_ns for at in self._acknowledged[commit])

    def missing(self, connection: psycopg.Connection[Any], before_ns: int) -> tuple[int, list[str]]:
        """Compares what is there; returns how many asynchronous ones are lost, and what is wrong.

        Wrong is a number missing before one that is there, or one that was acknowledged durably.
        """
        lost, wrong = 0, list[str]()
        for commit in _PAUSE_S:
            rows = connection.execute(f"select number from witness_{commit} order by 1".encode())
            numbers = [number for (number,) in rows]
            if numbers != list(range(len(numbers))):
                wrong.append(f"of the commits with synchronous_commit {commit} a middle is lost")
            gone = self.acknowledged(commit, before_ns) - len(numbers)
            if commit == "on" and gone > 0:
                wrong.append(f"the last {gone} of the witness's acknowledged commits are lost")
            elif commit == "off":
                lost = max(0, gone)
        return lost, wrong
