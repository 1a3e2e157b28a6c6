"""What the oracle reports of elements (Q10); the twin of `report.sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onceq.errors import InvalidValue, QueueNotEmpty
from onceq.model.attributes import MESSAGE_ID, REPORT, REPORTS
from onceq.model.code_pages import JSON
from onceq.model.element import Lane, RequestOutcome, Role
from onceq.model.reports import Report, ReportEvent
from proof.oracle.rows import ElementRow, Failure, QueueRow, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proof.oracle.state import State

EVENTS: Mapping[RequestOutcome | None, ReportEvent] = {
    None: ReportEvent.ARRIVAL,
    RequestOutcome.DONE: ReportEvent.DELIVERY,
    RequestOutcome.DEQUEUED: ReportEvent.DELIVERY,
    RequestOutcome.EXPIRED: ReportEvent.EXPIRY,
    RequestOutcome.FAILED: ReportEvent.EXCEPTION,
    RequestOutcome.CANCELLED: ReportEvent.EXCEPTION,
}
NO_FAILURE = Failure(None, None)


def _asked(element: ElementRow) -> Mapping[str, Any]:
    asked: Mapping[str, Any] = (element.properties or {}).get(REPORTS, {"to": None, "on": []})
    return asked


def ask(
    state: State, tx: Transaction, element: ElementRow, opened: Callable[[str], QueueRow]
) -> None:
    """Checks what was asked for with a new element, and reports its arrival."""
    to = _asked(element)["to"]
    if to is None:
        return
    if opened(to).queue_id == element.queue_id:
        raise InvalidValue(f"reports about elements of queue {to!r} cannot go into it")
    report(state, tx, element, None)


def report(
    state: State,
    tx: Transaction,
    element: ElementRow,
    outcome: RequestOutcome | None,
    *,
    failure: Failure = NO_FAILURE,
) -> None:
    """Reports an event of an element, if its sender has asked for that."""
    event = EVENTS[outcome]
    if event not in _asked(element)["on"]:
        return
    to = _asked(element)["to"]
    (home,) = (one for one in state.queues.seen(tx) if one.name == to and not one.destroyed)
    of = state.queues.get(tx, element.queue_id)
    who = state.registrants.get(tx, element.registrant_id or 0)
    called = (element.properties or {}).get(MESSAGE_ID, str(element.eid))
    said = Report(
        event=event,
        queue="" if of is None else of.name,
        eid=element.eid,
        rid=element.rid,
        message_id=called,
        client=None if who is None else who.name,
        thread=None if who is None else who.thread,
        outcome=outcome,
        code=failure.code,
        error=failure.error,
        at=state.now(),
    )
    seq, eid = state.elements.new_key(), state.new_eid()
    row = ElementRow(
        seq=seq,
        eid=eid,
        rid=str(eid),
        body=msgspec.json.encode(said),
        role=Role.DATAGRAM,
        queue_id=home.queue_id,
        lane=Lane.USUAL,
        enqueued_at=state.now(),
        correlation_id=called,
        content_type=JSON,
        properties={REPORT: event.value},
        life=None if home.settings.durable else state.current_life(tx),
    )
    state.elements.put(tx, seq, row)


def refuse_awaited(state: State, tx: Transaction, name: str) -> None:
    """Refuses to destroy a queue to which reports may yet come."""
    if any(_asked(one)["to"] == name for one in state.elements.seen(tx)):
        raise QueueNotEmpty(f"queue {name!r} awaits reports")
