"""How the command line's processes write their log: text for people, or JSON, one object a line.

Used by `onceq serve`, its children, and `onceq spark serve`. In a program of your own logging is
yours: the events of `onceq.telemetry` go wherever you send them.
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
"""Of the lines in JSON."""
CHATTY: Final = "py4j"
TEXT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    """How `onceq serve` writes its log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class JsonLines(logging.Formatter):
    """One JSON object a line, also for what others log; its first key is "v"."""

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


def write_log(form: LogFormat, level: LogLevel) -> None:
    """Has the whole process log to standard error, unless something else was set up before."""
    to_stderr = logging.StreamHandler(sys.stderr)
    formatter = JsonLines() if form is LogFormat.JSON else logging.Formatter(TEXT)
    to_stderr.setFormatter(formatter)
    logging.basicConfig(level=level.value.upper(), handlers=[to_stderr])
    if level is LogLevel.INFO:  # that Spark's bridge to Java opens and closes sockets is no event
        logging.getLogger(CHATTY).setLevel(logging.WARNING)
