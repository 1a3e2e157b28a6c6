"""How the command line's processes log: text for people, or JSON, one object on each line.

Used by `onceq serve`, its children, `onceq spark serve` and `onceq store run`. In your own
programs, logging is yours: the events of `onceq.telemetry` go wherever you send them.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from onceq.telemetry import clean

VERSION: Final = 1
"""The version of the lines in JSON."""
CHATTY: Final = "py4j"
TEXT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    """How a process of the command line writes its log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class JsonLines(logging.Formatter):
    """One JSON object on each line, also for what other loggers say; its first key is "v"."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        content: dict[str, Any] = {
            "v": VERSION,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
        }
        event: dict[str, Any] | None = getattr(record, "onceq", None)
        content |= {"message": clean(record.getMessage())} if event is None else event
        if record.exc_info:
            content["traceback"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(content).decode()


def write_log(form: LogFormat, level: LogLevel, to: logging.Handler | None = None) -> None:
    """Makes the whole process log, to standard error by default, unless that was already set up."""
    handler = logging.StreamHandler(sys.stderr) if to is None else to
    formatter = JsonLines() if form is LogFormat.JSON else logging.Formatter(TEXT)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.value.upper(), handlers=[handler])
    if level is LogLevel.INFO:  # sockets of Spark's bridge to Java are not events
        logging.getLogger(CHATTY).setLevel(logging.WARNING)
