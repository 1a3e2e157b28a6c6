"""What the oracle answers to clerks.

Private to the oracle; the twin of `request.sql`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq.errors import IllegalState, RidReused, TooLarge
from onceq.model import ops
from onceq.model.element import Lane, Role
from onceq.model.end_user import end_user_in
from onceq.model.queue import QueueKind
from proof.oracle import queues, reports
from proof.oracle.ends import expire
from proof.oracle.limits import need_room
from proof.oracle.order import check_order
from proof.oracle.registrations import anchor, last, record
from proof.oracle.rows import (
    Blocked,
    ElementRow,
    Received,
    RegistrantRow,
    RegistrationRow,
    Transaction,
)
from proof.oracle.spent import ended
from proof.oracle.state import (
    CLIENT_ROLES,
    State,
    check_epoch,
    check_priority,
    lane_of,
    open_queue,
    queue_of,
    to_element,
)

if TYPE_CHECKING:
    from onceq.model.element import Element, EndUser, KillAnswer

Settles = ops.BeginReply | ops.SettleReply | ops.TakeReply
SaysLast = ops.Acknowledge | ops.Disconnect | ops.Receive | Settles
"""The Ops by which a client says, besides, what it sent last."""


def own_rows(state: State, tx: Transaction, registrant_id: int) -> list[ElementRow]:
    """Returns a registrant's requests and replies, oldest element first, without kept ones."""
    return [
        row
        for row in state.elements.seen(tx)
        if row.registrant_id == registrant_id and row.role in CLIENT_ROLES and row.lane != Lane.KEPT
    ]


def kept_replies(state: State, tx: Transaction, registrant_id: int) -> list[ElementRow]:
    """Returns the replies kept after their acknowledgement, in the order of acknowledgement."""
    kept = [
        row
        for row in state.elements.seen(tx)
        if row.registrant_id == registrant_id and row.lane == Lane.KEPT
    ]
    return sorted(kept, key=lambda row: row.kept_no)


def connect(state: State, tx: Transaction, op: ops.Connect) -> ops.Connection:
    """Answers Connect: the exclusive lock waits for ghosts of the former life (finding 1)."""
    state.current_life(tx)
    who = anchor(state, tx, op.name, op.thread)
    name = f"reply-{who.registrant_id}"
    reply_queue = who.reply_queue_id
    if reply_queue is None:
        reply_queue = queues.new_queue(state, tx, name, QueueKind.REPLY).queue_id
    now = replace(
        who,
        epoch=who.epoch + 1,
        state="connected",
        reply_queue_id=reply_queue,
        connected_at=state.now(),
    )
    state.registrants.put(tx, who.registrant_id, now)
    if op.keep is not None:
        _trim_kept(state, tx, who.registrant_id, op.keep)
    return ops.Connection(
        registrant_id=who.registrant_id,
        epoch=now.epoch,
        reply_queue=name,
        was=who.state,
        **session_tags(state, tx, now),
    )


def session_tags(state: State, tx: Transaction, who: RegistrantRow) -> dict[str, Any]:
    """Returns what a thread of a client sent and received last."""
    found = last(state, tx, who.registrant_id, who.reply_queue_id)
    received = RegistrationRow(registrant_id=0, queue_id=0) if found is None else found[1]
    received_no = received.sent_no or 0
    own = [row for row in own_rows(state, tx, who.registrant_id) if row.send_no is not None]
    sent = max(own, key=lambda row: row.send_no or 0, default=None)
    s_rid, s_no, s_state, r_rid = received.sent_rid, received_no, "done", received.rid
    if sent is not None and (sent.send_no or 0) >= received_no:
        s_rid, s_no, s_state = sent.rid, sent.send_no or 0, sent.role
    if sent is not None and sent.ack_rid is not None and (sent.send_no or 0) > received_no:
        r_rid = sent.ack_rid
    ckpt = received.tag if r_rid is not None and r_rid == received.rid else None
    return {"s_rid": s_rid, "s_no": s_no, "s_state": s_state, "r_rid": r_rid, "ckpt": ckpt}


