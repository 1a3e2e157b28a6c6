"""How rows are read: which columns they have, and what each holds.

Private to the binding.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from onceq.engine.cursors import Unreadable
from onceq.model import admin_ops, ops
from onceq.model.element import (
    Attempt,
    Charge,
    Element,
    OldRequest,
    RequestOutcome,
    RequestState,
    Whereabouts,
    attempts_of,
)
from onceq.model.queue import QueueInfo, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[Any, ...]

ELEMENT_COLUMNS = (
    "seq, eid, rid, body, role::text, queue_id, lane, priority, aborts, enqueued_at,"
    " reply_queue_id is not null, outcome::text, registrant_id, send_no, correlation_id,"
    " content_type, properties, not_before, expires_at, code, error"
)
QUEUE_COLUMNS = (
    "queue_id, name, kind, abort_limit, backoff_ms, backoff_max_ms, execution_limit_s,"
    " body_bytes_max, tag_bytes_max, durable, keep_body, error_queue, enqueue_started,"
    " dequeue_started, ready, claimed, waiting, suspect, held, created_at, oldest_at, retry_limit"
)

OLD_REQUEST_COLUMNS = (
    "rid, registrant, thread, eid, queue, role, outcome, aborts, code, error, enqueued_at,"
    " started_at, finished_at, server, correlation_id, redriven_as, body, reply"
)

ATTEMPT_COLUMNS = "ended_at, charge, code, error, server, host, pid, traceback"

TAKEN_OVER_COLUMNS = (
    "incarnation, process, host, pid, spark_server, returned, suspects, charged, aborted"
)

REQUEST_COLUMNS = (
    "rid, registrant, thread, eid, state, role, outcome, queue, aborts, code, error,"
    " enqueued_at, not_before, expires_at, finished_at, server_host, server_pid,"
    " correlation_id, body_bytes"
)

CLIENT_COLUMNS = (
    "name, thread, state, epoch, s_rid, s_state, r_rid, requests, replies, kept, waits,"
    " created_at, connected_at, sent_at, received_at"
)

FORGOTTEN_COLUMNS = "thread, epoch, s_rid, r_rid, cancelled, replies, kept, registrations"

SERVER_COLUMNS = "slot, incarnation, process, host, pid, backend_pid, started_at, alive, claims"


def element(row: Row) -> Element:
    """Returns the element in a row of ELEMENT_COLUMNS."""
    return Element(
        seq=row[0],
        eid=row[1],
        rid=row[2],
        body=row[3],
        role=row[4],
        queue_id=row[5],
        lane=row[6],
        priority=row[7],
        aborts=row[8],
        enqueued_at=row[9],
        owes_reply=row[10],
        outcome=None if row[11] is None else RequestOutcome(row[11]),
        registrant_id=row[12],
        send_no=row[13],
        correlation_id=row[14],
        content_type=row[15],
        properties=None if isinstance(row[16], Unreadable) else row[16],
        not_before=row[17],
        expires_at=row[18],
        code=row[19],
        error=row[20],
        unreadable=row[16].why if isinstance(row[16], Unreadable) else None,
    )


def queue_info(row: Row) -> QueueInfo:
    """Returns the queue in a row of QUEUE_COLUMNS."""
    return QueueInfo(
        queue_id=row[0],
        name=row[1],
        kind=row[2],
        settings=QueueSettings(
            abort_limit=row[3],
            backoff_ms=row[4],
            backoff_max_ms=row[5],
            execution_limit_s=row[6],
            body_bytes_max=row[7],
            tag_bytes_max=row[8],
            durable=row[9],
            keep_body=row[10],
            error_queue=row[11],
            retry_limit=row[21],
        ),
        enqueue_started=row[12],
        dequeue_started=row[13],
        ready=row[14],
        claimed=row[15],
        waiting=row[16],
        suspect=row[17],
        held=row[18],
        created_at=row[19],
        oldest_at=row[20],
    )


def old_request(row: Row) -> OldRequest:
    """Returns the old request in a row of OLD_REQUEST_COLUMNS."""
    found = _by_name(OLD_REQUEST_COLUMNS, row)
    found["outcome"] = RequestOutcome(found["outcome"])
    return OldRequest(**found)


def attempt(row: Row) -> Attempt:
    """Returns the abort in a row of ATTEMPT_COLUMNS."""
    found = _by_name(ATTEMPT_COLUMNS, row)
    found["charge"] = Charge(found["charge"])
    return Attempt(**found)


def taken_over(row: Row) -> ops.TakenOver:
    """Returns the result of a takeover."""
    found = _by_name(TAKEN_OVER_COLUMNS, row)
    found["aborted"] = msgspec.convert(found["aborted"], list[ops.Aborted])
    return ops.TakenOver(**found)


def connection(row: Row) -> ops.Connection:
    """Returns the answer of connect."""
    columns = "registrant_id, epoch, reply_queue, was, s_rid, s_no, s_state, r_rid, ckpt"
    return ops.Connection(**_by_name(columns, row))


def thread_tags(row: Row) -> ops.ThreadTags:
    """Returns the tags of a thread."""
    columns = "thread, registrant_id, epoch, was, s_rid, s_state, r_rid, ckpt, outstanding"
    return ops.ThreadTags(**_by_name(columns, row))


def whereabouts(row: Row) -> Whereabouts:
    """Returns where a request is."""
    outcome = None if row[11] is None else RequestOutcome(row[11])
    return Whereabouts(
        rid=row[0],
        state=row[1],
        eid=row[2],
        queue=row[3],
        attempts=attempts_of(row[4], outcome),
        sent_at=row[5],
        not_before=row[6],
        server_host=row[7],
        server_pid=row[8],
        begun_at=row[9],
        finished_at=row[10],
        outcome=outcome,
        code=row[12],
        error=row[13],
    )


def registered(row: Row) -> ops.Registered:
    """Returns a registration."""
    return ops.Registered(
        registrant_id=row[0], epoch=row[1], thread=row[2], kind=row[3], eid=row[4], tag=row[5]
    )


def outstanding(row: Row) -> ops.OutstandingRequest:
    """Returns a request that is outstanding."""
    return ops.OutstandingRequest(rid=row[0], send_no=row[1], replied=row[2] == "reply", eid=row[3])


def request_state(row: Row) -> RequestState:
    """Returns where a rid is."""
    return RequestState(**_by_name(REQUEST_COLUMNS, row))


def client_info(row: Row) -> admin_ops.ClientInfo:
    """Returns what is known of a client."""
    return admin_ops.ClientInfo(**_by_name(CLIENT_COLUMNS, row))


def forgotten(row: Row) -> admin_ops.Forgotten:
    """Returns a thread of a client that is forgotten."""
    return admin_ops.Forgotten(**_by_name(FORGOTTEN_COLUMNS, row))


def rates(rows: Sequence[Row]) -> admin_ops.Rates:
    """Returns recent rates. There is at least one row: without a queue, with the time."""
    done = {name: count for _, name, count in rows if name is not None}
    return admin_ops.Rates(at=rows[0][0], per_minute=done)


def server_info(row: Row) -> admin_ops.ServerInfo:
    """Returns what is known of a server."""
    return admin_ops.ServerInfo(**_by_name(SERVER_COLUMNS, row))


def _by_name(columns: str, row: Row) -> dict[str, Any]:
    """Returns each column's value by name. Not for elements: it takes a quarter longer."""
    return dict(zip(_names(columns), row, strict=True))


@functools.cache
def _names(columns: str) -> tuple[str, ...]:
    return tuple(columns.replace(" ", "").split(","))
