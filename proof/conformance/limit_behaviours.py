"""Behaviours of a queue with limits: what it refuses, and what it never refuses (Q13).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.session import Session
from onceq.manager.program import show
from onceq.model import desk_ops, ops
from onceq.model.element import Charge, Fate, RequestOutcome
from onceq.model.queue import Limits, Queue
from proof.conformance.ground import (
    NotConformant,
    abort,
    claim,
    declared,
    execute,
    live,
    refuses,
    same,
)

if TYPE_CHECKING:
    from proof.conformance.ground import Connection, Repository

TWO: Queue[bytes, bytes] = Queue(
    "orders", bytes, bytes, abort_limit=1, backoff_ms=0, limits=Limits(depth=2, bytes=1000)
)


def _client(place: Repository, name: str = "till-7") -> tuple[Connection, Session[Any, Any]]:
    """Returns a client that is connected, with the queue declared."""
    connection = declared(place, TWO)
    session: Session[Any, Any] = Session(name=name, thread="", queue=TWO, window=10, keep=0)
    connection.run(clerk.connect(session))
    return connection, session


def _send(connection: Connection, session: Session[Any, Any], rid: str) -> ops.Sent:
    return connection.run(clerk.send(session, ops.Request(rid=rid, body=rid.encode())))


def _is_full(connection: Connection, session: Session[Any, Any]) -> None:
    """Every way in is refused, and nothing happened."""
    before = connection.run(show("orders")).depth
    who = session.who
    send = ops.Send(
        who=who,
        queue="orders",
        request=ops.Request(rid="new", body=b"x"),
        send_no=session.s_no + 1,
        ack=[],
        content_type=None,
    )
    many = ops.SendMany(
        who=who,
        queue="orders",
        rids=["new", "newer"],
        bodies=[b"x", b"x"],
        send_no=session.s_no + 1,
        ack=[],
        content_type=None,
    )
    (hand,) = connection.perform(ops.Register(queue="orders", name="hand"))
    tagged = ops.EnqueueTagged(who=hand.who, queue="orders", body=b"x", tag=b"t")
    ways: tuple[ops.Op[Any], ...] = (
        send,
        many,
        tagged,
        ops.Enqueue(queue="orders", body=b"x"),
        ops.Enqueue(queue="orders", body=b"x", not_before=None, own_transaction=False),
        ops.EnqueueMany(queue="orders", bodies=[b"x"], content_type=None),
        ops.AlertLate(who=who, rid=None, late_s=0.0, queue="orders"),
    )
    for way in ways:
        refuses(connection, errors.QueueFull, way, 'queue "orders" is full')
    each = desk_ops.SendEach(
        queue="orders",
        priority=4,
        content_type=None,
        registrants=[who.registrant_id],
        epochs=[who.epoch],
        send_nos=[session.s_no + 1],
        rids=["new"],
        acks=[""],
        keeps=[0],
        properties=[""],
        sha256s=[ops.Request(rid="new", body=b"x").sha256],
        bodies=[b"x"],
    )
    same(connection.perform(each), {})
    same(connection.run(show("orders")).depth, before)


def a_full_queue_refuses_every_way_in(place: Repository) -> None:
    """By depth; what was sent before is known, and what has ended makes room."""
    connection, session = _client(place)
    same(connection.run(show("orders")).settings.limits, Limits(depth=2, bytes=1000))
    for rid in ("1", "2"):
        same(_send(connection, session, rid).state, "new")
    _is_full(connection, session)
    life = live(connection)
    (element,) = claim(connection, life)
    _is_full(connection, session)
    execute(connection, life, element)
    same(_send(connection, session, "3").state, "new")
    _is_full(connection, session)


def what_a_full_queue_has_it_knows(place: Repository) -> None:
    """A rid that was sent before gets its answer, alone or among others; also after a crash."""
    connection, session = _client(place)
    many = [ops.Request(rid=rid, body=rid.encode()) for rid in "12"]
    connection.run(clerk.send_many(session, many))
    other, again = _client(place)
    same([one.state for one in other.run(clerk.send_many(again, many))], ["queued", "queued"])
    same(_send(other, again, "1").state, "queued")
    other, again = _client(place)
    life = live(other)
    execute(other, life, claim(other, life)[0])
    answers = other.run(clerk.send_many(again, [*many, ops.Request(rid="3", body=b"3")]))
    same([one.state for one in answers], ["replied", "queued", "new"])


def bytes_are_limited_too(place: Repository) -> None:
    """All bodies together; one that never fits is too large; a batch goes whole or not at all."""
    connection, session = _client(place)
    enqueue = ops.Enqueue(queue="orders", body=b"x" * 1001)
    refuses(connection, errors.TooLarge, enqueue, "never fits")
    connection.perform(ops.Enqueue(queue="orders", body=b"x" * 999))
    refuses(connection, errors.QueueFull, ops.Enqueue(queue="orders", body=b"xx"), "bytes")
    two = ops.EnqueueMany(queue="orders", bodies=[b"", b""], content_type=None)
    refuses(connection, errors.QueueFull, two)
    same(_send(connection, session, "1").state, "new")
    _is_full(connection, session)


def returns_and_replies_are_never_refused(place: Repository) -> None:
    """What was aborted comes back, what failed goes to its queue, an operator redrives it."""
    connection, session = _client(place)
    for rid in ("1", "2"):
        _send(connection, session, rid)
    life = live(connection)
    (element,) = claim(connection, life)
    same(abort(connection, life, element, Charge.RELEASE), Fate.RETURNED)
    _is_full(connection, session)
    (element,) = claim(connection, life)
    same(abort(connection, life, element, Charge.CHARGE), Fate.FAILED)
    same(_send(connection, session, "3").state, "new")
    _is_full(connection, session)
    connection.perform(ops.Redrive(eid=element.eid))
    same(connection.run(show("orders")).depth, 3)
    receive = receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=0.5)
    same(connection.run(receive)[0].outcome, RequestOutcome.FAILED)
    _is_full(connection, session)


def a_send_waits_for_room(place: Repository) -> None:
    """For as long as it is told; then it is refused, and the client goes on as before."""
    connection, session = _client(place)
    for rid in ("1", "2"):
        _send(connection, session, rid)
    request = ops.Request(rid="3", body=b"3")
    try:
        sent = connection.run(clerk.send(session, request, room_s=0.2))
    except errors.QueueFull as error:
        same(error.retry_after_s, 0.05)
    else:
        raise NotConformant(f"{sent} instead of QueueFull")
    same(sorted(session.outstanding), ["1", "2"])
    life = live(connection)
    execute(connection, life, claim(connection, life)[0])
    same(_send(connection, session, "3").state, "new")


def limits_can_be_changed(place: Repository) -> None:
    """Raised, lowered below what there is, and taken away; both are given at once."""
    connection, session = _client(place)
    for rid in ("1", "2"):
        _send(connection, session, rid)
    connection.perform(ops.AlterQueue(queue="orders", abort_limit=7))
    _is_full(connection, session)
    connection.perform(ops.AlterQueue(queue="orders", limits=Limits(depth=3)))
    same(connection.run(show("orders")).settings.limits, Limits(depth=3))
    connection.perform(ops.Enqueue(queue="orders", body=b"x" * 100))
    _is_full(connection, session)
    connection.perform(ops.AlterQueue(queue="orders", limits=Limits(bytes=1)))
    refuses(connection, errors.QueueFull, ops.Enqueue(queue="orders", body=b""), "bytes")
    connection.perform(ops.AlterQueue(queue="orders", limits=Limits()))
    same(_send(connection, session, "3").state, "new")
    same(connection.run(show("orders")).settings.limits, Limits())