def threads(state: State, tx: Transaction, op: ops.Threads) -> list[ops.ThreadTags]:
    """Answers Threads."""
    if op.who is not None:
        check_epoch(state, tx, op.who)
    found = [row for row in state.registrants.seen(tx) if row.name == op.name]
    answer: list[ops.ThreadTags] = []
    for who in sorted(found, key=lambda row: row.thread):
        tags = session_tags(state, tx, who)
        del tags["s_no"]
        own = own_rows(state, tx, who.registrant_id)
        answer.append(
            ops.ThreadTags(
                thread=who.thread,
                registrant_id=who.registrant_id,
                epoch=who.epoch,
                was=who.state,
                outstanding=sum(row.rid != tags["r_rid"] for row in own),
                **tags,
            )
        )
    return answer


def _user(state: State, tx: Transaction, registrant_id: int, rid: str | None) -> EndUser | None:
    """Returns the end user of a request: from it, its reply, or, of the last one, the record."""
    for row in own_rows(state, tx, registrant_id):
        if row.rid == rid:
            return end_user_in(row.properties)
    who = state.registrants.get(tx, registrant_id)
    found = last(state, tx, registrant_id, who.reply_queue_id if who else None)
    return found[1].user if found is not None and found[1].sent_rid == rid else None


def last_user(state: State, tx: Transaction, op: ops.LastUser) -> EndUser | None:
    """Answers LastUser."""
    check_epoch(state, tx, op.who)
    return None if op.rid is None else _user(state, tx, op.who.registrant_id, op.rid)


def record_receive(state: State, tx: Transaction, op: SaysLast, received: Received) -> None:
    """Records what a client received last, and what it says that it sent last."""
    rid, eid, ckpt = received
    who = state.registrants.get(tx, op.who.registrant_id)
    queue = queue_of(state, tx, (who.reply_queue_id if who else None) or 0)
    if ckpt is not None and len(ckpt) > queue.settings.tag_bytes_max:
        raise TooLarge(f"the checkpoint has {len(ckpt)} bytes")
    row = RegistrationRow(
        registrant_id=op.who.registrant_id,
        queue_id=queue.queue_id,
        kind="dequeue",
        user=_user(state, tx, op.who.registrant_id, op.s_rid),
        eid=eid,
        tag=ckpt,
        rid=rid,
        sent_rid=op.s_rid,
        sent_no=op.s_no,
        recorded_at=state.now(),
    )
    record(state, tx, row)


def _free_replies(
    state: State, tx: Transaction, registrant_id: int, rids: list[str], *, keep: int
) -> int:
    gone = [
        row
        for row in own_rows(state, tx, registrant_id)
        if row.role == Role.REPLY and row.rid in rids
    ]
    kept_no = max((row.kept_no for row in kept_replies(state, tx, registrant_id)), default=0)
    for row in gone:
        place = rids.index(row.rid)
        kept = replace(row, lane=Lane.KEPT, kept_no=kept_no + place + 1)
        state.elements.put(tx, row.seq, kept if place >= len(rids) - keep else None)
    if keep > 0:
        _trim_kept(state, tx, registrant_id, keep)
    return len(gone)


def _trim_kept(state: State, tx: Transaction, registrant_id: int, keep: int) -> None:
    kept = kept_replies(state, tx, registrant_id)
    for row in kept[: max(0, len(kept) - keep)]:
        state.elements.put(tx, row.seq, None)


