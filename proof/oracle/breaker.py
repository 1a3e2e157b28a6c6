"""The circuit breaker of a queue, as the oracle keeps it.

Private to the oracle; the twin of `breaker.sql`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.model import ops
from onceq.model.element import TOOK_EFFECT
from proof.oracle.rows import BreakerRow
from proof.oracle.state import queue_of

if TYPE_CHECKING:
    from proof.oracle.rows import ElementRow, Transaction
    from proof.oracle.state import State

FAULTS = 10
"""So many, with nothing done between, pause a queue."""
PAUSE_S_MAX = 60


def note_fault(
    state: State, tx: Transaction, element: ElementRow, *, after_s: float | None
) -> None:
    """Counts a fault of the environment, and pauses the queue if there were enough.

    after_s: when a handler wants its request to be tried again: then no others need wait.
    """
    queue_id, now = element.queue_id, state.now()
    if after_s or state.breakers.is_locked(tx, queue_id):
        return
    row = state.breakers.get(tx, queue_id)
    if row is None or _done_since(state, tx, row):
        row = BreakerRow(queue_id=queue_id, since=now)
    elif row.counted_in == tx.xid or _is_paused(state, tx, queue_id):
        return
    row = replace(row, faults=row.faults + 1, counted_in=tx.xid)
    trips = row.pause_s > 0 or row.faults >= FAULTS
    if trips and not state.queues.is_locked(tx, queue_id):
        pause_s = min(max(2 * row.pause_s, 1), PAUSE_S_MAX)
        row = replace(row, pause_s=pause_s, tripped_on=element.seq)
        until = now + timedelta(seconds=pause_s)
        queue = queue_of(state, tx, queue_id)
        state.queues.put(tx, queue_id, replace(queue, paused_until=until))
    state.breakers.put(tx, queue_id, row)


def _done_since(state: State, tx: Transaction, row: BreakerRow) -> bool:
    return any(
        one.element.queue_id == row.queue_id
        and one.outcome in TOOK_EFFECT
        and one.finished_at > row.since
        for one in state.history.seen(tx)
    )


def _is_paused(state: State, tx: Transaction, queue_id: int) -> bool:
    until = queue_of(state, tx, queue_id).paused_until
    return until is not None and until > state.now()


def find_pause(state: State, tx: Transaction, op: ops.FindPause) -> ops.Pause | None:
    """Answers FindPause."""
    row = state.breakers.get(tx, op.queue_id)
    if row is None or row.tripped_on != op.seq or not _is_paused(state, tx, op.queue_id):
        return None
    return ops.Pause(faults=row.faults, pause_s=row.pause_s)
