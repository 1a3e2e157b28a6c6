"""The state of a repository as the oracle keeps it, and what all its operations build on.

Private to the oracle; the twin of `base.sql` and `conclude.sql`. Time and ids are injected.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec.structs import replace

from onceq.errors import Fenced, IllegalState, InvalidValue, QueueNotFound, QueueStopped, TooLarge
from onceq.model import end_user
from onceq.model.element import TOOK_EFFECT, Charge, Element, Fate, Lane, RequestOutcome, Role
from onceq.model.names import PRIORITY_MAX
from onceq.model.queue import QueueKind
from proof.oracle.rows import (
    AttemptRow,
    Blocked,
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
    Transaction,
    fenced_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onceq.model.ops import Identity

NONE = Failure(None, None)
FAULTS_MAX = 1001
"""No more are counted: no queue leaves so many uncharged."""
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
        if key in self.locks:
            for holder, mode in self.locks[key]:
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
        properties=row.properties,
        not_before=row.not_before,
        expires_at=row.expires_at,
        code=row.code,
        error=row.error,
    )


# --- how an element ends (conclude.sql) -----------------------------------------------------------


def conclude(
    state: State,
    tx: Transaction,
    element: ElementRow,
    outcome: RequestOutcome,
    *,
    reply: bytes | None = None,
    failure: Failure = NONE,
) -> None:
    """Writes the reply that an element owes, and its history row; the caller has removed it."""
    now = state.now()
    if element.reply_queue_id is not None:
        seq = state.elements.new_key()
        state.elements.put(
            tx,
            seq,
            ElementRow(
                seq=seq,
                eid=state.new_eid(),
                rid=element.rid,
                body=reply or b"",
                role=Role.REPLY,
                queue_id=element.reply_queue_id,
                lane=Lane.REPLY,
                priority=element.priority,
                enqueued_at=now,
                outcome=outcome,
                life=element.life,
                registrant_id=element.registrant_id,
                send_no=element.send_no,
                ack_rid=element.ack_rid,
                correlation_id=str(element.eid),
                properties=_end_user(element),
                aborts=element.aborts,
                code=failure.code,
                error=failure.error,
            ),
        )
    _record_end(state, tx, element, outcome, reply=reply, failure=failure)


def _record_end(
    state: State,
    tx: Transaction,
    element: ElementRow,
    outcome: RequestOutcome,
    *,
    reply: bytes | None,
    failure: Failure,
) -> None:
    """Writes the history row of an element that has ended."""
    kept = queue_of(state, tx, element.queue_id).settings.keep_body
    by_server = tx.began_at is not None and outcome in TOOK_EFFECT
    row = HistoryRow(
        element=element,
        outcome=outcome,
        finished_at=state.now(),
        code=failure.code,
        error=failure.error,
        kept=kept,
        reply=reply,
        started_at=tx.began_at if by_server else None,
        server=element.claimed_by if outcome in {*TOOK_EFFECT, RequestOutcome.FAILED} else None,
    )
    state.history.put(tx, state.history.new_key(), row)


def _end_user(element: ElementRow) -> dict[str, Any] | None:
    user = (element.properties or {}).get(end_user.KEY)
    return None if user is None else {end_user.KEY: user}


def expire(state: State, tx: Transaction, element: ElementRow) -> None:
    """Ends an element whose time has run out: one expired reply."""
    state.elements.put(tx, element.seq, None)
    conclude(state, tx, element, RequestOutcome.EXPIRED, failure=Failure("expired", "expired"))


def _fail(state: State, tx: Transaction, element: ElementRow, failure: Failure) -> None:
    home = queue_of(state, tx, element.queue_id)
    held = replace(
        element,
        role=Role.FAILED,
        lane=Lane.HELD,
        claimed_by=None,
        together=None,
        not_before=None,
        code=failure.code,
        error=failure.error,
        queue_id=home.error_queue_id or 0,
    )
    state.elements.put(tx, element.seq, held)
    conclude(state, tx, element, RequestOutcome.FAILED, failure=failure)


def _delay_ms(queue: QueueRow, times: int) -> float:
    settings = queue.settings
    return min(settings.backoff_max_ms, settings.backoff_ms * 2.0 ** min(times - 1, 20))


def _record_abort(
    state: State,
    tx: Transaction,
    element: ElementRow,
    charge: Charge,
    *,
    failure: Failure,
) -> None:
    server = next(
        (one for one in state.servers.seen(tx) if one.incarnation == element.claimed_by), None
    )
    row = AttemptRow(
        eid=element.eid,
        ended_at=state.now(),
        charge=charge,
        code=failure.code,
        error=failure.error,
        server=element.claimed_by,
        host=None if server is None else server.host,
        pid=None if server is None else server.pid,
        traceback=failure.traceback,
    )
    state.attempts.put(tx, state.attempts.new_key(), row)


def _attempts(state: State, tx: Transaction, eid: UUID) -> list[AttemptRow]:
    return [row for row in state.attempts.seen(tx) if row.eid == eid]


def _others_committed(state: State, tx: Transaction, element: ElementRow) -> bool:
    """Returns whether its server has finished others of its queue since its last abort."""
    attempts = _attempts(state, tx, element.eid)
    return bool(attempts) and any(
        row.outcome is RequestOutcome.DONE
        and row.server == element.claimed_by
        and row.element.queue_id == element.queue_id
        and row.finished_at > attempts[-1].ended_at
        for row in state.history.seen(tx)
    )


def _falls_in_a_row(state: State, tx: Transaction, eid: UUID) -> int:
    """Returns how often in a row an element was held when the database went down."""
    codes = [row.code for row in _attempts(state, tx, eid)]
    others = [at for at, code in enumerate(codes) if code != "database_fell"]
    return len(codes) - (others[-1] + 1 if others else 0)


def return_element(
    state: State,
    tx: Transaction,
    element: ElementRow,
    charge: Charge,
    *,
    failure: Failure,
    together: int | None = None,
) -> Fate:
    """Returns a claimed element to its queue, or fails it, charged as the evidence says (G7).

    together: of a suspect, with how many of its batch it may run at most; None: alone.
    """
    queue = queue_of(state, tx, element.queue_id)
    was_suspect = element.lane == Lane.SUSPECT
    ran_alone = was_suspect and element.together is None
    faults, aborts, delay = element.faults, element.aborts, 0.0
    if charge is Charge.FELL:
        often = _falls_in_a_row(state, tx, element.eid) >= queue.settings.abort_limit
        charge = Charge.CHARGE if ran_alone and often else Charge.SUSPECT
    if charge in {Charge.ENVIRONMENT, Charge.RETRY}:
        counted = charge is Charge.RETRY or _others_committed(state, tx, element)
        charge = Charge.ENVIRONMENT
        faults = min(faults + counted, FAULTS_MAX)
        attempts = _attempts(state, tx, element.eid)
        delay = _delay_ms(queue, 1 + sum(row.charge is charge for row in attempts))
        if counted and faults > queue.settings.retry_limit:
            charge = Charge.CHARGE if ran_alone else Charge.SUSPECT
    if charge is not Charge.RELEASE:
        _record_abort(state, tx, element, charge, failure=failure)
    if charge in {Charge.CHARGE, Charge.REJECT}:
        aborts += 1
        if charge is Charge.REJECT or aborts >= queue.settings.abort_limit:
            _fail(state, tx, replace(element, aborts=aborts, faults=faults), failure)
            return Fate.FAILED
        delay = _delay_ms(queue, aborts)
    if failure.after_s is not None:
        delay = 1000 * failure.after_s
    alone = was_suspect or charge is Charge.SUSPECT
    back = replace(
        element,
        claimed_by=None,
        aborts=aborts,
        faults=faults,
        together={Charge.RELEASE: element.together, Charge.SUSPECT: together}.get(charge),
        lane=Lane.SUSPECT if alone else Lane.DUE,
        not_before=state.now() + timedelta(milliseconds=delay),
        code=element.code if failure.code is None else failure.code,
        error=element.error if failure.error is None else failure.error,
    )
    state.elements.put(tx, element.seq, back)
    return Fate.RETURNED