def disconnect(state: State, tx: Transaction, op: ops.Disconnect) -> bool:
    """Answers Disconnect: leaves a tombstone (finding 3)."""
    state.lock(tx, "registrant", op.who.registrant_id, exclusive=True)
    check_epoch(state, tx, op.who)
    record_receive(state, tx, op, Received(op.r_rid, None, op.ckpt))
    _free_replies(state, tx, op.who.registrant_id, op.received, keep=0)
    _trim_kept(state, tx, op.who.registrant_id, 0)
    left = own_rows(state, tx, op.who.registrant_id)
    if left:
        raise IllegalState(f"request {left[0].rid!r} is still outstanding")
    who = state.registrants.get(tx, op.who.registrant_id)
    if who is not None:
        ended = replace(who, state="disconnected", epoch=who.epoch + 1)
        state.registrants.put(tx, who.registrant_id, ended)
    return True


def _is_changing(state: State, tx: Transaction, op: ops.Send) -> bool:
    """Whether an open transaction is changing what has this rid: the insert waits for its end."""
    sent = (op.who.registrant_id, op.request.rid)
    return any(
        (one.registrant_id, one.rid) == sent and one.role in CLIENT_ROLES
        for one in state.elements.changing(tx)
    )


def _sent_before(state: State, tx: Transaction, op: ops.Send) -> ops.Sent | None:
    """Returns what is known of a rid that was sent before. RidReused: with other content.

    Blocked: a transaction that may conclude it has not ended.
    """
    me, rid = op.who.registrant_id, op.request.rid
    there = [row for row in own_rows(state, tx, me) if row.rid == rid]
    done = [row for row in ended(state, tx, me) if row.rid == rid]
    if not done and _is_changing(state, tx, op):
        raise Blocked
    known = there[0] if there and there[0].role == Role.REQUEST else next(iter(done), None)
    if known is None:
        return None
    if known.body != op.request.body:
        raise RidReused(f"rid {rid!r} was sent before with other content")
    if not there:
        return ops.Sent(eid=known.eid, state="done")
    return ops.Sent(eid=known.eid, state="queued" if known is there[0] else "replied")


def send(state: State, tx: Transaction, op: ops.Send) -> ops.Sent:
    """Answers Send."""
    check_epoch(state, tx, op.who)
    request = op.request
    queue = open_queue(state, tx, op.queue, request.body)
    before = _sent_before(state, tx, op)
    if before is not None:
        return before
    need_room(state, tx, queue, [request.body])
    check_priority(request.priority)
    check_order(queue, request.priority, request.not_before)
    _free_replies(state, tx, op.who.registrant_id, op.ack, keep=op.keep)
    who = state.registrants.get(tx, op.who.registrant_id)
    eid = state.new_eid()
    life = None if queue.settings.durable else state.current_life(tx)
    seq = state.elements.new_key()
    row = ElementRow(
        seq=seq,
        eid=eid,
        rid=request.rid,
        body=request.body,
        role=Role.REQUEST,
        queue_id=queue.queue_id,
        reply_queue_id=None if who is None else who.reply_queue_id,
        registrant_id=op.who.registrant_id,
        send_no=op.send_no,
        ack_rid=op.ack[-1] if op.ack else None,
        lane=lane_of(request.priority, request.not_before),
        priority=request.priority,
        enqueued_at=state.now(),
        not_before=request.not_before,
        expires_at=request.expires_at,
        content_type=op.content_type,
        properties=request.properties,
        life=life,
    )
    state.elements.put(tx, seq, row)
    reports.ask(state, tx, row, partial(queues.open_for_reports, state, tx))
    return ops.Sent(eid=eid, state="new")


def send_many(state: State, tx: Transaction, op: ops.SendMany) -> list[ops.Sent]:
    """Answers SendMany."""
    check_epoch(state, tx, op.who)
    queue = open_queue(state, tx, op.queue, b"")
    properties = [json.loads(text or "null") for text in op.properties or [None] * len(op.rids)]
    each = [
        ops.Send(
            who=op.who,
            queue=op.queue,
            request=ops.Request(rid=rid, body=body, properties=given),
            send_no=op.send_no + number,
            ack=[] if number else op.ack,
            content_type=op.content_type,
            keep=op.keep,
        )
        for number, (rid, body, given) in enumerate(
            zip(op.rids, op.bodies, properties, strict=True)
        )
    ]
    new = [one.request.body for one in each if _sent_before(state, tx, one) is None]
    need_room(state, tx, queue, new)
    return [send(state, tx, one) for one in each]


