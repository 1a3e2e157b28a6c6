"""The lines of the log: nothing that an event says can pass for another line."""

from __future__ import annotations

import logging
import uuid
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from onceq import telemetry
from onceq.server.log_lines import JsonLines
from tests.events import decoded

HOSTILE = "a b\n2026-01-01 00:00:00,000 1 INFO fake\r\u2028\x1b[31m\ud800"
log = logging.getLogger(__name__)
EID = uuid.UUID(int=7)


def aborted(**changed: Any) -> telemetry.Aborted:
    known: dict[str, Any] = {
        "queue": "orders",
        "rid": "o-1",
        "eid": EID,
        "attempt": 1,
        "code": "KeyError",
        "charge": "charge",
        "fate": "failed",
        "traceback": None,
    }
    return telemetry.Aborted(**(known | changed))


def record(event: telemetry.Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """Returns an event as it reaches a handler of the log."""
    caplog.set_level(logging.INFO, __name__)
    telemetry.tell(log, event)
    return caplog.records[-1]


def test_what_is_hostile_stays_in_its_line() -> None:
    line = telemetry.line_of(aborted(rid=HOSTILE, code=HOSTILE))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    line.encode()


def test_a_traceback_is_indented_and_cannot_pass_for_a_line() -> None:
    head, *rest = telemetry.line_of(aborted(traceback=f"Traceback:\n{HOSTILE}\n")).splitlines()
    assert head.startswith("aborted queue=orders rid=o-1")
    assert len(rest) == 3
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest)


def test_json_is_one_object_a_line_whatever_is_said(caplog: pytest.LogCaptureFixture) -> None:
    line = JsonLines().format(record(aborted(rid=HOSTILE, traceback=HOSTILE), caplog))
    assert "\n" not in line
    content = decoded(line)
    assert (content["event"], content["level"], content["eid"]) == ("aborted", "warning", str(EID))
    assert content["rid"].startswith("a b\n2026")


def test_what_others_log_is_json_too() -> None:
    exc_info = (KeyError, KeyError("theirs"), None)
    theirs = logging.LogRecord("app", logging.ERROR, "app.py", 1, "it is %s", ("so",), exc_info)
    content = decoded(JsonLines().format(theirs))
    assert (content["message"], content["logger"]) == ("it is so", "app")
    assert content["traceback"].endswith("KeyError: 'theirs'")
    assert "event" not in content


def test_what_is_not_known_is_left_out() -> None:
    event = telemetry.Reconnected(incarnation=None, losses=2, away_s=0.5)
    assert telemetry.line_of(event) == "reconnected losses=2 away_s=0.5"
    assert telemetry.content_of(event) == {"event": "reconnected", "losses": 2, "away_s": 0.5}


def test_an_event_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        aborted().rid = "other"  # type: ignore[misc] # that is the point


def test_what_is_below_the_level_costs_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def line_of(_: telemetry.Event) -> str:
        raise AssertionError("a line was made")

    monkeypatch.setattr(telemetry, "line_of", line_of)
    monkeypatch.setattr(log, "level", logging.ERROR)
    telemetry.tell(log, aborted())
