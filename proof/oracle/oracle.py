"""The oracle's entrance: sessions, transactions, crashes, and one table from Op to answer."""

from __future__ import annotations

from inspect import isfunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

from onceq.errors import ConnectionLost, OnceqError, StatementRefused
from onceq.model import admin_ops, desk_ops, ops, periodic_ops, retention_ops, scan, stream_ops
from onceq.model.archive_ops import ArchiveSpend
from onceq.model.ops.base import kinds_of, name_of
from proof.oracle import (
    alerts,
    breaker,
    clients,
    desks,
    executions,
    failures,
    lookups,
    operators,
    periodics,
    queues,
    registrations,
    replies,
    retention,
    scans,
    servers,
    streams,
    takeover,
)
from proof.oracle.rows import Blocked, EffectRow, Transaction
from proof.oracle.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from uuid import UUID

    from onceq.model.element import Element, RequestState

T = TypeVar("T")


def settle(state: State, tx: Transaction, op: ops.Settle | ops.StopWaiting) -> bool:
    """Answers Settle, as every commit here is synchronous, and StopWaiting, as nobody is rung."""
    del state, tx, op
    return True


_ROOMS = (
    alerts,
    breaker,
    clients,
    desks,
    executions,
    failures,
    lookups,
    operators,
    periodics,
    queues,
    registrations,
    replies,
    retention,
    scans,
    servers,
    streams,
    takeover,
)
_FOUND = [
    one
    for room in _ROOMS
    for one in vars(room).values()
    if isfunction(one) and one.__module__ == room.__name__ and not one.__name__.startswith("_")
]
_NAMED: dict[str, Callable[[State, Transaction, Any], Any]] = {one.__name__: one for one in _FOUND}
if len(_NAMED) != len(_FOUND):
    raise RuntimeError("two answers of the oracle have one name")
ANSWERS: dict[type[Any], Callable[[State, Transaction, Any], Any]] = {
    ops.Settle: settle,
    ops.StopWaiting: settle,
    ArchiveSpend: retention.archive_spend,
    **{
        kind: _NAMED[name_of(kind)]
        for module in (ops, admin_ops, desk_ops, periodic_ops, retention_ops, scan, stream_ops)
        for kind in kinds_of(module)
        if name_of(kind) in _NAMED
    },
}
"""What answers each Op: what has its name. A test may give an Oracle a broken table."""


class Session:
    """One connection to the repository. transaction: the open one, if any."""

    __slots__ = ("is_over", "number", "transaction")

    def __init__(self, number: int) -> None:
        self.number = number
        self.transaction: Transaction | None = None
        self.is_over = False


