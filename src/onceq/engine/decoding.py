"""How rows of elements and of queues are read: the columns, and what stands in each.

Private to the binding.
"""

from __future__ import annotations

from typing import Any

from onceq.model.element import Element, RequestOutcome
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
