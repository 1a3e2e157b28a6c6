"""The state of a repository as the oracle keeps it, and what all its operations build on.

Private to the oracle; the twin of `base.sql` and `conclude.sql`. Time and ids are injected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from onceq.errors import Fenced, IllegalState, InvalidValue, QueueNotFound, QueueStopped, TooLarge
from onceq.model import trace
from onceq.model.element import Element, Lane, Role
from onceq.model.names import PRIORITY_MAX
from onceq.model.queue import QueueKind
from proof.oracle.rows import (
    AttemptRow,
    Blocked,
    BreakerRow,
    EffectRow,
    ElementRow,
    Failure,
    HistoryRow,
    PeriodicRow,
    PositionRow,
    QueueRow,
    RegistrantRow,
    RegistrationRow,
    RelayRow,
    ServerRow,
    Table,
    TakenOverRow,
    TermsRow,
    Transaction,
    fenced_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onceq.model.ops import Identity

NONE = Failure(None, None)
CLIENT_ROLES = (Role.REQUEST, Role.REPLY)
SERVED_ROLES = (Role.REQUEST, Role.DATAGRAM)


class State:
    """Tables, sequences, locks, started markers.

    Lost in a crash of the database: open transactions, locks, markers, `life`. The rest is kept.
    boot: counts starts of the database. life: of volatile elements, None until one is needed.
    """

    def __init__(self, clock: Callable[[], datetime], new_eid: Callable[[], UUID]) -> None:
        self.now = clock
        self.new_eid = new_eid
        self.repository_id = UUID(int=1)
        self.queues: Table[QueueRow] = Table()
        self.registrants: Table[RegistrantRow] = Table()
        self.elements: Table[ElementRow] = Table()
        self.registrations: Table[RegistrationRow] = Table()
        self.history: Table[HistoryRow] = Table()
        self.spent: Table[ElementRow] = Table()
        self.begun: Table[int] = Table()
        self.attempts: Table[AttemptRow] = Table()
        self.servers: Table[ServerRow] = Table()
        self.terms: Table[TermsRow] = Table()
        self.breakers: Table[BreakerRow] = Table()
        self.taken_over: Table[TakenOverRow] = Table()
        self.redriven: Table[tuple[UUID, UUID]] = Table()
        self.effects: Table[EffectRow] = Table()
        self.periodics: Table[PeriodicRow] = Table()
        self.positions: Table[PositionRow] = Table()
        self.relays: Table[RelayRow] = Table()
        self.locks: dict[tuple[str, int], list[tuple[Transaction, bool]]] = {}
        self.slots: dict[int, int] = {}
        self.markers: dict[int, int] = {}
        self.running: set[int] = set()
        self.incarnations = self.lives = 0
        self.life: int | None = None
        self.boot = 1

    def lock(self, tx: Transaction, kind: str, number: int, *, exclusive: bool) -> None:
        """Takes an advisory lock until the transaction ends. Raises Blocked."""
        key = (kind, number)
        for holder, mode in self.locks.get(key, []):
            if holder is not tx and (exclusive or mode):
                raise Blocked
        if tx.is_open:
            self.locks.setdefault(key, []).append((tx, exclusive))
            tx.locks.append(key)

    def unlock(self, tx: Transaction) -> None:
        """Releases the advisory locks of a transaction that has ended."""
        for key in tx.locks:
            left = [holding for holding in self.locks.get(key, []) if holding[0] is not tx]
            if left:
                self.locks[key] = left
            else:
                self.locks.pop(key, None)
        tx.locks.clear()

    def next_incarnation(self) -> int:
        """Returns a number that no incarnation ever had, whatever becomes of the transaction."""
        self.incarnations += 1
        return self.incarnations

    def current_life(self, tx: Transaction) -> int:
        """Returns the life of the database; the first call after a crash purges older ones."""
        if self.life is None:
            self.lives += 1
            self.life = self.lives
            for row in self.elements.seen(tx):
                if row.life is not None and row.life < self.life:
                    self.elements.put(tx, row.seq, None)
        return self.life


def check_epoch(state: State, tx: Transaction, asks: Identity) -> None:
    """Refuses an epoch that is over. Raises Fenced, Blocked."""
    state.lock(tx, "registrant", asks.registrant_id, exclusive=False)
    who = state.registrants.get(tx, asks.registrant_id)
    if who is None or who.epoch != asks.epoch:
        raise Fenced(fenced_text(who, asks.epoch))


def find_queue(state: State, tx: Transaction, name: str) -> QueueRow:
    """Returns the queue of this name. Raises QueueNotFound."""
    for row in state.queues.seen(tx):
        if row.name == name and not row.destroyed:
            return row
    raise QueueNotFound(f"queue {name!r} does not exist")


def open_queue(state: State, tx: Transaction, name: str, body: bytes) -> QueueRow:
    """Returns the queue, open for this body. QueueNotFound, QueueStopped, TooLarge."""
    queue = find_queue(state, tx, name)
    state.lock(tx, "queue", queue.queue_id, exclusive=False)
    if queue.kind is QueueKind.REPLY:
        raise IllegalState(f"queue {name!r} is of the replies to a client")
    if not queue.enqueue_started:
        raise QueueStopped(f"queue {name!r} is stopped for enqueue")
    if len(body) > queue.settings.body_bytes_max:
        raise TooLarge(f"the body has {len(body)} bytes")
    return queue


def is_open(state: State, queue: QueueRow) -> bool:
    """Returns whether elements may be dequeued from a queue: it is neither stopped nor paused."""
    until = queue.paused_until
    return queue.dequeue_started and (until is None or until <= state.now())


def check_priority(priority: int) -> None:
    """Raises InvalidValue, as the schema's CHECK does."""
    if not 0 <= priority <= PRIORITY_MAX:
        raise InvalidValue(f"priority {priority} is not from 0 to {PRIORITY_MAX}")


def lane_of(priority: int, not_before: datetime | None) -> int:
    """Returns the lane where a new element waits."""
    return Lane.FRESH - priority if not_before is None else Lane.DUE


def queue_of(state: State, tx: Transaction, queue_id: int) -> QueueRow:
    """Returns the queue with this number, which exists: elements refer to it."""
    queue = state.queues.get(tx, queue_id)
    if queue is None:
        raise LookupError(queue_id)
    return queue


def to_element(row: ElementRow) -> Element:
    """Returns the element in the form that its readers get."""
    return Element(
        seq=row.seq,
        eid=row.eid,
        rid=row.rid,
        body=row.body,
        role=row.role,
        queue_id=row.queue_id,
        lane=row.lane,
        priority=row.priority,
        aborts=row.aborts,
        enqueued_at=row.enqueued_at,
        owes_reply=row.reply_queue_id is not None,
        outcome=row.outcome,
        registrant_id=row.registrant_id,
        send_no=row.send_no,
        correlation_id=row.correlation_id,
        content_type=row.content_type,
        properties=trace.parted(row.properties)[0],
        trace=trace.parted(row.properties)[1],
        not_before=row.not_before,
        expires_at=row.expires_at,
        code=row.code,
        error=row.error,
    )
