"""Behaviours of what a client does with a reply; see `proof.conformance.suite`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.policy import ReplyPolicy, Settled
from onceq.clerk.processing import process
from onceq.clerk.session import Session
from onceq.model import ops
from onceq.model.element import EndUser, Fate
from onceq.model.end_user import KEY
from onceq.testing.device import FakePrinter
from proof.conformance.ground import (
    Connection,
    Repository,
    begin,
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

LIMIT = 5
"""The abort limit of a reply queue."""


def a_reply_is_printed_once(place: Repository) -> None:
    """The device's state is the checkpoint, and tells the next life that the ticket is printed."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    printer = FakePrinter()
    send(client, session, "1")
    execute(server, life, claim(server, life)[0])
    run = process(session, printer.output, ReplyPolicy.test(printer), 0.5)
    same([one.settled for one in client.run(run)], [Settled.PROCESSED])
    client.run(clerk.connect(session))
    same((session.r_rid, session.ckpt, session.unsettled), ("1", b"1", "1"))
    run = process(session, printer.output, ReplyPolicy.test(printer), 0.5)
    same([one.settled for one in client.run(run)], [Settled.BEFORE])
    same(printer.printed, ["1"])


def an_end_user_comes_back(place: Repository) -> None:
    """With the reply; and connect tells who sent last, also when the reply is gone (C19)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    user = {"id": "ann 7", "checkpoint": "page 3"}
    kept = {KEY: user, "other": 1}
    client.run(clerk.send(session, ops.Request(rid="1", body=b"1", properties=kept)))
    execute(server, life, claim(server, life)[0])
    same(receive(client, session).end_user, EndUser("ann 7", "page 3"))
    for end in (receiving.acknowledge(session, ["1"], None), clerk.disconnect(session)):
        client.run(clerk.connect(session))
        same(session.user, EndUser("ann 7", "page 3"))
        if session.outstanding:
            receive(client, session)
        client.run(end)
    client.run(clerk.connect(session))
    same(session.user, EndUser("ann 7", "page 3"))
    send(client, session, "2")
    client.run(clerk.connect(session))
    same(session.user, None)


def each_of_many_has_an_end_user(place: Repository) -> None:
    """Its own, or none; connect tells who sent last, in whatever order replies are freed (C19)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place, window=9)
    users = {"1": EndUser("bob"), "2": None, "3": EndUser("ann 7", "page 3")}
    sent = [
        ops.Request(rid=rid, body=b"", properties={KEY: asdict(user)} if user else None)
        for rid, user in users.items()
    ]
    client.run(clerk.send_many(session, sent[:1]))
    answers = client.run(clerk.send_many(session, sent))  # the first is there
    same([one.state for one in answers], ["queued", "new", "new"])
    for element in claim(server, life, n=3):
        execute(server, life, element)
    replies = client.run(receiving.receive(session, ckpt=None, rid=None, limit=3, timeout_s=None))
    same({one.rid: one.end_user for one in replies}, users)
    for rid in ("3", "1", "2"):
        client.run(receiving.acknowledge(session, [rid], b"c"))
    client.run(clerk.connect(session))
    same((session.s_rid, session.r_rid, session.user), ("3", "2", users["3"]))


def _begin(session: Session[Any, Any]) -> ops.BeginReply:
    return ops.BeginReply(who=session.who, rid="1", s_rid="1", s_no=1)


def _take(session: Session[Any, Any]) -> ops.TakeReply:
    return ops.TakeReply(
        who=session.who,
        rid="1",
        ckpt=b"c",
        s_rid="1",
        s_no=1,
    )


def _settle(session: Session[Any, Any], xid: int | None, *, counts: bool = True) -> ops.SettleReply:
    return ops.SettleReply(
        who=session.who,
        rid="1",
        xid=xid,
        counts=counts,
        s_rid="1",
        s_no=1,
    )


def _replied(place: Repository) -> tuple[Connection, Any, Connection, Session[Any, Any]]:
    """Returns a server in a transaction of its own, and a client whose reply waits."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    send(client, session, "1")
    execute(server, life, claim(server, life)[0])
    server.perform(ops.Enqueue(queue="orders", body=b""))
    begin(server, life, claim(server, life)[0])
    return server, life, client, session


def a_reply_is_received_in_a_transaction(place: Repository) -> None:
    """It goes when that commits, and comes again when it does not."""
    server, _, client, session = _replied(place)
    refuses(client, errors.IllegalState, _take(session))
    same(client.perform(_begin(session)), wanted=True)
    xid = server.perform(_take(session))
    same(client.perform(_settle(session, xid)), Fate.RUNNING)
    server.perform(ops.Rollback())
    same(client.perform(_settle(session, xid)), Fate.RETURNED)
    client.run(clerk.connect(session))
    same((session.r_rid, list(session.outstanding)), (None, ["1"]))
    same(client.perform(_begin(session)), wanted=True)
    same(client.perform(_take(session)) != xid, wanted=True)
    same(client.perform(_settle(session, None)), Fate.LOST)
    client.run(clerk.connect(session))
    same((session.s_rid, session.r_rid, session.ckpt), ("1", "1", b"c"))
    same(where(client, "1"), {("finished", "done")})


def a_reply_that_keeps_aborting_is_held(place: Repository) -> None:
    """At the abort limit; its client goes on; redriven, it is the client's again (G3)."""
    _, _, client, session = _replied(place)
    client.perform(_begin(session))
    same(client.perform(_settle(session, None, counts=False)), Fate.RETURNED)
    for _ in range(LIMIT - 1):  # begun, and never heard of again: the client died
        same(client.perform(_begin(session)), wanted=True)
    same(client.perform(_settle(session, None)), Fate.RETURNED)
    same(client.perform(_begin(session)), wanted=True)
    same(client.perform(_begin(session)), wanted=False)
    refuses(client, errors.IllegalState, _begin(session))
    same(where(client, "1"), {("finished", "done"), ("held", "done")})
    client.run(clerk.connect(session))
    same((session.s_rid, session.r_rid, len(session.outstanding)), ("1", "1", 0))
    (held,) = client.perform(ops.LookUp(rid="1", state="held"))
    same(held.queue, f"reply-{session.who.registrant_id}.error")
    same(client.perform(ops.Redrive(eid=held.eid)), (held.eid, "1"))
    refuses(client, errors.Fenced, _begin(session))
    client.run(clerk.connect(session))
    same(list(session.outstanding), ["1"])
