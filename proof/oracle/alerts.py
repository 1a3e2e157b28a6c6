"""What the oracle tells of requests that are late (C9); a twin of a part of `outstanding.sql`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from onceq.model import ops
from onceq.model.code_pages import JSON
from onceq.model.element import Role
from proof.oracle.queues import enqueue
from proof.oracle.state import State, check_epoch, open_queue

if TYPE_CHECKING:
    from proof.oracle.rows import Transaction


def alert_late(state: State, tx: Transaction, op: ops.AlertLate) -> list[str]:
    """Answers AlertLate: once for each request, told apart by eid."""
    check_epoch(state, tx, op.who)
    open_queue(state, tx, op.queue, b"")
    late = state.now() - timedelta(seconds=op.late_s)
    alerted: list[str] = []
    for row in state.elements.seen(tx):
        own = row.registrant_id == op.who.registrant_id and op.rid in {None, row.rid}
        if row.role != Role.REQUEST or not own or row.enqueued_at > late:
            continue
        known = [one.correlation_id for one in state.elements.seen(tx) if one.role == Role.DATAGRAM]
        known += [one.element.correlation_id for one in state.history.seen(tx)]
        if str(row.eid) not in known:
            alert = ops.Enqueue(
                queue=op.queue,
                body=msgspec.json.encode({"rid": row.rid, "eid": row.eid}),
                correlation_id=str(row.eid),
                content_type=JSON,
            )
            enqueue(state, tx, alert)
            alerted.append(row.rid)
    return alerted
