"""Behaviours of clients with many requests and threads; see `proof.conformance.suite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.recovery import recover
from onceq.model import admin_ops, ops
from onceq.model.element import RequestOutcome
from onceq.model.queue import Queue
from proof.conformance.ground import (
    Connection,
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

if TYPE_CHECKING:
    from onceq.clerk.session import Session


def the_last_replies_are_kept(place: Repository) -> None:
    """So many of those acknowledged last, for rereceive by rid; to all else they are gone (C6)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place, window=9, keep=2)
    for rid in "12345":
        send(client, session, rid)
        execute(server, life, claim(server, life)[0])
    replies = {rid: receive(client, session) for rid in "12345"}
    same(client.run(receiving.rereceive(session, "1")), replies["1"])
    same(client.run(receiving.acknowledge(session, ["1", "3", "2"], None)), 3)
    kept = [rid for rid in "123" if _is_kept(client, session, rid)]
    same(kept, ["2", "3"])
    same(client.run(receiving.rereceive(session, "3")), replies["3"])
    same(client.run(receiving.acknowledge(session, ["4"], None)), 1)
    same([rid for rid in "123456" if _is_kept(client, session, rid)], ["2", "4", "5"])
    waiting = [(one.rid, one.replied) for one in client.perform(ops.Outstanding(who=session.who))]
    same(waiting, [("5", True)])
    same(client.perform(ops.LookUp(rid="4", state="kept"))[0].role, "reply")
    same(send(client, session, "2").state, "done")
    client.run(clerk.connect(session))
    same((session.s_rid, list(session.outstanding)), ("5", ["5"]))
    same(client.run(receiving.rereceive(session, "4")), replies["4"])
    receive(client, session)
    client.run(clerk.disconnect(session))
    same(client.perform(ops.LookUp(state="kept")), [])


def fewer_are_kept_from_the_next_life_on(place: Repository) -> None:
    """The number is that of the present life; and with one outstanding, a send keeps too (C17)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place, keep=3)
    for rid in "1234":
        send(client, session, rid)
        execute(server, life, claim(server, life)[0])
        receive(client, session)
    same([rid for rid in "1234" if _is_kept(client, session, rid)], ["1", "2", "3", "4"])
    client, session = client_of(place, keep=1)
    same([rid for rid in "123" if _is_kept(client, session, rid)], ["3"])


def _is_kept(client: Connection, session: Session[Any, Any], rid: str) -> bool:
    try:
        return client.run(receiving.rereceive(session, rid)).rid == rid
    except errors.ReplyGone:
        return False


def a_late_reply_is_found_behind_those_handed_out(place: Repository) -> None:
    """What has a smaller seq than what was handed out is handed out yet (C6)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place, window=9)
    for rid in "123":
        send(client, session, rid)
        execute(server, life, claim(server, life)[0])
    look: dict[str, Any] = {"s_rid": "3", "s_no": 3, "limit": 9, "who": session.who}
    found = client.perform(ops.Receive(skip=[], **look))
    same([one.rid for one in found], ["1", "2", "3"])
    behind = client.perform(ops.Receive(skip=[], after=found[1].seq, **look))
    same([one.rid for one in behind], ["3"])
    same([one.rid for one in client.perform(ops.Receive(skip=["1", "3"], **look))], ["2"])


def threads_have_tags_of_their_own(place: Repository) -> None:
    """The array of all, without fencing anybody; each is fenced alone (C7)."""
    server = declared(place)
    life = live(server)
    one, first = client_of(place, thread="a")
    two, second = client_of(place, thread="b")
    send(one, first, "1")
    send(two, second, "1")
    execute(server, life, claim(server, life)[0])
    receive(one, first, b"ckpt")
    array = two.perform(ops.Threads(name="till-7"))
    same([(tags.thread, tags.s_rid, tags.s_state) for tags in array], _tags("request"))
    same([(tags.r_rid, tags.ckpt) for tags in array], [("1", b"ckpt"), (None, None)])
    same([tags.outstanding for tags in array], [0, 1])
    _, again = client_of(place, thread="a")
    refuses(one, errors.Fenced, ops.Threads(name="till-7", who=first.who))
    same(len(two.perform(ops.Threads(name="till-7", who=again.who))), 2)
    execute(server, life, claim(server, life)[0])
    same(receive(two, second).rid, "1")


def _tags(state: str) -> list[tuple[str, str, str]]:
    return [("a", "1", "reply"), ("b", "1", state)]


