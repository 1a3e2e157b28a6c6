"""The oracle's answers about requests, wherever they are or were, and about servers.

Private to the oracle; the twin of `views.sql`.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onceq.model import admin_ops, ops
from onceq.model.admin_ops import ServerInfo
from onceq.model.element import (
    Attempt,
    ElementState,
    Lane,
    OldRequest,
    RequestOutcome,
    RequestState,
    Role,
    Whereabouts,
    attempts_of,
)
from onceq.model.queue import QueueKind
from proof.oracle.clients import own_rows
from proof.oracle.state import check_epoch, queue_of

if TYPE_CHECKING:
    from uuid import UUID

    from proof.oracle.rows import ElementRow, HistoryRow, Transaction
    from proof.oracle.state import State


def outstanding(state: State, tx: Transaction, op: ops.Outstanding) -> list[ops.OutstandingRequest]:
    """Answers Outstanding."""
    check_epoch(state, tx, op.who)
    rows = sorted(own_rows(state, tx, op.who.registrant_id), key=lambda row: row.send_no or 0)
    return [
        ops.OutstandingRequest(
            rid=row.rid, send_no=row.send_no or 0, replied=row.role == Role.REPLY, eid=row.eid
        )
        for row in rows
    ]


def count_outstanding(state: State, tx: Transaction, op: ops.CountOutstanding) -> int:
    """Answers CountOutstanding."""
    check_epoch(state, tx, op.who)
    return len(own_rows(state, tx, op.who.registrant_id))


def look_up(state: State, tx: Transaction, op: ops.LookUp) -> list[RequestState]:
    """Answers LookUp: every place where requests are or were, the latest first."""
    found = [
        row
        for row in requests(state, tx)
        if op.rid in {None, row.rid}
        and op.eid in {None, row.eid}
        and op.registrant in {None, row.registrant}
        and op.state in {None, row.state}
        and op.queue in {None, row.queue}
    ]
    found.sort(key=lambda row: row.state)
    found.sort(key=lambda row: row.finished_at or row.enqueued_at, reverse=True)
    return found[: op.limit]


def requests(state: State, tx: Transaction) -> list[RequestState]:
    """Returns a row for every place where a rid is (G4)."""
    live = [_live(state, tx, row) for row in state.elements.seen(tx)]
    return live + [_finished(state, tx, row) for row in state.history.seen(tx)]


def state_of(state: State, row: ElementRow) -> ElementState:
    """Returns the state in which an element is."""
    if row.lane == Lane.KEPT:
        return ElementState.KEPT
    if row.lane == Lane.HELD or row.role == Role.REPLY:
        return ElementState.HELD if row.lane == Lane.HELD else ElementState.REPLIED
    if row.claimed_by is not None:
        return ElementState.EXECUTING
    if row.lane == Lane.DUE and row.not_before is not None and row.not_before > state.now():
        return ElementState.WAITING
    return ElementState.SUSPECT if row.lane == Lane.SUSPECT else ElementState.QUEUED


def _place(repository: State, tx: Transaction, row: ElementRow, **others: Any) -> RequestState:
    who = repository.registrants.get(tx, row.registrant_id or 0)
    return RequestState(
        rid=row.rid,
        registrant=None if who is None else who.name,
        thread=None if who is None else who.thread,
        eid=row.eid,
        role=row.role,
        queue=queue_of(repository, tx, row.queue_id).name,
        aborts=row.aborts,
        enqueued_at=row.enqueued_at,
        correlation_id=row.correlation_id,
        **others,
    )


def _live(state: State, tx: Transaction, row: ElementRow) -> RequestState:
    running = [one for one in state.servers.seen(tx) if one.incarnation == row.claimed_by]
    return _place(
        state,
        tx,
        row,
        state=state_of(state, row),
        outcome=None if row.outcome is None else row.outcome.value,
        code=row.code,
        error=row.error,
        not_before=row.not_before,
        expires_at=row.expires_at,
        finished_at=None,
        server_host=running[0].host if running else None,
        server_pid=running[0].pid if running else None,
        body_bytes=len(row.body),
    )


def _finished(state: State, tx: Transaction, row: HistoryRow) -> RequestState:
    return _place(
        state,
        tx,
        row.element,
        state=ElementState.FINISHED,
        outcome=row.outcome.value,
        code=row.code,
        error=row.error,
        not_before=None,
        expires_at=None,
        finished_at=row.finished_at,
        server_host=None,
        server_pid=None,
        body_bytes=len(row.element.body) if row.kept else None,
    )


def find_requests(state: State, tx: Transaction, op: ops.FindRequests) -> list[OldRequest]:
    """Answers FindRequests."""
    found = [
        one
        for one in (_old(state, tx, row) for row in state.history.seen(tx))
        if op.rid in {None, one.rid}
        and op.registrant in {None, one.registrant}
        and op.queue in {None, one.queue}
        and op.outcome in {None, one.outcome.value}
        and (op.since is None or one.finished_at >= op.since)
        and (op.until is None or one.finished_at < op.until)
        and (op.after_at is None or (one.finished_at, one.eid) < (op.after_at, op.after_eid))
    ]
    found.sort(key=lambda one: (one.finished_at, one.eid), reverse=True)
    return found[: op.limit]


def _old(state: State, tx: Transaction, row: HistoryRow) -> OldRequest:
    element = row.element
    who = state.registrants.get(tx, element.registrant_id or 0)
    return OldRequest(
        rid=element.rid,
        registrant=None if who is None else who.name,
        thread=None if who is None else who.thread,
        eid=element.eid,
        queue=queue_of(state, tx, element.queue_id).name,
        role=element.role,
        outcome=row.outcome,
        aborts=element.aborts,
        code=row.code,
        error=row.error,
        enqueued_at=element.enqueued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        server=row.server,
        correlation_id=element.correlation_id,
        redriven_as=next(
            (str(new) for old, new in state.redriven.seen(tx) if old == element.eid), None
        ),
        body=element.body if row.kept else None,
        reply=row.reply if row.kept else None,
    )


def list_attempts(state: State, tx: Transaction, op: ops.ListAttempts) -> list[Attempt]:
    """Answers ListAttempts."""
    return [
        Attempt(
            ended_at=row.ended_at,
            charge=row.charge,
            code=row.code,
            error=row.error,
            server=row.server,
            host=row.host,
            pid=row.pid,
            traceback=row.traceback,
        )
        for row in state.attempts.seen(tx)
        if row.eid == op.eid
    ]


def where_is(state: State, tx: Transaction, op: ops.WhereIs) -> Whereabouts | None:
    """Answers WhereIs. When an execution began is never known here."""
    check_epoch(state, tx, op.who)
    own = [
        row
        for row in state.elements.seen(tx)
        if (row.registrant_id, row.rid) == (op.who.registrant_id, op.rid) and row.lane != Lane.KEPT
    ]
    ended = [
        row
        for row in state.history.seen(tx)
        if (row.element.registrant_id, row.element.rid) == (op.who.registrant_id, op.rid)
    ]
    request = [row for row in own if row.role == Role.REQUEST]
    if not request and not ended:
        return None
    found = _live(state, tx, request[0]) if request else _finished(state, tx, ended[-1])
    outcome = None if found.outcome is None else RequestOutcome(found.outcome)
    return Whereabouts(
        rid=op.rid,
        state=ElementState.REPLIED if own and not request else found.state,
        eid=found.eid,
        queue=found.queue,
        attempts=attempts_of(found.aborts, outcome),
        sent_at=found.enqueued_at,
        not_before=found.not_before,
        server_host=found.server_host,
        server_pid=found.server_pid,
        begun_at=None,
        finished_at=found.finished_at,
        outcome=outcome,
        code=found.code,
        error=found.error,
    )


def list_servers(state: State, tx: Transaction, op: admin_ops.ListServers) -> list[ServerInfo]:
    """Answers ListServers."""
    del op
    return [
        ServerInfo(
            slot=row.slot,
            incarnation=row.incarnation,
            process=row.process,
            host=row.host,
            pid=row.pid,
            backend_pid=row.backend,
            started_at=row.started_at,
            alive=row.slot in state.slots,
            claims=sum(one.claimed_by == row.incarnation for one in state.elements.seen(tx)),
        )
        for row in sorted(state.servers.seen(tx), key=lambda row: row.slot)
    ]


def identify(state: State, tx: Transaction, op: admin_ops.Identify) -> UUID:
    """Answers Identify."""
    del tx, op
    return state.repository_id


def rid_range(state: State, tx: Transaction, op: admin_ops.RidRange) -> tuple[str, str] | None:
    """Answers RidRange."""
    rows = [*state.elements.seen(tx), *(one.element for one in state.history.seen(tx))]
    used = [
        row.rid
        for row in rows
        if row.registrant_id == op.registrant_id and row.rid.startswith(op.prefix)
    ]
    return (min(used), max(used)) if used else None


def measure_rates(state: State, tx: Transaction, op: admin_ops.MeasureRates) -> admin_ops.Rates:
    """Answers MeasureRates."""
    now = state.now()
    queues = [
        one for one in state.queues.seen(tx) if one.kind is QueueKind.REQUEST and not one.destroyed
    ]
    ended = Counter(
        row.element.queue_id
        for row in state.history.seen(tx)
        if row.outcome is RequestOutcome.DONE
        and row.finished_at > now - timedelta(seconds=op.over_s)
    )
    done = {one.name: ended[one.queue_id] * 60 / op.over_s for one in queues}
    return admin_ops.Rates(at=now, per_minute=done)