def next_expiry(state: State, tx: Transaction, op: ops.NextExpiry) -> float | None:
    """Answers NextExpiry."""
    check_epoch(state, tx, op.who)
    now = state.now()
    left = [
        (row.expires_at - now).total_seconds()
        for row in own_rows(state, tx, op.who.registrant_id)
        if row.expires_at is not None and row.claimed_by is None and row.role == Role.REQUEST
    ]
    return min(left, default=None)


def _expire_requests(state: State, tx: Transaction, registrant_id: int) -> None:
    now = state.now()
    for row in own_rows(state, tx, registrant_id):
        due = row.expires_at is not None and row.expires_at <= now
        free = row.claimed_by is None and not state.elements.is_locked(tx, row.seq)
        if due and free and row.role == Role.REQUEST:
            expire(state, tx, row)


def waiting_replies(state: State, tx: Transaction, op: ops.Receive) -> list[ElementRow]:
    """Returns the replies that a receive looks for."""
    if op.rid is not None:
        own = own_rows(state, tx, op.who.registrant_id) + kept_replies(
            state, tx, op.who.registrant_id
        )
        named = [row for row in own if row.rid == op.rid and row.role == Role.REPLY]
        return [row for row in named if row.rid not in op.skip]
    replies = [
        row
        for row in own_rows(state, tx, op.who.registrant_id)
        if row.role == Role.REPLY and row.rid not in op.skip and row.seq > op.after
    ]
    return sorted(replies, key=lambda row: row.seq)


def receive(state: State, tx: Transaction, op: ops.Receive) -> list[Element]:
    """Answers Receive. An expired request gets its reply if there is no other reply."""
    check_epoch(state, tx, op.who)
    replies = waiting_replies(state, tx, op)
    if not replies:
        _expire_requests(state, tx, op.who.registrant_id)
        replies = waiting_replies(state, tx, op)
    for row in replies[: op.limit]:
        if op.ckpt is not None:
            record_receive(state, tx, op, Received(row.rid, row.eid, op.ckpt))
    return [to_element(row) for row in replies[: op.limit]]


def acknowledge(state: State, tx: Transaction, op: ops.Acknowledge) -> int:
    """Answers Acknowledge."""
    check_epoch(state, tx, op.who)
    who = state.registrants.get(tx, op.who.registrant_id)
    found = last(state, tx, op.who.registrant_id, who.reply_queue_id if who else None)
    received = Received(op.rids[-1], None, op.ckpt)
    if op.ckpt is None and found is not None and found[1].tag is not None:
        own = own_rows(state, tx, op.who.registrant_id)
        if (Role.REPLY, found[1].rid) in [(row.role, row.rid) for row in own]:
            received = Received(found[1].rid, None, found[1].tag)
    record_receive(state, tx, op, received)
    return _free_replies(state, tx, op.who.registrant_id, op.rids, keep=op.keep)


def cancel_request(state: State, tx: Transaction, op: ops.CancelRequest) -> KillAnswer:
    """Answers CancelRequest."""
    check_epoch(state, tx, op.who)
    there = [
        row.eid
        for row in own_rows(state, tx, op.who.registrant_id)
        if row.rid == op.rid and row.role == Role.REQUEST
    ]
    ended = [
        (row.finished_at, row.element.eid)
        for row in state.history.seen(tx)
        if row.element.rid == op.rid and row.element.registrant_id == op.who.registrant_id
    ]
    eid = there[0] if there else max(ended)[1] if ended else None
    return queues.kill_eid(state, tx, eid)
