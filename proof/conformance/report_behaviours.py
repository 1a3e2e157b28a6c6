"""Behaviours of reports: one for each event that was asked for, and none for anything else (Q10).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk.program import request_of
from onceq.clerk.session import Session
from onceq.manager.program import declare, enqueue_op, show
from onceq.model import desk_ops, ops
from onceq.model.element import Charge, Element, Fate, KillAnswer, RequestOutcome
from onceq.model.queue import Limits, Queue
from onceq.model.reports import Report, Reports
from proof.conformance.ground import (
    NotConformant,
    abort,
    begin,
    claim,
    declared,
    execute,
    finish,
    live,
    refuses,
    same,
)

if TYPE_CHECKING:
    from proof.conformance.ground import Connection, Repository

ORDERS: Queue[bytes, bytes] = Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=0)
ACKS: Queue[Report, bytes] = Queue("acks", Report, bytes)
ALL = Reports("acks", arrival=True, delivery=True, expiry=True, exception=True)


def _ground(place: Repository) -> Connection:
    connection = declared(place, ORDERS)
    connection.run(declare(ACKS))
    return connection


def _client(connection: Connection) -> Session[Any, Any]:
    session: Session[Any, Any] = Session(name="till-7", thread="", queue=ORDERS, window=10, keep=0)
    connection.run(clerk.connect(session))
    return session


def _send(
    connection: Connection, session: Session[Any, Any], rid: str, **attributes: Any
) -> ops.Sent:
    request = request_of(ORDERS, rid, rid.encode(), {"reports": ALL, **attributes})
    return connection.run(clerk.send(session, request))


def _enqueue(reports: Reports = ALL, **attributes: Any) -> ops.Enqueue:
    given: Any = {"reports": reports, **attributes}
    return enqueue_op(ORDERS, b"x", given, own_transaction=True)


def _elements(connection: Connection, queue: str = "acks") -> list[Element]:
    return connection.perform(ops.Peek(queue=queue, n=100))


def _reports(connection: Connection) -> list[Report]:
    return [msgspec.json.decode(one.body, type=Report) for one in _elements(connection)]


def _events(connection: Connection) -> list[str]:
    return [one.event.value for one in _reports(connection)]


def what_became_of_a_request_is_reported(place: Repository) -> None:
    """With what its sender calls it; by an element that is of type report, and asks for none."""
    connection = _ground(place)
    session = _client(connection)
    sent = _send(connection, session, "1", message_id="m")
    life = live(connection)
    execute(connection, life, claim(connection, life)[0])
    arrival, delivery = _reports(connection)
    same([arrival.event, delivery.event], ["arrival", "delivery"])
    same([arrival.outcome, delivery.outcome], [None, RequestOutcome.DONE])
    for one in (arrival, delivery):
        same((one.queue, one.eid, one.rid, one.message_id), ("orders", sent.eid, "1", "m"))
        same((one.client, one.thread, one.code), ("till-7", "", None))
    for element in _elements(connection):
        same((element.type, element.correlation_id), ("report", "m"))
        same((element.owes_reply, element.content_type), (False, "application/json"))
    info = connection.run(show("acks"))
    for element in connection.perform(
        ops.Claim(incarnation=life.incarnation, queue_id=info.queue_id, n=9, turn=1, alone=True)
    ):
        execute(connection, life, element)
    same(_events(connection), [])


def a_datagram_is_reported_too(place: Repository) -> None:
    """Dequeued outside of transactions, or executed; a rollback and a return are no events."""
    connection = _ground(place)
    connection.perform(_enqueue())
    if connection.perform(ops.Dequeue(queue="orders")) is None:
        raise NotConformant("nothing was dequeued")
    same(_events(connection), ["arrival", "delivery"])
    same(_reports(connection)[1].outcome, RequestOutcome.DEQUEUED)
    connection.perform(_enqueue())
    life = live(connection)
    (element,) = claim(connection, life)
    begin(connection, life, element)
    connection.perform(finish(life, element))
    connection.perform(ops.Rollback())
    same(abort(connection, life, element, Charge.CHARGE), Fate.RETURNED)
    same(_events(connection), ["arrival", "delivery", "arrival"])
    execute(connection, life, claim(connection, life)[0])
    same(_events(connection), ["arrival", "delivery"] * 2)
    same([one.client for one in _reports(connection)], [None] * 4)


def what_fails_and_what_is_killed_is_an_exception(place: Repository) -> None:
    """Each once; what is redriven has arrived before, and is delivered."""
    connection = _ground(place)
    session = _client(connection)
    killed = _send(connection, session, "1")
    same(connection.perform(ops.Kill(eid=killed.eid)), KillAnswer.KILLED)
    same(connection.perform(ops.Kill(eid=killed.eid)), KillAnswer.KILLED)
    eid = connection.perform(_enqueue())
    life = live(connection)
    (element,) = claim(connection, life)
    same(abort(connection, life, element, Charge.REJECT), Fate.FAILED)
    found = [(one.event.value, one.outcome, one.code) for one in _reports(connection)]
    same(found[1], ("exception", RequestOutcome.CANCELLED, "killed"))
    same(found[3], ("exception", RequestOutcome.FAILED, "Bad"))
    connection.perform(ops.Redrive(eid=eid))
    execute(connection, life, claim(connection, life)[0])
    same(_events(connection), ["arrival", "exception"] * 2 + ["delivery"])


def what_expires_is_reported_once(place: Repository) -> None:
    """However often somebody looks."""
    connection = _ground(place)
    connection.perform(_enqueue(expires_at=place.now()))
    place.advance(1)
    life = live(connection)
    for _ in range(2):
        same(claim(connection, life), [])
    same(_events(connection), ["arrival", "expiry"])
    same(_reports(connection)[1].outcome, RequestOutcome.EXPIRED)


def only_what_was_asked_for_is_reported(place: Repository) -> None:
    """Each event alone."""
    connection = _ground(place)
    life = live(connection)
    for event in ("arrival", "delivery", "exception"):
        connection.perform(_enqueue(Reports("acks", **{event: True})))
        connection.perform(_enqueue(Reports("acks", **{event: True})))
        execute(connection, life, claim(connection, life)[0])
        abort(connection, life, claim(connection, life)[0], Charge.REJECT)
    same(_events(connection), ["arrival"] * 2 + ["delivery", "exception"])


def a_rid_sent_again_arrives_once(place: Repository) -> None:
    """Whether its request waits, or has ended; alone, and among others."""
    connection = _ground(place)
    for _ in range(2):
        session = _client(connection)
        _send(connection, session, "1")
        same(_events(connection), ["arrival"])
    life = live(connection)
    execute(connection, life, claim(connection, life)[0])
    session = _client(connection)
    same(_send(connection, session, "1").state, "replied")
    each = [request_of(ORDERS, rid, rid.encode(), {"reports": ALL}) for rid in "123"]
    plain = request_of(ORDERS, "4", b"4", {})
    states = [one.state for one in connection.run(clerk.send_many(session, [*each, plain]))]
    same(states, ["replied", "new", "new", "new"])
    same(_events(connection), ["arrival", "delivery", "arrival", "arrival"])


def of_a_desk_it_goes_alone(place: Repository) -> None:
    """A group has no answer for it; then nothing of it has happened."""
    connection = _ground(place)
    session = _client(connection)
    request = request_of(ORDERS, "1", b"1", {"reports": ALL})
    each = desk_ops.SendEach(
        queue="orders",
        priority=4,
        content_type=None,
        registrants=[session.who.registrant_id],
        epochs=[session.who.epoch],
        send_nos=[1],
        rids=["1"],
        acks=[""],
        keeps=[0],
        properties=[request.properties_text or ""],
        sha256s=[request.sha256],
        bodies=[b"1"],
    )
    same(connection.perform(each), {})
    same((connection.run(show("orders")).depth, _events(connection)), (0, []))


def a_queue_that_can_take_no_reports_is_refused_at_the_send(place: Repository) -> None:
    """None of its name, stopped, an error queue, the same queue: nothing happened."""
    connection = _ground(place)
    session = _client(connection)
    wrong: tuple[tuple[str, type[errors.OnceqError], str], ...] = (
        ("nowhere", errors.QueueNotFound, "nowhere"),
        ("orders.error", errors.IllegalState, "is an error queue"),
        ("orders", errors.InvalidValue, "reports about elements of queue"),
        ("acks", errors.QueueStopped, "is stopped for enqueue"),
    )
    connection.perform(ops.AlterQueue(queue="acks", enqueue_started=False))
    for to, error, said in wrong:
        asked = Reports(to, exception=True)
        refuses(connection, error, _enqueue(asked), said)
        request = request_of(ORDERS, "1", b"1", {"reports": asked})
        send = ops.Send(who=session.who, queue="orders", request=request, send_no=1, ack=[])
        refuses(connection, error, send, said)
    kept = {"onceq_reports": {"to": _reply_queue(connection, session), "on": ["arrival"]}}
    forged = ops.Enqueue(queue="orders", body=b"x", properties=kept)
    refuses(connection, errors.IllegalState, forged, "of the replies to a client")
    same(connection.run(show("orders")).depth, 0)


def _reply_queue(connection: Connection, session: Session[Any, Any]) -> str:
    """Returns the name of the client's own reply queue."""
    return connection.perform(ops.Connect(name=session.name)).reply_queue


def what_was_asked_for_comes_whatever_becomes_of_its_queue(place: Repository) -> None:
    """A stop and a limit refuse sends, and no reports; while one may come it is not destroyed."""
    connection = _ground(place)
    connection.perform(_enqueue())
    connection.perform(ops.AlterQueue(queue="acks", enqueue_started=False, limits=Limits(depth=1)))
    life = live(connection)
    (element,) = claim(connection, life)
    begin(connection, life, element)
    connection.perform(ops.Rollback())
    (first,) = _elements(connection)
    connection.perform(ops.Kill(eid=first.eid))
    refuses(connection, errors.QueueNotEmpty, ops.DestroyQueue(queue="acks"), "awaits reports")
    execute(connection, life, element)
    same(_events(connection), ["delivery"])
    refuses(connection, errors.QueueNotEmpty, ops.DestroyQueue(queue="acks"), "is not empty")
    connection.perform(ops.Kill(eid=_elements(connection)[0].eid))
    connection.perform(ops.DestroyQueue(queue="acks"))
    refuses(connection, errors.QueueNotFound, ops.DestroyQueue(queue="acks"))
