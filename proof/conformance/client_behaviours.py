"""Behaviours of queues, elements and clerks; see `proof.conformance.suite`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.recovery import recover
from onceq.clerk.session import Session
from onceq.manager.program import declare
from onceq.model import client_state, ops
from onceq.model.admin_ops import Identify
from onceq.model.element import KillAnswer, RequestOutcome
from onceq.model.queue import Queue
from onceq.model.trace import with_trace
from proof.conformance.ground import (
    NOBODY,
    ORDERS,
    NotConformant,
    Repository,
    claim,
    client_of,
    declared,
    execute,
    live,
    receive,
    refuses,
    same,
    send,
    where,
)


def queues_are_declared_once(place: Repository) -> None:
    """The same again is no error, other settings are."""
    connection = declared(place)
    same(connection.run(declare(ORDERS)), wanted=False)
    try:
        connection.run(declare(Queue("orders", bytes, bytes, abort_limit=3)))
    except errors.SettingsDiffer:
        return
    raise NotConformant("other settings were declared")


def what_is_not_there_is_refused(place: Repository) -> None:
    """QueueNotFound, and nothing happens."""
    connection = place.session()
    refuses(connection, errors.QueueNotFound, ops.Enqueue(queue="none", body=b""))
    refuses(connection, errors.QueueNotFound, ops.Dequeue(queue="none"))
    refuses(connection, errors.QueueNotFound, ops.AlterQueue(queue="none", abort_limit=1))
    refuses(connection, errors.QueueNotFound, ops.DestroyQueue(queue="none"))
    same(connection.perform(ops.ReadElement(eid=NOBODY)), None)
    same(connection.perform(ops.Kill(eid=NOBODY)), KillAnswer.NOT_FOUND)
    same(connection.perform(ops.Redrive(eid=NOBODY)), None)


def a_queue_that_holds_elements_is_not_destroyed(place: Repository) -> None:
    """Destroyed it is only empty, and its error queue with it."""
    connection = declared(place)
    connection.perform(ops.Enqueue(queue="orders", body=b"1"))
    refuses(connection, errors.QueueNotEmpty, ops.DestroyQueue(queue="orders"))
    connection.perform(ops.Dequeue(queue="orders"))
    same(connection.perform(ops.DestroyQueue(queue="orders")), wanted=True)
    same(connection.perform(ops.ListQueues()), [])


def a_stopped_queue_refuses(place: Repository) -> None:
    """For enqueue: sends; for dequeue: it gives out nothing."""
    connection = declared(place)
    connection.perform(ops.Enqueue(queue="orders", body=b"1"))
    connection.perform(ops.AlterQueue(queue="orders", enqueue_started=False, dequeue_started=False))
    refuses(connection, errors.QueueStopped, ops.Enqueue(queue="orders", body=b"2"))
    same(connection.perform(ops.Dequeue(queue="orders")), None)
    connection.perform(ops.AlterQueue(queue="orders", body_bytes_max=3, enqueue_started=True))
    refuses(connection, errors.TooLarge, ops.Enqueue(queue="orders", body=b"1234"))


def elements_come_by_priority_and_time(place: Repository) -> None:
    """The most urgent first; not before their time; never after it."""
    connection = declared(place)
    later = place.now() + timedelta(seconds=10)
    sent: dict[bytes, dict[str, Any]] = {
        b"second": {},
        b"first": {"priority": 9},
        b"third": {"priority": 0},
        b"later": {"not_before": later},
        b"expired": {"priority": 8, "expires_at": place.now() - timedelta(seconds=1)},
    }
    for body, attributes in sent.items():
        connection.perform(ops.Enqueue(queue="orders", body=body, **attributes))
    dequeue = ops.Dequeue(queue="orders")
    bodies = [getattr(connection.perform(dequeue), "body", None) for _ in range(4)]
    same(bodies, [b"first", b"second", b"third", None])
    place.advance(11)
    same(getattr(connection.perform(dequeue), "body", None), b"later")
    outcomes = sorted(row.outcome or "" for row in connection.perform(ops.LookUp()))
    same(outcomes, ["dequeued"] * 4 + ["expired"])


def an_element_is_dequeued_by_its_eid(place: Repository) -> None:
    """Once; and read while it is there."""
    connection = declared(place)
    eids = connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2"]))
    found = connection.perform(ops.ReadElement(eid=eids[1]))
    same(getattr(found, "body", None), b"2")
    taken = connection.perform(ops.Dequeue(queue="orders", eid=eids[1]))
    same(getattr(taken, "body", None), b"2")
    same(connection.perform(ops.Dequeue(queue="orders", eid=eids[1])), None)


def the_context_of_a_send_is_beside_the_properties(place: Repository) -> None:
    """And the properties are what was given, however it was enqueued."""
    connection = declared(place)
    given = with_trace({"colour": "red"}, "of one")
    connection.perform(ops.Enqueue(queue="orders", body=b"1", properties=given))
    only = with_trace(None, "of all")
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"2", b"3"], properties=only))
    connection.perform(ops.Enqueue(queue="orders", body=b"4", properties={"colour": "blue"}))
    found = connection.perform(ops.Peek(queue="orders", n=9))
    known = [(one.properties, one.trace) for one in found]
    wanted = [({"colour": "red"}, "of one"), (None, "of all"), (None, "of all")]
    same(known, [*wanted, ({"colour": "blue"}, None)])


def the_first_of_a_queue_are_read_and_stay(place: Repository) -> None:
    """By priority and time, stopped or not; without what is claimed, due later, or expired."""
    connection = declared(place)
    refuses(connection, errors.QueueNotFound, ops.Peek(queue="nowhere", n=1))
    sent: dict[bytes, dict[str, Any]] = {
        b"second": {},
        b"third": {},
        b"first": {"priority": 7},
        b"later": {"not_before": place.now() + timedelta(seconds=10)},
        b"brief": {"expires_at": place.now() + timedelta(seconds=5)},
    }
    for body, attributes in sent.items():
        connection.perform(ops.Enqueue(queue="orders", body=body, **attributes))

    def first(n: int) -> list[bytes]:
        return [one.body for one in connection.perform(ops.Peek(queue="orders", n=n))]

    same(first(2), [b"first", b"second"])
    same(first(9), [b"first", b"second", b"third", b"brief"])
    place.advance(11)
    same(first(9), [b"first", b"second", b"third", b"later"])
    taken = connection.perform(ops.Dequeue(queue="orders"))
    left = first(9)
    same(len(left), 3)
    same(getattr(taken, "body", None) in left, wanted=False)
    connection.perform(ops.AlterQueue(queue="orders", dequeue_started=False))
    same(first(9), left)


def operations_are_tagged(place: Repository) -> None:
    """The registration tells kind, tag, eid and copy of the last, and fences the former life."""
    connection = declared(place)
    (first,) = connection.perform(ops.Register(queue="orders", name="clerk"))
    who = first.who
    eid = connection.perform(ops.EnqueueTagged(queue="orders", body=b"1", tag=b"t", who=who))
    connection.perform(ops.Dequeue(queue="orders"))
    copy = connection.perform(ops.ReadLast(queue="orders", who=who))
    same(copy, ops.LastOperation(kind="enqueue", eid=eid, tag=b"t", body=b"1"))
    (again,) = connection.perform(ops.Register(queue="orders", name="clerk"))
    same((again.kind, again.eid, again.tag), ("enqueue", eid, b"t"))
    says = (
        'client "clerk" has connected again elsewhere, or was forgotten '
        f"(epoch {again.epoch}; this one is {first.epoch}): nothing happened: use that one, or "
        "connect() again, which fences it"
    )
    enqueue = ops.EnqueueTagged(queue="orders", body=b"2", who=who)
    refuses(connection, errors.Fenced, enqueue, says)
    refuses(connection, errors.Fenced, ops.ReadLast(queue="orders", who=who), says)
    lost = ops.ReadLast(queue="orders", who=ops.Identity(registrant_id=0, epoch=1))
    refuses(connection, errors.Fenced, lost, "this client has connected again elsewhere")
    thread, *_ = connection.perform(ops.Register(queue="orders", name="clerk", thread="2"))
    late = replace(thread.who, epoch=thread.epoch + 1)
    refuses(connection, errors.Fenced, ops.Outstanding(who=late), 'client "clerk", thread "2", has')


def reads_and_kills_are_tagged(place: Repository) -> None:
    """What did nothing leaves no tag; a kill that is repeated leaves its tag, without a copy."""
    connection = declared(place)
    (first,) = connection.perform(ops.Register(queue="orders", name="clerk"))
    on: dict[str, Any] = {"who": first.who, "queue": "orders"}
    eid = connection.perform(ops.Enqueue(queue="orders", body=b"1"))

    def told() -> ops.LastOperation | None:
        return connection.perform(ops.ReadLast(**on))

    nothing = ops.LastOperation(kind=None, eid=None, tag=None, body=None)
    same(connection.perform(ops.ReadTagged(**on, eid=NOBODY, tag=b"r")), None)
    same(connection.perform(ops.KillTagged(**on, eid=NOBODY, tag=b"k")), KillAnswer.NOT_FOUND)
    same(told(), nothing)
    found = connection.perform(ops.ReadTagged(**on, eid=eid, tag=b"r"))
    same(getattr(found, "body", None), b"1")
    same(told(), ops.LastOperation(kind="read", eid=eid, tag=b"r", body=b"1"))
    same(connection.perform(ops.KillTagged(**on, eid=eid, tag=b"k")), KillAnswer.KILLED)
    same(told(), ops.LastOperation(kind="kill", eid=eid, tag=b"k", body=b"1"))
    same(connection.perform(ops.KillTagged(**on, eid=eid, tag=b"again")), KillAnswer.KILLED)
    same(told(), ops.LastOperation(kind="kill", eid=eid, tag=b"again", body=None))
    gone = connection.perform(ops.Enqueue(queue="orders", body=b"2"))
    connection.perform(ops.Dequeue(queue="orders"))
    same(connection.perform(ops.KillTagged(**on, eid=gone, tag=b"l")), KillAnswer.TOO_LATE)
    same(getattr(told(), "tag", None), b"again")
    connection.perform(ops.Register(queue="orders", name="clerk"))
    refuses(connection, errors.Fenced, ops.ReadTagged(**on, eid=eid))
    refuses(connection, errors.Fenced, ops.KillTagged(**on, eid=eid))
    refuses(connection, errors.Fenced, ops.BeginTagged(**on))


def a_request_gets_its_reply(place: Repository) -> None:
    """Received, received again, identical, until the next send (G1, G5)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    same(send(client, session, "1").state, "new")
    execute(server, life, claim(server, life)[0])
    reply = receive(client, session, b"c")
    same((reply.rid, reply.body, reply.outcome), ("1", b"done", RequestOutcome.DONE))
    same(client.run(receiving.rereceive(session)), reply)
    client.run(clerk.connect(session))
    same((session.s_rid, session.r_rid, session.ckpt), ("1", "1", b"c"))
    same(client.run(receiving.rereceive(session)), reply)
    same(send(client, session, "2").state, "new")
    same(where(client, "1"), {("finished", "done")})


