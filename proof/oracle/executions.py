"""The oracle's answers about executions: the parts of a batch, finish, abort.

Private to the oracle; with `servers`, the twin of `server.sql`.
"""

from __future__ import annotations

from onceq.errors import ClaimLost, HandlerMisuse
from onceq.model import ops
from onceq.model.element import Charge, Fate, RequestOutcome
from proof.oracle.rows import Blocked, ElementRow, Failure, Transaction
from proof.oracle.servers import Turn, claim_rows, mark
from proof.oracle.state import State, conclude, return_element, to_element


def fence(state: State, tx: Transaction, seq: int, incarnation: int) -> ElementRow:
    """Returns the element that this incarnation still holds. Raises ClaimLost, Blocked."""
    row = state.elements.get(tx, seq)
    if row is not None and row.claimed_by == incarnation:
        if state.elements.is_locked(tx, seq):
            raise Blocked
        return row
    raise ClaimLost(f"element {seq} is no longer claimed by incarnation {incarnation}")


def _holds(state: State, tx: Transaction, seq: int, incarnation: int) -> bool:
    row = state.elements.get(tx, seq)
    return row is not None and row.claimed_by == incarnation


def start(state: State, tx: Transaction, op: ops.Start) -> None:
    """Answers Start: names the element at once, marks the place to undo to, locks the element."""
    state.markers[op.slot] = op.seq
    tx.part = len(tx.log)
    row = fence(state, tx, op.seq, op.incarnation)
    state.elements.put(tx, row.seq, row)


def keep(state: State, tx: Transaction, op: ops.Keep) -> bool:
    """Answers Keep."""
    del state, op
    started, tx.part = tx.part is not None, None
    return started


def undo(state: State, tx: Transaction, op: ops.Undo) -> None:
    """Answers Undo; also if a statement of the part had failed."""
    del state, op
    if tx.part is not None:
        tx.undo(tx.part)
        tx.part = None
        tx.failed = False


def finish(state: State, tx: Transaction, op: ops.Finish) -> ops.Finished:
    """Answers Finish."""
    if tx.token != op.token:
        raise HandlerMisuse("the handler ended the transaction that it was given")
    if len(op.seqs) > 1 and op.slot is not None:
        state.markers[op.slot] = -op.seqs[0]
    concluded = 0
    for seq, reply in zip(op.seqs, op.replies, strict=True):
        if _holds(state, tx, seq, op.incarnation):
            row = fence(state, tx, seq, op.incarnation)
            state.elements.put(tx, seq, None)
            conclude(state, tx, row, RequestOutcome.DONE, reply=reply)
            concluded += 1
    if concluded < op.must:
        raise ClaimLost(f"of elements {op.seqs} only {concluded} are still claimed")
    what = Turn(op.queue_id, op.n, op.turn, op.alone)
    following = [to_element(one) for one in claim_rows(state, tx, op.incarnation, what)]
    return ops.Finished(following=following, lost=len(op.seqs) - concluded)


def abort(
    state: State,
    tx: Transaction,
    held: tuple[int, int],
    *,
    charge: Charge,
    failure: Failure,
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
    return return_element(state, tx, row, charge, failure=failure)


def abort_element(state: State, tx: Transaction, op: ops.AbortElement) -> Fate:
    """Answers AbortElement."""
    failure = Failure(op.code, op.error, op.traceback, op.after_s)
    return abort(state, tx, (op.seq, op.incarnation), charge=op.charge, failure=failure)
