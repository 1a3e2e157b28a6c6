"""How rows are read: the columns, and what stands in each.

Private to the binding.
"""

from __future__ import annotations

from typing import Any

from onceq.model import admin_ops, ops
from onceq.model.element import (
    Attempt,
    Charge,
    Element,
    OldRequest,
    RequestOutcome,
    RequestState,
    Whereabouts,
)
from onceq.model.queue import QueueInfo, QueueSettings

Row = tuple[Any, ...]

ELEMENT_COLUMNS = (
    "seq, eid, rid, body, role::text, queue_id, lane, priority, aborts, enqueued_at,"
    " reply_queue_id is not null, outcome::text, registrant_id, send_no, correlation_id,"
    " content_type, properties, not_before, expires_at, code, error"
)
QUEUE_COLUMNS = (
    "queue_id, name, kind, abort_limit, backoff_ms, backoff_max_ms, execution_limit_s,"
    " body_bytes_max, tag_bytes_max, durable, keep_body, error_queue, enqueue_started,"
    " dequeue_started, ready, claimed, waiting, suspect, held, created_at, oldest_at"
)

ATTEMPT_COLUMNS = "ended_at, charge, code, error, server, host, pid"

REQUEST_COLUMNS = (
    "rid, registrant, thread, eid, state, role, outcome, queue, aborts, code, error,"
    " enqueued_at, not_before, expires_at, finished_at, server_host, server_pid,"
    " correlation_id, body_bytes"
)

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
        properties=row[16],
        not_before=row[17],
        expires_at=row[18],
        code=row[19],
        error=row[20],
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
    """Returns the old request in a row of `find_requests`."""
    return OldRequest(
        rid=row[0],
        registrant=row[1],
        thread=row[2],
        eid=row[3],
        queue=row[4],
        role=row[5],
        outcome=RequestOutcome(row[6]),
        aborts=row[7],
        code=row[8],
        error=row[9],
        enqueued_at=row[10],
        started_at=row[11],
        finished_at=row[12],
        server=row[13],
        correlation_id=row[14],
        redriven_as=row[15],
        body=row[16],
        reply=row[17],
    )


def attempt(row: Row) -> Attempt:
    """Returns the abort in a row of ATTEMPT_COLUMNS."""
    return Attempt(
        ended_at=row[0],
        charge=Charge(row[1]),
        code=row[2],
        error=row[3],
        server=row[4],
        host=row[5],
        pid=row[6],
    )


def connection(row: Row) -> ops.Connection:
    """Returns what connect says."""
    names = ("registrant_id", "epoch", "reply_queue", "was", "s_rid", "s_no", "s_state", "r_rid")
    return ops.Connection(**dict(zip((*names, "ckpt"), row, strict=True)))


def thread_tags(row: Row) -> ops.ThreadTags:
    """Returns the tags of a thread."""
    names = ("thread", "registrant_id", "epoch", "was", "s_rid", "s_state", "r_rid", "ckpt")
    return ops.ThreadTags(**dict(zip((*names, "outstanding"), row, strict=True)))


def whereabouts(row: Row) -> Whereabouts:
    """Returns where a request is."""
    return Whereabouts(
        rid=row[0],
        state=row[1],
        eid=row[2],
        queue=row[3],
        attempts=row[4] + (row[11] == "done"),
        sent_at=row[5],
        not_before=row[6],
        server_host=row[7],
        server_pid=row[8],
        begun_at=row[9],
        finished_at=row[10],
        outcome=None if row[11] is None else RequestOutcome(row[11]),
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
    return RequestState(**dict(zip(REQUEST_COLUMNS.replace(" ", "").split(","), row, strict=True)))


def server_info(row: Row) -> admin_ops.ServerInfo:
    """Returns what is known of a server."""
    names = SERVER_COLUMNS.replace(" ", "").split(",")
    return admin_ops.ServerInfo(**dict(zip(names, row, strict=True)))