def a_rid_is_one_request(place: Repository) -> None:
    """The same content gets the same answer, other content is refused (finding 3)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    first = send(client, session, "1")

    def again(body: bytes) -> ops.Send:
        return ops.Send(
            who=session.who,
            queue="orders",
            request=ops.Request(rid="1", body=body),
            send_no=2,
            ack=[],
        )

    same(client.perform(again(b"1")).state, "queued")
    refuses(client, errors.RidReused, again(b"other"))
    execute(server, life, claim(server, life)[0])
    same(client.perform(again(b"1")), ops.Sent(eid=first.eid, state="replied"))
    receive(client, session)
    client.run(clerk.disconnect(session))
    client.run(clerk.connect(session))
    same(client.perform(again(b"1")), ops.Sent(eid=first.eid, state="done"))
    refuses(client, errors.RidReused, again(b"other"))


def a_new_life_fences_the_former(place: Repository) -> None:
    """An old epoch neither writes nor reads (G6)."""
    declared(place)
    client, session = client_of(place)
    send(client, session, "1")
    who = session.who
    other, following = client_of(place)
    same((following.s_rid, following.who.epoch > session.who.epoch), ("1", True))
    last: dict[str, Any] = {"s_rid": "1", "s_no": 1}
    refuses(client, errors.Fenced, ops.Receive(skip=[], **last, who=who))
    refuses(client, errors.Fenced, ops.Acknowledge(rids=["1"], ckpt=None, **last, who=who))
    refuses(client, errors.Fenced, ops.Outstanding(who=who))
    refuses(client, errors.Fenced, ops.CancelRequest(rid="1", who=who))
    gone = ops.Disconnect(received=[], r_rid=None, ckpt=None, **last, who=who)
    refuses(client, errors.Fenced, gone)
    same([one.rid for one in other.perform(_outstanding(following))], ["1"])


def _outstanding(session: Session[Any, Any]) -> ops.Outstanding:
    return ops.Outstanding(who=session.who)


def a_disconnect_leaves_a_tombstone(place: Repository) -> None:
    """The next connect says what was sent and received last (finding 3)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    send(client, session, "1")
    execute(server, life, claim(server, life)[0])
    receive(client, session, b"c")
    client.run(clerk.disconnect(session))
    client.run(clerk.connect(session))
    same((session.was, session.s_rid, session.r_rid), ("disconnected", "1", "1"))


