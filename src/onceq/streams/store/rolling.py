"""The log file of a store's process: it grows until it is rolled, by size, by day or by hour.

A file is appended to, also by the next process. When it is to be rolled, the next message does it:
the file gets the name NAME_PID.DATE.SEQ, and the message begins another one. DATE is the day of
the last message in it, and SEQ counts from 1 on that day. Source: UM, "Persistent Store Daemon
Logging"; spec M35.
"""

from __future__ import annotations

import enum
import itertools
import logging
import logging.handlers
import os
import time
from pathlib import Path
from typing import Final

import msgspec


class Roll(enum.StrEnum):
    """How often a log file is rolled, by the local clock: after midnight, or after each hour."""

    DAILY = "daily"
    HOURLY = "hourly"


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process logs. size_bytes, roll: when it is rolled, whichever is first; None: never.

    size_bytes: a file with as much is rolled before the next message.
    """

    path: Path
    size_bytes: int | None = None
    roll: Roll | None = None


_PERIODS: Final = {Roll.DAILY: "%Y-%m-%d", Roll.HOURLY: "%Y-%m-%d %H %z"}


class RollingHandler(logging.handlers.BaseRotatingHandler):
    """A handler of `logging` that appends to a file, and rolls it. Raises OSError, as that does.

    The time is that of the messages.
    """

    def __init__(self, file: LogFile) -> None:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(file.path, "a", encoding="utf-8")
        self._size_bytes = file.size_bytes
        self._period = None if file.roll is None else _PERIODS[file.roll]
        self._before_s = self._last_s = file.path.stat().st_mtime

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - logging calls it so
        """See logging.handlers: whether the file is rolled before this message."""
        size = 0 if self.stream is None else os.fstat(self.stream.fileno()).st_size
        self._before_s, self._last_s = self._last_s, record.created
        if size == 0:
            return False
        is_large = self._size_bytes is not None and size >= self._size_bytes
        return is_large or self._is_over()

    def _is_over(self) -> bool:
        """Whether a day or an hour has passed between the last message and this one."""
        if self._period is None:
            return False
        before, now = time.localtime(self._before_s), time.localtime(self._last_s)
        return time.strftime(self._period, before) != time.strftime(self._period, now)

    def doRollover(self) -> None:  # noqa: N802 - logging calls it so
        """See logging.handlers: give the file its other name, and begin one anew."""
        if self.stream is not None:
            self.stream.close()
        day = time.strftime("%Y-%m-%d", time.localtime(self._before_s))
        names = (f"{self.baseFilename}_{os.getpid()}.{day}.{n}" for n in itertools.count(1))
        self.rotate(self.baseFilename, next(name for name in names if not Path(name).exists()))
        self.stream = self._open()
