"""The oracle's answers about how long queues keep history (Q17). The twin of `retention.sql`.

Private to the oracle. It has no archive, and looks at all of a queue's history at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.model.retention_ops import (
    DueQueue,
    DueRetention,
    HoldRetention,
    RetentionOwners,
    Retired,
    RetireHistory,
)
from proof.oracle.spent import may_lose, removable, spend

if TYPE_CHECKING:
    from onceq.model.archive_ops import ArchiveSpend
    from proof.oracle.rows import HistoryRow, QueueRow, Transaction
    from proof.oracle.state import State


def due_retention(state: State, tx: Transaction, op: DueRetention) -> list[DueQueue]:
    """Answers DueRetention."""
    del op
    due = [row for row in state.queues.seen(tx) if _is_due(state, row)]
    return [DueQueue(queue=row.name, queue_id=row.queue_id) for row in due]


def retention_owners(state: State, tx: Transaction, op: RetentionOwners) -> list[int]:
    """Answers RetentionOwners."""
    found = {row.element.registrant_id for _, row in _ended(state, tx, op.queue_id)}
    return sorted(one for one in found if one is not None and not _has_spent(state, tx, one))


def archive_spend(state: State, tx: Transaction, op: ArchiveSpend) -> bool:
    """Answers ArchiveSpend."""
    return may_lose(state, tx, op.registrant_id)


def retire_history(state: State, tx: Transaction, op: RetireHistory) -> Retired:
    """Answers RetireHistory."""
    queue = state.queues.get(tx, op.queue_id)
    if queue is None or not _is_due(state, queue):
        return Retired(retired=0, is_over=True)
    gone: set[object] = set()
    retired = 0
    for key, row in _ended(state, tx, op.queue_id):
        who = row.element.registrant_id
        if who is None or _has_spent(state, tx, who):
            retired += spend(state, tx, key)
            gone.add(row.element.eid)
    for key, one in list(state.attempts.rows.items()):
        if one.eid in gone:
            state.attempts.put(tx, key, None)
    _look_again(state, tx, queue, 0.0 if retired else op.every_s)
    return Retired(retired=retired, is_over=not retired)


def hold_retention(state: State, tx: Transaction, op: HoldRetention) -> bool:
    """Answers HoldRetention."""
    queue = state.queues.get(tx, op.queue_id)
    if queue is None or queue.settings.history_days is None:
        return False
    _look_again(state, tx, queue, op.after_s)
    return True


def _is_due(state: State, queue: QueueRow) -> bool:
    is_time = queue.look_at is None or queue.look_at <= state.now()
    return queue.settings.history_days is not None and not queue.destroyed and is_time


def _look_again(state: State, tx: Transaction, queue: QueueRow, after_s: float) -> None:
    look_at = state.now() + timedelta(seconds=after_s)
    state.queues.put(tx, queue.queue_id, replace(queue, look_at=look_at))


def _ended(state: State, tx: Transaction, queue_id: int) -> list[tuple[int, HistoryRow]]:
    """Returns the rows of a queue's history that it keeps no longer, and nobody asks for."""
    queue = state.queues.get(tx, queue_id)
    if queue is None or queue.settings.history_days is None:
        return []
    before = state.now() - timedelta(days=queue.settings.history_days)
    return [
        (key, row)
        for key, row in removable(state, tx)
        if row.element.queue_id == queue_id and row.finished_at < before
    ]


def _has_spent(state: State, tx: Transaction, registrant_id: int) -> bool:
    who = state.registrants.get(tx, registrant_id)
    return who is not None and who.has_spent
