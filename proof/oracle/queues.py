"""The oracle's answers about queues and about elements outside a session.

Private to the oracle; the twin of `queue.sql`, `element.sql` and of the views.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq.errors import (
    ClaimLost,
    IllegalState,
    InvalidValue,
    QueueNotEmpty,
    QueueNotFound,
    StatementRefused,
)
from onceq.model import ops
from onceq.model.element import Charge, Element, Fate, KillAnswer, Lane, RequestOutcome, Role
from onceq.model.names import RESERVED_QUEUE
from onceq.model.queue import QueueInfo, QueueKind, QueueSettings
from proof.oracle import executions, reports, servers
from proof.oracle.ends import conclude
from proof.oracle.limits import need_room
from proof.oracle.order import check_order
from proof.oracle.rows import (
    ElementRow,
    Failure,
    QueueRow,
    Transaction,
)
from proof.oracle.state import (
    SERVED_ROLES,
    State,
    check_priority,
    find_queue,
    lane_of,
    open_queue,
    queue_of,
    to_element,
)
from proof.oracle.takeover import name_another

if TYPE_CHECKING:
    from uuid import UUID


def new_queue(
    state: State, tx: Transaction, name: str, kind: QueueKind, **attributes: Any
) -> QueueRow:
    """Creates a queue of this kind."""
    number = state.queues.new_key()
    settings = attributes.pop("settings", None) or QueueSettings()
    row = QueueRow(
        queue_id=number,
        name=name,
        kind=kind,
        settings=settings,
        created_at=state.now(),
        **attributes,
    )
    state.queues.put(tx, number, row)
    return row


def _named(state: State, tx: Transaction, name: str) -> QueueRow | None:
    found = [row for row in state.queues.seen(tx) if row.name == name and not row.destroyed]
    return found[0] if found else None


def _refuse_reply_names(*names: str) -> None:
    for name in names:
        if RESERVED_QUEUE.fullmatch(name):
            raise InvalidValue('queue names "reply-N" are those of clients\' own reply queues')


def error_queue_named(state: State, tx: Transaction, name: str) -> QueueRow:
    """Returns the queue of this name; an error queue is made if there is none."""
    _refuse_reply_names(name)
    return _named(state, tx, name) or new_queue(state, tx, name, QueueKind.ERROR)


def create_queue(state: State, tx: Transaction, op: ops.CreateQueue) -> bool:
    """Answers CreateQueue."""
    error_name = op.settings.error_queue or f"{op.queue}.error"
    _refuse_reply_names(op.queue, error_name)
    state.lock(tx, "queue", 0, exclusive=True)
    if _named(state, tx, op.queue) is not None:
        return False
    error_id = error_queue_named(state, tx, error_name).queue_id
    new_queue(state, tx, op.queue, QueueKind.REQUEST, settings=op.settings, error_queue_id=error_id)
    return True


_SETTINGS = (
    "abort_limit",
    "retry_limit",
    "backoff_ms",
    "backoff_max_ms",
    "execution_limit_s",
    "body_bytes_max",
    "tag_bytes_max",
    "keep_body",
    "limits",
    "on_failure",
)


def alter_queue(state: State, tx: Transaction, op: ops.AlterQueue) -> bool:
    """Answers AlterQueue. Raises InvalidValue, as the schema's CHECKs do."""
    row = find_queue(state, tx, op.queue)
    given = {name: getattr(op, name) for name in _SETTINGS if getattr(op, name) is not None}
    if op.retention is not None:
        given["history_days"] = op.retention.history_days
        if op.retention.history_days != row.settings.history_days:
            row = replace(row, look_at=None)
    kept = {
        field: getattr(row.settings, field)
        for field in ("durable", "error_queue", "order", "history_days", *_SETTINGS)
    }
    flags = {
        name: getattr(op, name)
        for name in ("enqueue_started", "dequeue_started")
        if getattr(op, name) is not None
    }
    changed = replace(row, settings=QueueSettings(**{**kept, **given}), **flags)
    if op.dequeue_started:
        changed = replace(changed, paused_until=None)
        state.breakers.put(tx, row.queue_id, None)
    state.queues.put(tx, row.queue_id, changed)
    return True


