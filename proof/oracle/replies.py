"""The oracle's answers about replies received in the client's own transaction (spec C15).

Private to the oracle; the twin of `reply.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.errors import IllegalState
from onceq.model.element import Fate, Lane, Role
from onceq.model.queue import QueueKind
from proof.oracle import queues
from proof.oracle.clients import own_rows, record_receive
from proof.oracle.registrations import last
from proof.oracle.rows import Blocked, ElementRow, Received, Transaction
from proof.oracle.state import State, check_epoch, queue_of

if TYPE_CHECKING:
    from uuid import UUID

    from onceq.model import ops
    from proof.oracle.clients import SaysLast


def _run(state: State) -> int:
    """Returns the run of the database: below zero, unlike any incarnation."""
    return -state.boot


def _reply(state: State, tx: Transaction, registrant_id: int, rid: str) -> ElementRow | None:
    """Returns the reply to a rid, locked. Raises Blocked."""
    for row in own_rows(state, tx, registrant_id):
        if row.role == Role.REPLY and row.rid == rid:
            if state.elements.is_locked(tx, row.seq):
                raise Blocked
            return row
    return None


def begin_reply(state: State, tx: Transaction, op: ops.BeginReply) -> bool:
    """Answers BeginReply."""
    check_epoch(state, tx, op.who)
    row = _reply(state, tx, op.who.registrant_id, op.rid)
    if row is None:
        raise IllegalState(f"there is no reply to {op.rid!r}")
    if row.claimed_by == _run(state):
        if _abort(state, tx, row, op) is Fate.FAILED:
            return False
        row = replace(row, faults=row.faults + 1)
    state.elements.put(tx, row.seq, replace(row, claimed_by=_run(state)))
    return True


def take_reply(state: State, tx: Transaction, op: ops.TakeReply) -> int:
    """Answers TakeReply."""
    check_epoch(state, tx, op.who)
    row = _reply(state, tx, op.who.registrant_id, op.rid)
    if row is None or row.claimed_by is None:
        raise IllegalState(f"nobody has begun to process a reply to {op.rid!r}")
    record_receive(state, tx, op, Received(row.rid, row.eid, op.ckpt))
    state.elements.put(tx, row.seq, None)
    return tx.xid


def settle_reply(state: State, tx: Transaction, op: ops.SettleReply) -> Fate:
    """Answers SettleReply."""
    if op.xid in state.running:
        return Fate.RUNNING
    check_epoch(state, tx, op.who)
    row = _reply(state, tx, op.who.registrant_id, op.rid)
    if row is None:
        return Fate.LOST
    if op.counts:
        return _abort(state, tx, row, op)
    state.elements.put(tx, row.seq, replace(row, claimed_by=None))
    return Fate.RETURNED


def _abort(state: State, tx: Transaction, row: ElementRow, op: SaysLast) -> Fate:
    home = queue_of(state, tx, row.queue_id)
    faults = row.faults + 1
    if faults < home.settings.abort_limit:
        state.elements.put(tx, row.seq, replace(row, faults=faults, claimed_by=None))
        return Fate.RETURNED
    if home.error_queue_id is None:
        error = queues.new_queue(state, tx, f"{home.name}.error", QueueKind.ERROR)
        home = replace(home, error_queue_id=error.queue_id)
        state.queues.put(tx, home.queue_id, home)
    record_receive(state, tx, op, Received(row.rid, row.eid, None))
    held = replace(
        row,
        role=Role.FAILED,
        lane=Lane.HELD,
        claimed_by=None,
        faults=faults,
        queue_id=home.error_queue_id or 0,
    )
    state.elements.put(tx, row.seq, held)
    return Fate.FAILED


def redrive(state: State, tx: Transaction, op: ops.Redrive) -> tuple[UUID, str] | None:
    """Answers Redrive."""
    return _redrive_reply(state, tx, op.eid) or queues.redrive_request(state, tx, op)


def _redrive_reply(state: State, tx: Transaction, eid: UUID) -> tuple[UUID, str] | None:
    """Gives a held reply back to its client; None if no reply with this eid is held."""
    found = [
        row
        for row in state.elements.seen(tx)
        if row.eid == eid and row.role == Role.FAILED and row.outcome is not None
    ]
    if not found:
        return None
    row = found[0]
    state.lock(tx, "registrant", row.registrant_id or 0, exclusive=True)
    who = state.registrants.get(tx, row.registrant_id or 0)
    if who is None:
        raise LookupError(row.registrant_id)
    state.registrants.put(tx, who.registrant_id, replace(who, epoch=who.epoch + 1))
    found_last = last(state, tx, who.registrant_id, who.reply_queue_id)
    if found_last is not None and found_last[1].rid == row.rid:
        forgotten = replace(found_last[1], rid=None, tag=None)
        state.registrations.put(tx, found_last[0], forgotten)
    back = replace(
        row, role=Role.REPLY, lane=Lane.REPLY, faults=0, queue_id=who.reply_queue_id or 0
    )
    state.elements.put(tx, row.seq, back)
    return row.eid, row.rid
