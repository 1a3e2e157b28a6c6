"""The oracle's answers about registrations and tagged operations.

Private to the oracle; the twin of `registration.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from onceq.errors import IllegalState, TooLarge
from onceq.model import ops
from onceq.model.element import KillAnswer, RequestOutcome
from onceq.model.queue import QueueKind
from proof.oracle import queues, servers
from proof.oracle.ends import conclude
from proof.oracle.rows import (
    Blocked,
    ElementRow,
    QueueRow,
    RegistrantRow,
    RegistrationRow,
    Transaction,
)
from proof.oracle.state import (
    State,
    check_epoch,
    find_queue,
    to_element,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from onceq.model.element import Element

    Tagged: TypeAlias = (
        ops.BeginTagged | ops.EnqueueTagged | ops.ReadTagged | ops.KillTagged | ops.TakeTagged
    )


def anchor(state: State, tx: Transaction, name: str, thread: str) -> RegistrantRow:
    """Returns the anchor of a registrant, made if there is none, locked for this transaction.

    Raises IllegalState: its name was closed.
    """
    if any(row.name == name and row.is_closed for row in state.registrants.seen(tx)):
        raise IllegalState(
            f'client "{name}" was closed: what it has sent is forgotten, and would run twice: '
            "connect by a name that was never used"
        )
    for row in state.registrants.seen(tx):
        if row.name == name and row.thread == thread:
            break
    else:
        if any(one.name == name and one.thread == thread for one in state.registrants.changing(tx)):
            raise Blocked  # its key is unique: the insert waits for the other to end
        row = RegistrantRow(registrant_id=state.registrants.new_key(), name=name, thread=thread)
        state.registrants.put(tx, row.registrant_id, row)
    state.lock(tx, "registrant", row.registrant_id, exclusive=True)
    return state.registrants.get(tx, row.registrant_id) or row


def last(
    state: State, tx: Transaction, registrant_id: int, queue_id: int | None
) -> tuple[int, RegistrationRow] | None:
    """Returns the registration of a registrant with a queue, and its key."""
    seen = state.registrations.seen(tx)
    if any(row.registrant_id == registrant_id and row.queue_id == queue_id for row in seen):
        for key in reversed(list({**state.registrations.rows, **state.registrations.pending})):
            row = state.registrations.get(tx, key)
            if row and row.registrant_id == registrant_id and row.queue_id == queue_id:
                return key, row
    return None


def _not_of_a_client(queue: QueueRow) -> QueueRow:
    """Returns a queue. IllegalState: it has the replies to a client, whose clerk alone uses it."""
    if queue.kind is QueueKind.REPLY:
        raise IllegalState(f"queue {queue.name!r} is a client's own")
    return queue


def register(state: State, tx: Transaction, op: ops.Register) -> list[ops.Registered]:
    """Answers Register."""
    queue = _not_of_a_client(find_queue(state, tx, op.queue))
    who = anchor(state, tx, op.name, op.thread)
    if op.epoch is None:
        who = replace(who, epoch=who.epoch + 1, state="connected", connected_at=state.now())
        state.registrants.put(tx, who.registrant_id, who)
    else:
        check_epoch(state, tx, ops.Identity(registrant_id=who.registrant_id, epoch=op.epoch))
    if last(state, tx, who.registrant_id, queue.queue_id) is None:
        row = RegistrationRow(
            registrant_id=who.registrant_id, queue_id=queue.queue_id, stable=op.stable
        )
        state.registrations.put(tx, state.registrations.new_key(), row)
    others = [one for one in state.registrants.seen(tx) if one.name == op.name]
    others.sort(key=lambda one: (one.registrant_id != who.registrant_id, one.thread))
    return list(_registered(state, tx, others, queue.queue_id))


def _registered(
    state: State, tx: Transaction, registrants: list[RegistrantRow], queue_id: int
) -> Iterator[ops.Registered]:
    for who in registrants:
        found = last(state, tx, who.registrant_id, queue_id)
        if found is not None:
            yield ops.Registered(
                registrant_id=who.registrant_id,
                epoch=who.epoch,
                thread=who.thread,
                kind=found[1].kind,
                eid=found[1].eid,
                tag=found[1].tag,
            )


def deregister(state: State, tx: Transaction, op: ops.Deregister) -> bool:
    """Answers Deregister."""
    queue = find_queue(state, tx, op.queue)
    state.lock(tx, "registrant", op.who.registrant_id, exclusive=True)
    check_epoch(state, tx, op.who)
    found = last(state, tx, op.who.registrant_id, queue.queue_id)
    if found is not None:
        state.registrations.put(tx, found[0], None)
    return found is not None


def record(state: State, tx: Transaction, row: RegistrationRow) -> None:
    """Appends a registration row and removes the former one."""
    former = last(state, tx, row.registrant_id, row.queue_id)
    state.registrations.put(tx, state.registrations.new_key(), row)
    if former is not None:
        state.registrations.put(tx, former[0], None)


def begin_tagged(state: State, tx: Transaction, op: Tagged) -> int:
    """Answers BeginTagged, and begins whatever is tagged: its registrant does nothing else."""
    queue = find_queue(state, tx, op.queue)
    state.lock(tx, "registrant", op.who.registrant_id, exclusive=True)
    check_epoch(state, tx, op.who)
    _not_of_a_client(queue)
    if op.tag is not None and len(op.tag) > queue.settings.tag_bytes_max:
        raise TooLarge(f"the tag has {len(op.tag)} bytes")
    if last(state, tx, op.who.registrant_id, queue.queue_id) is None:
        raise IllegalState(f"registrant {op.who.registrant_id} is not registered with this queue")
    return queue.queue_id


def _record_operation(state: State, tx: Transaction, row: RegistrationRow) -> None:
    former = last(state, tx, row.registrant_id, row.queue_id)
    if former is not None and former[1].stable:
        record(state, tx, row)


def _row_of(op: Tagged, queue_id: int, kind: str) -> RegistrationRow:
    who = op.who.registrant_id
    return RegistrationRow(registrant_id=who, queue_id=queue_id, kind=kind, tag=op.tag)


def enqueue_tagged(state: State, tx: Transaction, op: ops.EnqueueTagged) -> UUID:
    """Answers EnqueueTagged."""
    row = _row_of(op, begin_tagged(state, tx, op), "enqueue")
    eid = queues.enqueue(state, tx, ops.Enqueue(queue=op.queue, body=op.body))
    _record_operation(state, tx, replace(row, eid=eid, body=op.body))
    return eid


def read_tagged(state: State, tx: Transaction, op: ops.ReadTagged) -> Element | None:
    """Answers ReadTagged."""
    row = _row_of(op, begin_tagged(state, tx, op), "read")
    found = queues.read_element(state, tx, ops.ReadElement(eid=op.eid))
    if found is not None:
        _record_operation(state, tx, replace(row, eid=op.eid, body=found.body))
    return found


def kill_tagged(state: State, tx: Transaction, op: ops.KillTagged) -> KillAnswer:
    """Answers KillTagged."""
    row = _row_of(op, begin_tagged(state, tx, op), "kill")
    found = queues.read_element(state, tx, ops.ReadElement(eid=op.eid))
    answer = queues.kill_eid(state, tx, op.eid)
    if answer is KillAnswer.KILLED:
        body = None if found is None else found.body
        _record_operation(state, tx, replace(row, eid=op.eid, body=body))
    return answer


def take_tagged(state: State, tx: Transaction, op: ops.TakeTagged) -> int:
    """Answers TakeTagged."""
    row = _row_of(op, begin_tagged(state, tx, op), "dequeue")
    xid = queues.take(state, tx, ops.Take(seq=op.seq, incarnation=op.incarnation))
    taken = state.elements.get(tx, op.seq)
    if taken is not None:
        _record_operation(state, tx, replace(row, eid=taken.eid, body=taken.body))
    return xid


def dequeue(state: State, tx: Transaction, op: ops.Dequeue) -> Element | None:
    """Answers Dequeue."""
    queue = find_queue(state, tx, op.queue)
    mine = state.next_incarnation()
    if op.who is not None:
        begun = ops.BeginTagged(who=op.who, queue=op.queue, tag=op.tag)
        begin_tagged(state, tx, begun)
    row: ElementRow | None = None
    if op.eid is None:
        turn = servers.Turn(queue.queue_id, 1, mine, alone=True)
        row = next(iter(servers.claim_rows(state, tx, mine, turn)), None)
    else:
        wanted = ops.ClaimEid(incarnation=mine, queue_id=queue.queue_id, eid=op.eid)
        row = servers.claim_row(state, tx, wanted)
    if row is None:
        return None
    if row.reply_queue_id is not None:
        raise IllegalState(f"element {row.eid} owes a reply")
    state.elements.put(tx, row.seq, None)
    conclude(state, tx, row, RequestOutcome.DEQUEUED)
    if op.who is not None:
        done = RegistrationRow(
            registrant_id=op.who.registrant_id,
            queue_id=queue.queue_id,
            kind="dequeue",
            eid=row.eid,
            tag=op.tag,
            body=row.body,
        )
        _record_operation(state, tx, done)
    return to_element(row)


def read_last(state: State, tx: Transaction, op: ops.ReadLast) -> ops.LastOperation | None:
    """Answers ReadLast."""
    queue = find_queue(state, tx, op.queue)
    who = state.registrants.get(tx, op.who.registrant_id)
    found = last(state, tx, op.who.registrant_id, queue.queue_id)
    if who is None or who.epoch != op.who.epoch or found is None:
        check_epoch(state, tx, op.who)
        return None
    row = found[1]
    return ops.LastOperation(kind=row.kind, eid=row.eid, tag=row.tag, body=row.body)
