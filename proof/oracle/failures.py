"""The oracle's answers about what becomes of what fails: on whose terms, and what is held.

Private to the oracle; the twin of `terms.sql` and `hold.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.model.element import Lane, Unheld
from proof.oracle.ends import expire, fail
from proof.oracle.queues import error_queue_named
from proof.oracle.rows import Blocked, ElementRow, Failure, TermsRow
from proof.oracle.state import SERVED_ROLES, queue_of
from proof.oracle.takeover import row_of

if TYPE_CHECKING:
    from uuid import UUID

    from onceq.model import ops
    from proof.oracle.rows import Transaction
    from proof.oracle.state import State


def set_terms(state: State, tx: Transaction, op: ops.SetTerms) -> bool:
    """Answers SetTerms."""
    error_id = None
    if op.error_queue is not None:
        error_id = error_queue_named(state, tx, op.error_queue).queue_id
    place = (op.incarnation, op.queue_id, op.seq)
    former = [
        row for row in state.terms.seen(tx) if (row.incarnation, row.queue_id, row.seq) == place
    ]
    key = former[0].key if former else state.terms.new_key()
    row = TermsRow(
        key=key,
        incarnation=op.incarnation,
        queue_id=op.queue_id,
        seq=op.seq,
        abort_limit=op.abort_limit,
        error_queue_id=error_id,
    )
    is_there = row_of(state, tx, op.incarnation) is not None
    if is_there:
        state.terms.put(tx, key, row)
    return is_there


def _held(state: State, tx: Transaction, eid: UUID) -> ElementRow | Unheld:
    """Returns what its queue holds under this eid; or what became of it. Raises Blocked."""
    for row in state.elements.seen(tx):
        if row.eid == eid and row.lane == Lane.HELD and row.role in SERVED_ROLES:
            if state.elements.is_locked(tx, row.seq):
                raise Blocked
            if row.expires_at is not None and row.expires_at <= state.now():
                expire(state, tx, row)
                return Unheld.EXPIRED
            return row
    return Unheld.NOT_HELD


def retry_held(state: State, tx: Transaction, op: ops.RetryHeld) -> Unheld:
    """Answers RetryHeld."""
    row = _held(state, tx, op.eid)
    if isinstance(row, Unheld):
        return row
    again = replace(row, lane=Lane.DUE, aborts=0, faults=0, not_before=state.now())
    state.elements.put(tx, row.seq, again)
    return Unheld.RETRIED


def give_up_held(state: State, tx: Transaction, op: ops.GiveUpHeld) -> Unheld:
    """Answers GiveUpHeld."""
    row = _held(state, tx, op.eid)
    if isinstance(row, Unheld):
        return row
    home = queue_of(state, tx, row.queue_id)
    fail(state, tx, row, Failure(row.code, row.error), home=home)
    return Unheld.GIVEN_UP