def destroy_queue(state: State, tx: Transaction, op: ops.DestroyQueue) -> bool:
    """Answers DestroyQueue."""
    row = find_queue(state, tx, op.queue)
    state.lock(tx, "queue", row.queue_id, exclusive=True)
    reports.refuse_awaited(state, tx, op.queue)
    elements = {element.queue_id for element in state.elements.seen(tx)}
    if row.queue_id in elements:
        raise QueueNotEmpty(f"queue {op.queue!r} is not empty")
    if any(who.reply_queue_id == row.queue_id for who in state.registrants.seen(tx)):
        raise QueueNotEmpty(f"queue {op.queue!r} is a reply queue")
    if any(one.queue == op.queue for one in state.periodics.seen(tx)):
        raise QueueNotEmpty(f"queue {op.queue!r} is that of a periodic request")
    if _serves(state, tx, row.queue_id):
        raise QueueNotEmpty(f"queue {op.queue!r} is the error queue of another")
    state.queues.put(tx, row.queue_id, replace(row, destroyed=True))
    error_id = row.error_queue_id
    if error_id is not None and error_id not in elements and not _serves(state, tx, error_id):
        error_queue = queue_of(state, tx, error_id)
        if error_queue.kind is QueueKind.ERROR:
            state.queues.put(tx, error_id, replace(error_queue, destroyed=True))
    return True


def _serves(state: State, tx: Transaction, queue_id: int) -> bool:
    """Returns whether a queue is the error queue of an existing queue, or of who dequeues."""
    lives = {row.incarnation for row in state.servers.seen(tx)}
    users = [row.error_queue_id for row in state.queues.seen(tx) if not row.destroyed]
    users += [row.error_queue_id for row in state.terms.seen(tx) if row.incarnation in lives]
    return queue_id in users


def list_queues(state: State, tx: Transaction, op: ops.ListQueues) -> list[QueueInfo]:
    """Answers ListQueues."""
    rows = [row for row in state.queues.seen(tx) if not row.destroyed]
    wanted = [row for row in rows if op.queue is None or row.name == op.queue]
    return [_info(state, tx, row) for row in sorted(wanted, key=lambda row: row.name)]


def _info(state: State, tx: Transaction, row: QueueRow) -> QueueInfo:
    inside = [one for one in state.elements.seen(tx) if one.queue_id == row.queue_id]
    free = [one for one in inside if one.claimed_by is None]
    error_id = row.error_queue_id
    error_name = None if error_id is None else queue_of(state, tx, error_id).name
    shown = ("durable", "order", "history_days", *_SETTINGS)
    settings = {field: getattr(row.settings, field) for field in shown}
    return QueueInfo(
        queue_id=row.queue_id,
        name=row.name,
        kind=row.kind,
        settings=QueueSettings(**settings, error_queue=error_name),
        enqueue_started=row.enqueue_started,
        dequeue_started=row.dequeue_started,
        ready=sum(one.lane <= Lane.FRESH for one in free),
        claimed=len(inside) - len(free),
        waiting=sum(one.lane == Lane.DUE for one in free),
        suspect=sum(one.lane == Lane.SUSPECT for one in free),
        held=sum(one.lane == Lane.HELD for one in inside),
        created_at=row.created_at,
        oldest_at=min((one.enqueued_at for one in inside), default=None),
        paused_until=row.paused_until if (row.paused_until or state.now()) > state.now() else None,
    )


# --- elements -----------------------------------------------------------------------------------