def many_requests_are_outstanding(place: Repository) -> None:
    """A window: replies are kept until acknowledged, and what is sent is shown in order."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place, window=3)
    for rid in ("1", "2", "3"):
        send(client, session, rid)
    for _ in range(2):
        execute(server, life, claim(server, life)[0])
    same([receive(client, session).rid for _ in range(2)], ["1", "2"])
    same(client.run(receiving.acknowledge(session, ["1"], b"c")), 1)
    waiting = [(one.rid, one.replied) for one in client.perform(_outstanding(session))]
    same(waiting, [("2", True), ("3", False)])
    count = ops.CountOutstanding(who=session.who)
    same(client.perform(count), 2)
    client_of(place)
    refuses(client, errors.Fenced, count)


def recovery_places_the_last_request(place: Repository) -> None:
    """A to E, by what the repository has (C3)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)

    def now(rid: str | None, *, acknowledged: bool = False) -> type[client_state.Recovery]:
        return type(client.run(recover(session, rid, acknowledged=acknowledged)))

    same(now("1"), client_state.NotSubmitted)
    same(now("1", acknowledged=True), client_state.WentBack)
    send(client, session, "1")
    same(now("1"), client_state.Submitted)
    execute(server, life, claim(server, life)[0])
    same(now(None), client_state.ReplyWaiting)
    receive(client, session, b"c")
    same(now(None), client_state.Done)


def a_client_has_a_transaction_of_its_own(place: Repository) -> None:
    """What joins it is there when it commits, all of it, and never when it is rolled back (C4)."""
    declared(place)
    client, session = client_of(place)
    sending: dict[str, Any] = {"own_transaction": False}
    client.perform(ops.BeginWork())
    client.run(clerk.send(session, ops.Request(rid="1", body=b"1"), **sending))
    client.perform(ops.Enqueue(queue="orders", body=b"beside", own_transaction=False))
    client.perform(ops.Rollback())
    same(len(where(client, "1")), 0)
    client.run(clerk.connect(session))
    same((session.s_rid, len(session.outstanding)), (None, 0))
    client.perform(ops.BeginWork())
    client.run(clerk.send(session, ops.Request(rid="1", body=b"1"), **sending))
    same(len(where(place.session(), "1")), 0)
    client.perform(ops.Commit())
    same(where(place.session(), "1"), {("queued", None)})
    one, other = client.perform(Identify()), place.session().perform(Identify())
    same(one, other)
