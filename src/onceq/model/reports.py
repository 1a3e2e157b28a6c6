"""Reports: what a sender asks to be told of its element, and what it is told (spec Q10). Pure.

A report is a datagram. Its body is a `Report` as JSON, so a queue of that type reads it.
"""

from __future__ import annotations

from datetime import datetime  # at run time too: msgspec reads the types
from typing import Any
from uuid import UUID

import msgspec

from onceq.errors import InvalidName, InvalidValue
from onceq.model import names
from onceq.model.element import RequestOutcome
from onceq.model.words import Word


class ReportEvent(Word):
    """What is reported of an element.

    ARRIVAL: it is in its queue. DELIVERY: it took effect: a handler finished it, or somebody
    dequeued it. EXPIRY: it expired before that. EXCEPTION: it failed, or was killed.
    """

    ARRIVAL = "arrival"
    DELIVERY = "delivery"
    EXPIRY = "expiry"
    EXCEPTION = "exception"


class Reports(msgspec.Struct, frozen=True):
    """Which reports a sender asks for, and the queue that they go to.

    Each event has one report, committed with it. Raises InvalidName; InvalidValue: no event.
    """

    to: str
    arrival: bool = False
    delivery: bool = False
    expiry: bool = False
    exception: bool = False

    def __post_init__(self) -> None:
        if names.RESERVED_QUEUE.fullmatch(names.check_queue(self.to)):
            raise InvalidName(
                f"{self.to!r} is a client's own reply queue, where only the replies to its "
                "requests come: name another queue for reports"
            )
        asked = [names.check_flag(one, getattr(self, one)) for one in ReportEvent]
        if not any(asked):
            raise InvalidValue(
                f"no report is asked for: say one or more of {', '.join(ReportEvent)}"
            )

    @property
    def events(self) -> list[str]:
        """The events that are reported."""
        return [one.value for one in ReportEvent if getattr(self, one)]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is reported: an event of an element, and which element it was.

    queue: where it was; client, thread: who sent it, None for a datagram. outcome: None: it has
    arrived. code, error: why it failed, was killed or expired. at: when, by the database's clock.
    """

    event: ReportEvent
    queue: str
    eid: UUID
    rid: str
    message_id: str
    client: str | None
    thread: str | None
    outcome: RequestOutcome | None
    code: str | None
    error: str | None
    at: datetime


def stored(reports: object) -> dict[str, Any]:
    """Returns what is kept of the reports that a program asks for. InvalidValue."""
    if not isinstance(reports, Reports):
        raise InvalidValue(f"reports is onceq.Reports(...), not {names.shown(reports)}")
    return {"to": reports.to, "on": reports.events}