def open_for_reports(state: State, tx: Transaction, name: str) -> QueueRow:
    """Returns the queue to which reports are to go. QueueNotFound, QueueStopped, IllegalState."""
    queue = open_queue(state, tx, name, b"")
    if queue.kind is not QueueKind.REQUEST:
        raise IllegalState(f"reports cannot go there: queue {name!r} is an error queue")
    return queue


def enqueue(state: State, tx: Transaction, op: ops.Enqueue) -> UUID:
    """Answers Enqueue."""
    queue = open_queue(state, tx, op.queue, op.body)
    need_room(state, tx, queue, [op.body])
    check_priority(op.priority)
    check_order(queue, op.priority, op.not_before)
    eid = state.new_eid()
    life = None if queue.settings.durable else state.current_life(tx)
    seq = state.elements.new_key()
    row = ElementRow(
        seq=seq,
        eid=eid,
        rid=str(eid) if op.rid is None else op.rid,
        body=op.body,
        role=Role.DATAGRAM,
        queue_id=queue.queue_id,
        lane=lane_of(op.priority, op.not_before),
        priority=op.priority,
        enqueued_at=state.now(),
        not_before=op.not_before,
        expires_at=op.expires_at,
        correlation_id=op.correlation_id,
        content_type=op.content_type,
        properties=op.properties,
        life=life,
    )
    state.elements.put(tx, seq, row)
    reports.ask(state, tx, row, partial(open_for_reports, state, tx))
    return eid


def enqueue_many(state: State, tx: Transaction, op: ops.EnqueueMany) -> list[UUID]:
    """Answers EnqueueMany."""
    largest = max(op.bodies, key=len, default=b"")
    need_room(state, tx, open_queue(state, tx, op.queue, largest), op.bodies)
    each = ops.Enqueue(
        queue=op.queue, body=b"", content_type=op.content_type, properties=op.properties
    )
    return [enqueue(state, tx, replace(each, body=body)) for body in op.bodies]


def read_element(state: State, tx: Transaction, op: ops.ReadElement) -> Element | None:
    """Answers ReadElement."""
    found = [row for row in state.elements.seen(tx) if row.eid == op.eid]
    return to_element(found[0]) if found else None


def peek(state: State, tx: Transaction, op: ops.Peek) -> list[Element]:
    """Answers Peek."""
    queue, now = find_queue(state, tx, op.queue), state.now()

    def due(row: ElementRow) -> datetime:
        return now if row.lane <= Lane.FRESH else row.not_before or now

    rows = [
        row
        for row in state.elements.seen(tx)
        if row.queue_id == queue.queue_id and row.claimed_by is None and row.lane <= Lane.SUSPECT
        if due(row) <= now and (row.expires_at is None or row.expires_at > now)
        if row.life is None or row.life >= state.current_life(tx)
    ]
    rows.sort(key=lambda row: (row.lane, due(row), row.seq))
    return [to_element(row) for row in rows[: op.n]]


def take(state: State, tx: Transaction, op: ops.Take) -> int:
    """Answers Take: concluded when this transaction commits."""
    servers.mark(state, tx, op.incarnation, op.seq)
    row = state.elements.get(tx, op.seq)
    if row is None or row.claimed_by != op.incarnation:
        raise ClaimLost(f"element {op.seq} is no longer claimed")
    if (op.seq, op.incarnation) in tx.taken:
        raise StatementRefused(f"element {op.seq} was taken already", "23505")
    tx.taken[op.seq, op.incarnation] = None
    return tx.xid


def reply_taken(state: State, tx: Transaction, op: ops.ReplyTaken) -> bool:
    """Answers ReplyTaken."""
    del state
    if (op.seq, op.incarnation) not in tx.taken:
        raise IllegalState(f"element {op.seq} was not dequeued in this transaction")
    tx.taken[op.seq, op.incarnation] = op.reply
    return True


