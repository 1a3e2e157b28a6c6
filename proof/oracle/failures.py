"""The oracle's answers about what becomes of what fails: on whose terms it is dequeued.

Private to the oracle; the twin of `terms.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.oracle.queues import error_queue_named
from proof.oracle.rows import TermsRow
from proof.oracle.takeover import row_of

if TYPE_CHECKING:
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
