"""The oracle's answers to the Ops of a desk: what fits is done for each, and the rest left out."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from onceq.errors import OnceqError
from onceq.model import desk_ops, ops
from onceq.model.attributes import REPORTS
from onceq.model.element import Element
from onceq.model.ops import Identity
from onceq.model.queue import UNLIMITED, QueueKind
from proof.oracle import clients
from proof.oracle.clients import own_rows
from proof.oracle.rows import Blocked, Transaction
from proof.oracle.spent import ended
from proof.oracle.state import State, find_queue, to_element

if TYPE_CHECKING:
    from collections.abc import Iterator


def _whose(
    op: desk_ops.SendEach | desk_ops.ReceiveEach | desk_ops.AcknowledgeEach,
) -> Iterator[tuple[int, Identity]]:
    """Yields the place of each, from 1, and who asks."""
    for place, (number, epoch) in enumerate(zip(op.registrants, op.epochs, strict=True), 1):
        yield place, Identity(registrant_id=number, epoch=epoch)


def _lives(state: State, tx: Transaction, who: Identity) -> bool:
    row = state.registrants.get(tx, who.registrant_id)
    return row is not None and row.epoch == who.epoch


def _is_held(state: State, tx: Transaction, who: Identity) -> bool:
    """Tries an anchor, and returns whether this transaction has it."""
    with contextlib.suppress(Blocked):
        state.lock(tx, "registrant", who.registrant_id, exclusive=False)
        return True
    return False


def send_each(state: State, tx: Transaction, op: desk_ops.SendEach) -> dict[int, ops.Sent]:
    """Answers SendEach."""
    held = [(place, who) for place, who in _whose(op) if _is_held(state, tx, who)]
    with contextlib.suppress(OnceqError):
        queue = find_queue(state, tx, op.queue)
        with contextlib.suppress(Blocked):
            state.lock(tx, "queue", queue.queue_id, exclusive=False)
            is_plain = queue.settings.durable and queue.settings.limits == UNLIMITED
            if is_plain and queue.kind is not QueueKind.REPLY:
                return {
                    place: clients.send(state, tx, sent)
                    for place, who in held
                    if (sent := _plain_send(state, tx, op, (place, who))) is not None
                }
    return {}


def _plain_send(
    state: State, tx: Transaction, op: desk_ops.SendEach, of: tuple[int, Identity]
) -> ops.Send | None:
    """Returns the send of one of them; None: it does not fit."""
    at, who = of[0] - 1, of[1]
    rid, body = op.rids[at], op.bodies[at]
    own = [*own_rows(state, tx, who.registrant_id), *ended(state, tx, who.registrant_id)]
    known = [row.rid for row in own]
    queue = find_queue(state, tx, op.queue)
    is_plain = REPORTS not in op.properties[at]
    fits = is_plain and queue.enqueue_started and len(body) <= queue.settings.body_bytes_max
    if not fits or rid in known or not _lives(state, tx, who):
        return None
    properties = op.properties[at]
    return ops.Send(
        who=who,
        queue=op.queue,
        request=ops.Request(
            rid=rid,
            body=body,
            priority=op.priority,
            properties=json.loads(properties) if properties else None,
        ),
        send_no=op.send_nos[at],
        ack=[op.acks[at]] if op.acks[at] else [],
        content_type=op.content_type,
        keep=op.keeps[at],
    )


def receive_each(
    state: State, tx: Transaction, op: desk_ops.ReceiveEach
) -> dict[int, list[Element]]:
    """Answers ReceiveEach."""
    found: dict[int, list[Element]] = {}
    for place, who in _whose(op):
        if not _lives(state, tx, who):
            continue
        rid = op.rids[place - 1] or None
        look = ops.Receive(who=who, rid=rid, skip=[], s_rid=None, s_no=0)
        replies = clients.waiting_replies(state, tx, look)[:1]
        expires = any(row.expires_at is not None for row in own_rows(state, tx, who.registrant_id))
        if replies or not expires:
            found[place] = [to_element(row) for row in replies]
    return found


def acknowledge_each(state: State, tx: Transaction, op: desk_ops.AcknowledgeEach) -> dict[int, int]:
    """Answers AcknowledgeEach."""
    held = [(place, who) for place, who in _whose(op) if _is_held(state, tx, who)]
    return {
        place: clients.acknowledge(
            state,
            tx,
            ops.Acknowledge(
                who=who,
                rids=[op.rids[place - 1]],
                ckpt=None,
                s_rid=op.s_rids[place - 1] or None,
                s_no=op.s_nos[place - 1],
                keep=op.keeps[place - 1],
            ),
        )
        for place, who in held
        if _lives(state, tx, who)
    }