def conclude_taken(state: State, tx: Transaction) -> None:
    """Concludes what a transaction took, as its last act. Raises ClaimLost, IllegalState."""
    for (seq, incarnation), reply in tx.taken.items():
        row = state.elements.get(tx, seq)
        if state.elements.is_locked(tx, seq) or row is None or row.claimed_by != incarnation:
            executions.fence(state, tx, seq, incarnation)
            raise ClaimLost(f"element {seq} is no longer claimed")
        if row.reply_queue_id is not None and reply is None:
            raise IllegalState(f"element {row.eid} owes a reply")
        state.elements.put(tx, seq, None)
        outcome = RequestOutcome.DEQUEUED if reply is None else RequestOutcome.DONE
        conclude(state, tx, row, outcome, reply=reply)


def abort_taken(state: State, tx: Transaction, op: ops.AbortTaken) -> Fate:
    """Answers AbortTaken."""
    if op.xid in state.running:
        return Fate.RUNNING
    failure = Failure("rolled_back", "the transaction that dequeued it was rolled back")
    return executions.abort(
        state, tx, (op.seq, op.incarnation), charge=Charge.CHARGE, failure=failure
    )


def kill(state: State, tx: Transaction, op: ops.Kill) -> KillAnswer:
    """Answers Kill: the decision is the lock on the element's row (finding 8)."""
    return kill_eid(state, tx, op.eid)


def kill_eid(state: State, tx: Transaction, eid: UUID | None) -> KillAnswer:
    """Kills the element with this eid, if it is there to be killed."""
    for row in state.elements.seen(tx):
        if row.eid == eid and row.role in SERVED_ROLES:
            if any(row.claimed_by == one.claim for one in state.relays.seen(tx)):
                return KillAnswer.TOO_LATE
            name_another(state, tx, row)
            state.elements.put(tx, row.seq, None)
            failure = Failure("killed", "cancelled before it took effect")
            conclude(state, tx, row, RequestOutcome.CANCELLED, failure=failure)
            return KillAnswer.KILLED
    ended = [row for row in state.history.seen(tx) if row.element.eid == eid]
    if not ended:
        return KillAnswer.NOT_FOUND
    latest = max(ended, key=lambda row: row.finished_at)
    return KillAnswer.KILLED if latest.outcome is RequestOutcome.CANCELLED else KillAnswer.TOO_LATE


def redrive_request(state: State, tx: Transaction, op: ops.Redrive) -> tuple[UUID, str] | None:
    """Answers Redrive: a new request or, if no reply is owed, the element itself (G3)."""
    found = [
        row for row in state.elements.seen(tx) if row.eid == op.eid and row.role == Role.FAILED
    ]
    if not found:
        return None
    old = found[0]
    ended = [
        row
        for row in state.history.seen(tx)
        if row.element.eid == op.eid and row.outcome is RequestOutcome.FAILED
    ]
    home = max(ended, key=lambda row: row.finished_at).element.queue_id
    state.lock(tx, "queue", home, exclusive=False)
    if queue_of(state, tx, home).destroyed:
        raise QueueNotFound(f"the queue in which element {op.eid} failed does not exist any more")
    eid, rid, correlation_id = old.eid, old.rid, old.correlation_id
    if old.reply_queue_id is not None:
        eid = state.new_eid()
        rid, correlation_id = str(eid), str(old.eid)
        state.redriven.put(tx, state.redriven.new_key(), (old.eid, eid))
    state.elements.put(tx, old.seq, None)
    seq = state.elements.new_key()
    now = state.now()
    again = ElementRow(
        seq=seq,
        eid=eid,
        rid=rid,
        body=old.body,
        role=Role.DATAGRAM,
        queue_id=home,
        lane=Lane.DUE,
        priority=old.priority,
        enqueued_at=now,
        not_before=now,
        correlation_id=correlation_id,
        content_type=old.content_type,
        properties=old.properties,
    )
    state.elements.put(tx, seq, again)
    return eid, rid