class Oracle:
    """A repository in memory. clock, new_eid: sources of time and of element ids.

    version grows with every commit, so that waiters know when to look again.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        new_eid: Callable[[], UUID],
        answers: Mapping[type[Any], Callable[[State, Transaction, Any], Any]] = ANSWERS,
    ) -> None:
        self.state = State(clock, new_eid)
        self.version = 0
        self._answers = {**ANSWERS, **answers}
        self._sessions: set[Session] = set()
        self._xids = 0
        self._opened = 0
        self._of_transactions: dict[type[Any], Callable[[Session, Any], Any]] = {
            ops.BeginWork: lambda session, _: self.begin(session),
            ops.Begin: self._begin,
            ops.Finish: self._finish,
            ops.Commit: lambda session, _: self.commit(session),
            ops.Rollback: self._rollback,
        }

    def session(self) -> Session:
        """Returns a new session."""
        self._opened += 1
        session = Session(self._opened)
        self._sessions.add(session)
        return session

    def perform(self, session: Session, op: ops.Op[T]) -> T:
        """Performs an Op in the session's transaction, or in one of its own.

        Raises what the Op raises, ConnectionLost, or Blocked: then nothing has happened.
        """
        if session.is_over:
            raise ConnectionLost("this session is over")
        answer: Callable[[Session, Any], Any]
        answer = self._of_transactions.get(type(op), self._answer)
        return cast("T", answer(session, op))

    def _begin(self, session: Session, op: ops.Begin) -> bool:
        self.begin(session, token=op.token)
        self.state.markers[op.slot] = op.seq
        return True

    def _rollback(self, session: Session, op: ops.Rollback) -> bool:
        """Answers Rollback: no handler here can end a transaction."""
        del op
        self.rollback(session)
        return False

    def _finish(self, session: Session, op: ops.Finish) -> ops.Finished:
        finished: ops.Finished = self._answer(session, op)
        if op.commit:
            self.commit(session)
        return finished

    def _answer(self, session: Session, op: ops.Op[Any]) -> Any:
        tx = session.transaction
        if tx is None:
            return self._alone(session, op)
        if tx.failed:
            raise StatementRefused("the transaction has failed: roll it back", "25P02")
        mark = len(tx.log)
        try:
            return self._answers[type(op)](self.state, tx, op)
        except Blocked:
            tx.undo(mark)
            raise
        except OnceqError:
            tx.failed = True
            raise

    def _alone(self, session: Session, op: ops.Op[Any]) -> Any:
        """Performs an Op in a transaction of its own."""
        tx = self._transaction(session, is_open=False)
        done = False
        try:
            answer = self._answers[type(op)](self.state, tx, op)
            if tx.taken:
                queues.conclude_taken(self.state, tx)
            done = True
        finally:
            if not done:
                tx.undo(0)
        if tx.log:
            self.version += 1
        return answer

    def _transaction(self, session: Session, *, is_open: bool) -> Transaction:
        self._xids += 1
        return Transaction(session.number, self._xids, is_open=is_open)

    def begin(self, session: Session, *, token: str | None = None) -> None:
        """Begins a transaction on this session."""
        tx = session.transaction = self._transaction(session, is_open=True)
        tx.token = token
        tx.began_at = self.state.now()
        self.state.running.add(tx.xid)

    def commit(self, session: Session) -> None:
        """Commits the session's transaction. Raises ClaimLost, IllegalState; Blocked."""
        tx = session.transaction
        if tx is None:
            return
        if tx.failed:
            self.rollback(session)
            return
        try:
            queues.conclude_taken(self.state, tx)
        except OnceqError:
            self.rollback(session)
            raise
        tx.apply()
        self._ended(session, tx)

    def rollback(self, session: Session) -> None:
        """Rolls back the session's transaction, if there is one."""
        tx = session.transaction
        if tx is not None:
            tx.undo(0)
            self._ended(session, tx)

    def _ended(self, session: Session, tx: Transaction) -> None:
        self.state.unlock(tx)
        self.state.running.discard(tx.xid)
        session.transaction = None
        self.version += 1

    def effect(self, session: Session, key: str, element: Element) -> None:
        """Records a handler's effect in the ledger, in the transaction that it was given.

        Raises StatementRefused if that has failed, or there is none.
        """
        tx = session.transaction
        if tx is None or tx.failed:
            raise StatementRefused("there is no transaction to write in", "25P02")
        row = EffectRow(key=key, rid=element.rid, eid=element.eid)
        self.state.effects.put(tx, self.state.effects.new_key(), row)

    def end(self, session: Session) -> None:
        """Ends a session, like the death of its process: rolled back, its locks released."""
        self.rollback(session)
        session.is_over = True
        self._sessions.discard(session)
        for slot in [slot for slot, holder in self.state.slots.items() if holder == session.number]:
            del self.state.slots[slot]
        self.version += 1

    def crash(self, *, clean: bool = False) -> None:
        """Crashes the database and starts it again; every session is over.

        Committed state is kept. Started markers and the contents of volatile queues are lost,
        unless it was shut down cleanly.
        """
        for session in list(self._sessions):
            self.end(session)
        self.state.boot += 1
        if not clean:
            self.state.markers.clear()
            self.state.life = None

    def has_lost(self, element: Element) -> bool:
        """Returns whether nobody has claimed an element, in the committed state."""
        row = self.state.elements.rows.get(element.seq)
        return row is None or row.claimed_by is None

    def requests(self) -> list[RequestState]:
        """Returns every place where a rid is, in the committed state."""
        return lookups.requests(self.state, Transaction(0, 0, is_open=False))

    def effects(self) -> list[EffectRow]:
        """Returns the ledger, in the committed state."""
        return list(self.state.effects.rows.values())
