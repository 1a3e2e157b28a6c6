"""The clock of a repository, for tests to move, so that they need not wait for a time to come.

Used by the pytest plugin. Everything in a repository that depends on time asks one SQL
function, `now`; here it is told to run ahead of the database's clock. Times in Python are not
moved: they only bound waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self

from onceq.engine.perform.driver import connect
from onceq.errors import InvalidValue

CLOCK = "clock_timestamp()"


class Clock:
    """The clock of a repository, as a `with` block: at its end it is the database's again.

    All sessions see it at once, including those of other processes.
    """

    def __init__(self, conninfo: str, repository: str) -> None:
        self._connection = connect(conninfo)
        self._repository = repository
        self._text = str(self._one("select pg_get_functiondef(%s::regproc)", f"{repository}.now"))
        if f"{CLOCK} +" in self._text:
            self._connection.close()
            raise InvalidValue(f"the clock of {repository} is moved already: use one at a time")
        self._moved = timedelta()

    def now(self) -> datetime:
        """Returns the repository's time."""
        found: datetime = self._one(f"select {self._repository}.now()")
        return found

    def advance(self, by: float | timedelta) -> datetime:
        """Moves the clock on, by seconds or a timedelta, and returns the new time.

        Raises InvalidValue for a negative step: a clock that goes back is another matter.
        """
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta():
            raise InvalidValue(f"a clock is moved on, not back: {by}")
        self._moved += step
        self._set(f"({CLOCK} + interval '{self._moved // timedelta(microseconds=1)} microseconds')")
        return self.now()

    def _set(self, expression: str) -> None:
        self._connection.execute(self._text.replace(CLOCK, expression).encode())

    def _one(self, query: str, *parameters: Any) -> Any:
        row = self._connection.execute(query.encode(), parameters or None).fetchone()
        return None if row is None else row[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._set(CLOCK)
        self._connection.close()