def a_request_is_found_where_it_is(place: Repository) -> None:
    """Queued, executing, replied, finished; never sent: nowhere (C9)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)

    def now(rid: str) -> tuple[Any, ...] | None:
        found = client.perform(ops.WhereIs(rid=rid, who=session.who))
        if found is None:
            return None
        return (found.state, found.server_pid is not None, found.outcome, found.attempts)

    same(now("1"), None)
    send(client, session, "1")
    same(now("1"), ("queued", False, None, 0))
    element = claim(server, life)[0]
    same(now("1"), ("executing", True, None, 0))
    execute(server, life, element)
    same(now("1"), ("replied", False, RequestOutcome.DONE, 1))
    receive(client, session)
    client.run(receiving.acknowledge(session, ["1"], None))
    same(now("1"), ("finished", False, RequestOutcome.DONE, 1))


def a_late_request_is_alerted_once(place: Repository) -> None:
    """One element in the alert queue for each request, however often it is asked for (C9)."""
    server = declared(place)
    life = live(server)
    connection = declared(place, Queue("alerts", bytes, bytes))
    client, session = client_of(place, window=3)
    for rid in "12":
        send(client, session, rid)
    who = session.who

    def alert(rid: str | None = None) -> list[str]:
        late = ops.AlertLate(rid=rid, late_s=10.0, queue="alerts", who=who)
        told = client.perform(late)
        return sorted(told)

    same(alert(), [])
    place.advance(11)
    send(client, session, "3")
    same([*alert("2"), *alert("2")], ["2"])
    same([*alert(), *alert()], ["1"])
    same(getattr(connection.perform(ops.Dequeue(queue="alerts")), "role", None), "datagram")
    same(alert(), [])
    place.advance(11)
    execute(server, life, claim(server, life)[0])
    same(alert(), ["3"])
    place.advance(-22)
    refuses(client, errors.QueueNotFound, ops.AlertLate(rid=None, late_s=1.0, queue="no", who=who))


def a_one_way_send_is_a_send(place: Repository) -> None:
    """What became of it is known at the next call, a refusal too (C2)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    for rid in "123":
        client.run(clerk.send_one_way(session, ops.Request(rid=rid, body=rid.encode())))
        same((session.s_rid, list(session.outstanding)), (rid, [rid]))
        client.run(recover(session, None, acknowledged=False))
        execute(server, life, claim(server, life)[0])
        same(receive(client, session).rid, rid)
    client.run(clerk.send_one_way(session, ops.Request(rid="1", body=b"1")))
    same(client.run(receiving.rereceive(session, "3")).rid, "3")
    same((session.gone, list(session.received)), (["1"], ["3"]))
    client.run(clerk.connect(session))
    same((session.s_rid, list(session.outstanding)), ("3", ["3"]))
    receive(client, session)
    server.perform(ops.AlterQueue(queue="orders", enqueue_started=False))
    client.run(clerk.send_one_way(session, ops.Request(rid="4", body=b"4")))
    try:
        receive(client, session)
    except errors.QueueStopped:
        client.run(clerk.connect(session))
    same((session.s_rid, session.r_rid, list(session.outstanding)), ("3", "2", ["3"]))


def a_client_that_is_forgotten_leaves_a_tombstone(place: Repository) -> None:
    """It is fenced, nothing is left of it, and no rid of it is run again (finding 3)."""
    declared(place)
    operator, server = place.session(), place.session()
    client, session = client_of(place, window=10)
    life = live(server)
    send(client, session, "1")
    execute(server, life, claim(server, life)[0])
    receive(client, session, b"checkpoint")
    send(client, session, "2")
    execute(server, life, claim(server, life)[0])
    send(client, session, "3")
    refuses(operator, errors.IllegalState, admin_ops.ForgetClient(name="till-7"))
    (before,) = operator.perform(admin_ops.ListClients())
    same((before.state, before.s_rid, before.requests, before.replies), ("connected", "3", 1, 2))
    (gone,) = operator.perform(admin_ops.ForgetClient(name="till-7", forced=True))
    same((gone.s_rid, gone.r_rid, gone.cancelled, gone.replies), ("3", "1", 1, 2))
    same(where(operator, "3"), {("finished", "cancelled")})
    (after,) = operator.perform(admin_ops.ListClients(name="till-7"))
    same((after.state, after.requests, after.replies, after.waits), ("disconnected", 0, 0, False))
    same(operator.perform(admin_ops.ForgetClient(name="nobody")), [])
    old = session.who
    refuses(client, errors.Fenced, ops.Outstanding(who=old))
    again, renewed = client_of(place)
    same((renewed.was, renewed.s_rid, renewed.r_rid), ("disconnected", "3", "1"))
    same((renewed.ckpt, len(renewed.outstanding)), (None, 0))
    same(send(again, renewed, "2").state, "done")
    again.run(clerk.connect(renewed))
    again.run(clerk.disconnect(renewed))
    (unforced,) = operator.perform(admin_ops.ForgetClient(name="till-7", thread=""))
    same((unforced.cancelled, unforced.replies), (0, 0))


def a_registrant_is_forgotten_with_its_registrations(place: Repository) -> None:
    """It registers anew, as one that was never there, and the thread beside it stays."""
    declared(place)
    operator = place.session()
    (one,) = operator.perform(ops.Register(queue="orders", name="device"))
    operator.perform(ops.Register(queue="orders", name="device", thread="t"))
    operator.perform(ops.EnqueueTagged(who=one.who, queue="orders", body=b"", tag=b"t"))
    forget = admin_ops.ForgetClient(name="device", thread="", forced=True)
    (gone,) = operator.perform(forget)
    same((gone.registrations, gone.cancelled), (1, 0))
    old = one.who
    refuses(operator, errors.Fenced, ops.ReadLast(queue="orders", who=old))
    states = [one.state for one in operator.perform(admin_ops.ListClients(name="device"))]
    same(states, ["disconnected", "connected"])
    anew = operator.perform(ops.Register(queue="orders", name="device"))[0]
    same((anew.kind, anew.tag), (None, None))
