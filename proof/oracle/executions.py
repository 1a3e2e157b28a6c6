"""The oracle's answers about executions: finish, abort.

Private to the oracle; with `servers`, the twin of `server.sql`.
"""

from __future__ import annotations

from onceq.errors import ClaimLost, HandlerMisuse
from onceq.model import ops
from onceq.model.element import Charge, Fate, RequestOutcome
from proof.oracle.ends import conclude, return_element
from proof.oracle.rows import Blocked, ElementRow, Failure, Transaction
from proof.oracle.servers import Turn, claim_rows, mark
from proof.oracle.state import (
    State,
    to_element,
)


def fence(state: State, tx: Transaction, seq: int, incarnation: int) -> ElementRow:
    """Returns the element that this incarnation still holds. Raises ClaimLost, Blocked."""
    row = state.elements.get(tx, seq)
    if row is not None and row.claimed_by == incarnation:
        if state.elements.is_locked(tx, seq):
            raise Blocked
        return row
    raise ClaimLost(f"element {seq} is no longer claimed by incarnation {incarnation}")


def finish(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    """Answers Finish."""
    if tx.token != op.token:
        raise HandlerMisuse("the handler ended the transaction that it was given")
    for seq, reply in zip(op.seqs, op.replies, strict=True):
        row = fence(state, tx, seq, op.incarnation)
        state.elements.put(tx, seq, None)
        conclude(state, tx, row, RequestOutcome.DONE, reply=reply)
    what = Turn(op.queue_id, op.n, op.turn, op.alone)
    following = [to_element(one) for one in claim_rows(state, tx, op.incarnation, what)]
    return ops.Finished(following=following)


def abort(
    state: State,
    tx: Transaction,
    held: tuple[int, int],
    *,
    charge: Charge,
    failure: Failure,
    together: int | None = None,
) -> Fate:
    """Ends an execution of (seq, incarnation) that failed, and clears the started marker."""
    seq, incarnation = held
    row = state.elements.get(tx, seq)
    mine = row is not None and row.claimed_by == incarnation
    if mine and state.elements.is_locked(tx, seq):
        raise Blocked
    mark(state, tx, incarnation, 0)
    if row is None or not mine:
        return Fate.LOST
    return return_element(state, tx, row, charge, failure=failure, together=together)


def abort_element(state: State, tx: Transaction, op: ops.AbortElement) -> Fate:
    """Answers AbortElement."""
    failure = Failure(op.code, op.error, op.traceback, op.after_s)
    held = (op.seq, op.incarnation)
    return abort(state, tx, held, charge=op.charge, failure=failure, together=op.together)
