"""The oracle's answers to operators about clients: list them, and forget one.

Private to the oracle; the twin of `client.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.errors import IllegalState
from onceq.model import admin_ops
from onceq.model.element import RequestOutcome, Role
from proof.oracle.clients import kept_replies, own_rows, session_tags
from proof.oracle.ends import conclude
from proof.oracle.rows import Failure, RegistrantRow, RegistrationRow
from proof.oracle.spent import drop_spent
from proof.oracle.takeover import name_another

if TYPE_CHECKING:
    from datetime import datetime

    from proof.oracle.rows import Transaction
    from proof.oracle.state import State


def list_clients(
    state: State, tx: Transaction, op: admin_ops.ListClients
) -> list[admin_ops.ClientInfo]:
    """Answers ListClients. Nobody sleeps here, and nobody is older than its connect."""
    found = [row for row in state.registrants.seen(tx) if op.name in {None, row.name}]
    found.sort(key=lambda row: (row.name, row.thread))
    return [_info(state, tx, who) for who in found]


def _info(state: State, tx: Transaction, who: RegistrantRow) -> admin_ops.ClientInfo:
    tags = session_tags(state, tx, who)
    del tags["s_no"], tags["ckpt"]
    own = own_rows(state, tx, who.registrant_id)
    requests = [row for row in own if row.role == Role.REQUEST]
    received = [
        row.recorded_at
        for row in state.registrations.seen(tx)
        if row.registrant_id == who.registrant_id
        and row.kind == "dequeue"
        and (row.rid is not None or row.eid is not None)
        and row.recorded_at is not None
    ]
    ended = [
        row.element.enqueued_at
        for row in state.history.seen(tx)
        if (row.element.registrant_id, row.element.rid) == (who.registrant_id, tags["s_rid"])
    ]
    sent = [row.enqueued_at for row in requests if row.rid == tags["s_rid"]]
    return admin_ops.ClientInfo(
        name=who.name,
        thread=who.thread,
        state="closed" if who.is_closed else who.state,
        epoch=who.epoch,
        requests=len(requests),
        replies=len(own) - len(requests),
        kept=len(kept_replies(state, tx, who.registrant_id)),
        waits=False,
        created_at=who.connected_at or state.now(),
        connected_at=who.connected_at,
        sent_at=sent[0] if sent else max(ended, default=None),
        received_at=max(received, default=None),
        **tags,
    )


def forget_client(
    state: State, tx: Transaction, op: admin_ops.ForgetClient
) -> list[admin_ops.Forgotten]:
    """Answers ForgetClient."""
    state.current_life(tx)
    found = [
        row
        for row in state.registrants.seen(tx)
        if row.name == op.name and op.thread in {None, row.thread}
    ]
    answer: list[admin_ops.Forgotten] = []
    for one in sorted(found, key=lambda row: row.registrant_id):
        state.lock(tx, "registrant", one.registrant_id, exclusive=True)
        who = state.registrants.get(tx, one.registrant_id) or one
        outstanding = len(own_rows(state, tx, who.registrant_id))
        if not op.forced and (who.state == "connected" or outstanding):
            raise IllegalState(
                f"client {who.name!r} is {who.state}, with {outstanding} request(s) or replies "
                "outstanding: it is not forgotten"
            )
        answer.append(_forget(state, tx, who))
    return answer


def close_client(
    state: State, tx: Transaction, op: admin_ops.CloseClient
) -> list[admin_ops.Forgotten]:
    """Answers CloseClient."""
    forget = admin_ops.ForgetClient(name=op.name, forced=op.forced)
    answer = forget_client(state, tx, forget)
    for who in state.registrants.seen(tx):
        if who.name == op.name:
            closed = replace(who, is_closed=True, has_spent=True)
            state.registrants.put(tx, who.registrant_id, closed)
            drop_spent(state, tx, who.registrant_id)
    return answer


def _forget(state: State, tx: Transaction, who: RegistrantRow) -> admin_ops.Forgotten:
    tags = session_tags(state, tx, who)
    own = own_rows(state, tx, who.registrant_id)
    requests = [row for row in own if row.role == Role.REQUEST]
    for row in requests:
        name_another(state, tx, row)
        state.elements.put(tx, row.seq, None)
        failure = Failure("forgotten", "its client was forgotten before it took effect")
        conclude(state, tx, row, RequestOutcome.CANCELLED, failure=failure)
    kept = kept_replies(state, tx, who.registrant_id)
    for row in [*own_rows(state, tx, who.registrant_id), *kept]:
        state.elements.put(tx, row.seq, None)
    registrations, recorded = _drop_registrations(state, tx, who)
    if who.reply_queue_id is not None:
        tombstone = RegistrationRow(
            registrant_id=who.registrant_id,
            queue_id=who.reply_queue_id,
            kind="dequeue",
            rid=tags["r_rid"],
            sent_rid=tags["s_rid"],
            sent_no=tags["s_no"],
            recorded_at=recorded,
        )
        state.registrations.put(tx, state.registrations.new_key(), tombstone)
    over = replace(who, epoch=who.epoch + 1, state="disconnected")
    state.registrants.put(tx, who.registrant_id, over)
    return admin_ops.Forgotten(
        thread=who.thread,
        epoch=over.epoch,
        s_rid=tags["s_rid"],
        r_rid=tags["r_rid"],
        cancelled=len(requests),
        replies=len(own) - len(requests),
        kept=len(kept),
        registrations=registrations,
    )


def _drop_registrations(state: State, tx: Transaction, who: RegistrantRow) -> tuple[int, datetime]:
    """Removes registrations; returns how many with others' queues, and when it was last heard."""
    others, recorded = 0, state.now()
    times: list[datetime] = []
    for key in list({**state.registrations.rows, **state.registrations.pending}):
        row = state.registrations.get(tx, key)
        if row is not None and row.registrant_id == who.registrant_id:
            others += row.queue_id != who.reply_queue_id
            times += [] if row.recorded_at is None else [row.recorded_at]
            state.registrations.put(tx, key, None)
    return others, max(times, default=recorded)
