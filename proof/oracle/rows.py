"""The oracle's tables: committed rows, and uncommitted changes of open transactions.

Private to the oracle. A row that an open transaction has written is locked: others read its
committed version, and whoever must change it waits (`Blocked`) or skips it. This is PostgreSQL's
READ COMMITTED, as far as the queue manager's functions depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from onceq.model import end_user
from onceq.model.names import client_said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from onceq.model.element import Charge, EndUser, RequestOutcome, Role
    from onceq.model.ops import TakenOver
    from onceq.model.queue import QueueKind, QueueSettings

R = TypeVar("R")


class Blocked(Exception):
    """The operation must wait for another transaction to end; nothing of it has happened."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, destroyed ones included: history refers to them.

    look_at: when to look next at the history that it keeps for some days; None: now.
    """

    queue_id: int
    name: str
    kind: QueueKind
    settings: QueueSettings
    enqueue_started: bool = True
    dequeue_started: bool = True
    error_queue_id: int | None = None
    created_at: datetime
    destroyed: bool = False
    paused_until: datetime | None = None
    look_at: datetime | None = None


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a queue, with nothing done between. pause_s: of its last pause."""

    queue_id: int
    since: datetime
    faults: int = 0
    pause_s: int = 0
    tripped_on: int | None = None
    counted_in: int = 0


class TermsRow(msgspec.Struct, frozen=True, kw_only=True):
    """Terms on which a life dequeues; see ops.SetTerms. key: of the row."""

    key: int
    incarnation: int
    queue_id: int
    seq: int | None
    abort_limit: int | None
    error_queue_id: int | None


class PeriodicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A periodic request. key: of the row. look_at: when its next tick may be tried."""

    key: int
    name: str
    revision: UUID
    queue: str
    body: bytes
    content_type: str | None
    schedule: str
    zone: str
    missed: str
    overlap: bool
    is_paused: bool = False
    next_at: datetime
    look_at: datetime
    ticked_at: datetime | None = None
    eid: UUID | None = None
    error: str | None = None
    created_at: datetime


class RegistrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """The anchor of a registrant. has_spent: its history may have been trimmed."""

    registrant_id: int
    name: str
    thread: str
    epoch: int = 0
    state: str = "new"
    reply_queue_id: int | None = None
    connected_at: datetime | None = None
    has_spent: bool = False
    is_closed: bool = False


def fenced_text(who: RegistrantRow | None, epoch: int) -> str:
    """Returns what a life of a client that is over is told, like check_epoch in base.sql."""
    named = "this client" if who is None else client_said(who.name, who.thread)
    current = "none" if who is None else who.epoch
    return (
        f"{named} has connected again elsewhere, or was forgotten (epoch {current}; this one is "
        f"{epoch}): nothing happened: use that one, or connect() again, which fences it"
    )


class ElementRow(msgspec.Struct, frozen=True, kw_only=True):
    """An element, in whichever queue it is."""

    seq: int
    eid: UUID
    rid: str
    body: bytes
    role: Role
    queue_id: int
    lane: int
    enqueued_at: datetime
    priority: int = 4
    claimed_by: int | None = None
    send_no: int | None = None
    life: int | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    reply_queue_id: int | None = None
    registrant_id: int | None = None
    aborts: int = 0
    faults: int = 0
    together: int | None = None
    outcome: RequestOutcome | None = None
    correlation_id: str | None = None
    ack_rid: str | None = None
    kept_no: int = 0
    content_type: str | None = None
    properties: Mapping[str, Any] | None = None
    code: str | None = None
    error: str | None = None


def kept_for_reply(element: ElementRow) -> dict[str, Any] | None:
    """Returns the properties of a request that its reply has too."""
    user = (element.properties or {}).get(end_user.KEY)
    return None if user is None else {end_user.KEY: user}


class RegistrationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A registrant's last operation on a queue; for a clerk: what it received last."""

    registrant_id: int
    queue_id: int
    stable: bool = True
    kind: str | None = None
    eid: UUID | None = None
    tag: bytes | None = None
    body: bytes | None = None
    rid: str | None = None
    user: EndUser | None = None
    sent_rid: str | None = None
    sent_no: int | None = None
    recorded_at: datetime | None = None


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finished element. kept: whether history keeps its bodies. reply: None if there is none.

    started_at: when the transaction that finished it began; None: no server did. server: its
    incarnation.
    """

    element: ElementRow
    outcome: RequestOutcome
    finished_at: datetime
    code: str | None
    error: str | None
    kept: bool
    reply: bytes | None = None
    started_at: datetime | None = None
    server: int | None = None


class Failure(NamedTuple):
    """How an execution failed. after_s: how long its element waits; None: as its queue says."""

    code: str | None
    error: str | None
    traceback: str | None = None
    after_s: float | None = None


class Received(NamedTuple):
    """What a client received last: a reply's rid and eid, and its checkpoint."""

    rid: str | None
    eid: UUID | None
    ckpt: bytes | None


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that was aborted. server: the incarnation; host, pid: None if it has ended."""

    eid: UUID
    ended_at: datetime
    charge: Charge
    code: str | None
    error: str | None
    server: int | None
    host: str | None
    pid: int | None
    traceback: str | None


class TakenOverRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has taken back, kept until it asks."""

    key: int
    backend: int
    taken: TakenOver


class ServerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A slot and its incarnation, of the session `backend`, in one run of the database.

    missed_at: when all sessions of its process were first found ended. charges: what that process
    had started by then, which waits for a verdict. ended: the verdict was given.
    """

    slot: int
    incarnation: int
    process: UUID
    host: str
    pid: int
    boot: int
    backend: int
    started_at: datetime
    identity: str | None = None
    missed_at: datetime | None = None
    charges: dict[int, Charge] | None = None
    ended: bool = False


class PositionRow(msgspec.Struct, frozen=True, kw_only=True):
    """How far a name is in the stream of a topic and session."""

    key: int
    whose: tuple[str, str, str]
    life: int = 0
    stream: str | None = None
    epoch: int = 0
    number: int = 0


class RelayRow(msgspec.Struct, frozen=True, kw_only=True):
    """A relay from a queue to a stream. planned: the seqs of elements, by their numbers."""

    key: int
    name: str
    queue_id: int
    whose: tuple[str, str]
    claim: int
    stream: str | None = None
    epoch: int = 0
    next: int = 0
    planned: Mapping[int, int] = {}


class EffectRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler did, in the ledger, which has no unique key, so that a double shows."""

    key: str
    rid: str
    eid: UUID


class Transaction:
    """An open transaction, or one operation outside any (`is_open` False: it commits at once).

    backend: the session. log: what to undo, the latest last. taken: from (seq, incarnation) to the
    reply, or None. began_at: None if it commits at once.
    """

    __slots__ = (
        "backend",
        "began_at",
        "failed",
        "is_open",
        "locks",
        "log",
        "taken",
        "token",
        "xid",
    )

    def __init__(self, backend: int, xid: int, *, is_open: bool) -> None:
        self.backend = backend
        self.xid = xid
        self.is_open = is_open
        self.began_at: datetime | None = None
        self.failed = False
        self.token: str | None = None
        self.log: list[tuple[Table[Any], int, Any]] = []
        self.locks: list[tuple[str, int]] = []
        self.taken: dict[tuple[int, int], bytes | None] = {}

    def undo(self, mark: int) -> None:
        """Takes back what was written since the log had `mark` entries."""
        while len(self.log) > mark:
            table, key, former = self.log.pop()
            target = table.pending if self.is_open else table.rows
            if former is None:
                target.pop(key, None)
            else:
                target[key] = former

    def apply(self) -> None:
        """Makes what an open transaction wrote the committed state."""
        for table, key, _ in self.log:
            written = table.pending.pop(key, None)
            if written is None:
                continue
            if written[1] is None:
                table.rows.pop(key, None)
            else:
                table.rows[key] = written[1]
        self.log.clear()


class Table(Generic[R]):
    """Rows, keyed by a growing number."""

    __slots__ = ("last", "pending", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, R] = {}
        self.pending: dict[int, tuple[Transaction, R | None]] = {}
        self.last = 0

    def new_key(self) -> int:
        """Returns a number that was never given before."""
        self.last += 1
        return self.last

    def get(self, tx: Transaction, key: int) -> R | None:
        """Returns the row as this transaction sees it."""
        written = self.pending.get(key) if self.pending else None
        if written is not None and written[0] is tx:
            return written[1]
        return self.rows.get(key)

    def seen(self, tx: Transaction) -> list[R]:
        """Returns all rows that this transaction sees, oldest first."""
        if not self.pending:
            return list(self.rows.values())
        own = {key: row for key, (writer, row) in self.pending.items() if writer is tx}
        merged = {**self.rows, **own} if own else self.rows
        return [row for row in merged.values() if row is not None]

    def is_locked(self, tx: Transaction, key: int) -> bool:
        """Returns whether another transaction has written this row and has not ended."""
        written = self.pending.get(key) if self.pending else None
        return written is not None and written[0] is not tx

    def changing(self, tx: Transaction) -> list[R]:
        """Returns the rows that other open transactions are changing, before and after."""
        changed = [
            (self.rows.get(key), row)
            for key, (writer, row) in self.pending.items()
            if writer is not tx and row is not self.rows.get(key)  # otherwise it is only locked
        ]
        return [one for pair in changed for one in pair if one is not None]

    def put(self, tx: Transaction, key: int, row: R | None) -> None:
        """Writes a row, or removes it (None). Raises Blocked."""
        written = self.pending.get(key) if self.pending else None
        if written is not None and written[0] is not tx:
            raise Blocked
        if tx.is_open:
            tx.log.append((self, key, written))
            self.pending[key] = (tx, row)
            return
        tx.log.append((self, key, self.rows.get(key)))
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
