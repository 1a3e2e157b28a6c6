"""What onceq logs, as tests see it: the events of this process, and those of others' lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq.telemetry import Event
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

emits = pytest.mark.emits.with_args
"""Marks a test that fails unless these kinds of events are logged; it has the fixture `events`."""
ENVELOPE = ("v", "time", "level", "logger", "pid")
"""With what each line in JSON begins."""


class Events(logging.Handler):
    """All events that were logged while it listens, as dicts. lines: as people see them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.all: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Takes note of a record; nothing of onceq logs what is no event."""
        content: dict[str, Any] = record.__dict__["onceq"]
        self.all.append(content)
        self.lines.append(record.getMessage())

    def read(self, lines: Iterable[str]) -> None:
        """Takes note of the events in another process's log, in JSON."""
        self.all += [one for one in map(decoded, lines) if "event" in one]

    def of(self, kind: type[Event]) -> list[dict[str, Any]]:
        """Returns the events of a kind, without their name."""
        found = [dict(one) for one in self.all if one["event"] == kind.name()]
        for one in found:
            del one["event"]
        return found

    def wait_for(self, kind: type[Event], **known: Any) -> dict[str, Any]:
        """Waits for an event of a kind with these fields; returns the first."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.of(kind) if known.items() <= one.items()]

        wait_until(lambda: bool(found()))
        return found()[0]


def decoded(line: str) -> dict[str, Any]:
    """Returns a line of a log in JSON, which must be one object with our envelope."""
    content = msgspec.json.decode(line, type=dict[str, Any])
    assert tuple(content)[: len(ENVELOPE)] == ENVELOPE, line
    assert content["v"] == 1
    return content


def kinds(parent: type[Event] = Event) -> list[type[Event]]:
    """Returns every kind of event; a private one is only the base of others."""
    found = [one for child in parent.__subclasses__() for one in (child, *kinds(child))]
    return [one for one in found if not one.__name__.startswith("_")]
