"""Behaviours of requests whose history was trimmed; see `proof.conformance.suite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq import errors
from onceq.clerk import program as clerk
from onceq.model import admin_ops, ops
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
    from collections.abc import Iterable
    from uuid import UUID

    from onceq.clerk.session import Session


def a_trimmed_rid_is_not_new(place: Repository) -> None:
    """The same content gets "done", other content is refused, as long as there is a client (G2)."""
    server, client, session, eids = _trimmed(place, "123")
    for rid in "12":
        same(where(client, rid), set())
        same(client.perform(_again(session, rid)), ops.Sent(eid=eids[rid], state="done"))
        refuses(client, errors.RidReused, _again(session, rid, b"other"))
    same(send(client, session, "4").state, "new")
    _serve(server)
    receive(client, session)
    place.trim()
    client.run(clerk.disconnect(session))
    client.run(clerk.connect(session))
    for rid in "123":
        same(client.perform(_again(session, rid)), ops.Sent(eid=eids[rid], state="done"))
    other = client_of(place, thread="2")
    same(other[0].perform(_again(other[1], "1")).state, "new")


def a_trimmed_rid_among_many_is_not_new(place: Repository) -> None:
    """Each of the others is sent; one with other content refuses them all."""
    _, client, session, eids = _trimmed(place, "12")

    def many(rids: str, bodies: str) -> ops.SendMany:
        return ops.SendMany(
            who=session.who,
            queue="orders",
            rids=[*rids],
            bodies=[one.encode() for one in bodies],
            send_no=9,
            ack=[],
        )

    refuses(client, errors.RidReused, many("51", "5x"))
    same(where(client, "5"), set())
    answer = client.perform(many("514", "514"))
    same([one.state for one in answer], ["new", "done", "new"])
    same(answer[1].eid, eids["1"])


def an_open_transaction_keeps_its_history(place: Repository) -> None:
    """Who has looked for what was trimmed, and found that nothing was, is over before any goes."""
    server = declared(place)
    client, session = client_of(place)
    eids = _ended(server, client, session, "12")
    client.perform(ops.BeginWork())
    same(client.perform(_again(session, "1")).state, "done")
    place.trim()
    same(where(client, "1"), {("finished", "done")})
    client.perform(ops.Commit())
    place.trim()
    same(where(client, "1"), set())
    same(client.perform(_again(session, "1")), ops.Sent(eid=eids["1"], state="done"))
    client.perform(ops.BeginWork())
    same(client.perform(_again(session, "1")).state, "done")
    place.trim()
    client.perform(ops.Commit())


def a_closed_name_is_refused(place: Repository) -> None:
    """Its rids are forgotten, so nobody may speak for it, in any thread (finding 3)."""
    _, client, session, _ = _trimmed(place, "12")
    client_of(place, thread="2")
    operator = place.session()
    close = admin_ops.CloseClient(name="till-7")
    refuses(operator, errors.IllegalState, close, "is connected")
    same(client.perform(_again(session, "1")).state, "done")
    gone = operator.perform(replace(close, forced=True))
    same([one.thread for one in gone], ["", "2"])
    refuses(client, errors.Fenced, _again(session, "1"))
    says = (
        'client "till-7" was closed: what it has sent is forgotten, and would run twice: connect by'
    )
    for thread in ("", "2", "3"):
        refuses(operator, errors.IllegalState, ops.Connect(name="till-7", thread=thread), says)
    refuses(operator, errors.IllegalState, ops.Register(queue="orders", name="till-7"), says)
    same({one.state for one in operator.perform(admin_ops.ListClients(name="till-7"))}, {"closed"})
    same([one.thread for one in operator.perform(close)], ["", "2"])
    same(operator.perform(admin_ops.CloseClient(name="till-8")), [])
    operator.perform(ops.Connect(name="till-8"))
    place.trim()


def _trimmed(
    place: Repository, rids: Iterable[str]
) -> tuple[Connection, Connection, Session[Any, Any], dict[str, UUID]]:
    """Returns a server and a client with its session, whose rids are trimmed but for the last."""
    server = declared(place)
    client, session = client_of(place)
    eids = _ended(server, client, session, rids)
    place.trim()
    return server, client, session, eids


def _ended(
    server: Connection, client: Connection, session: Session[Any, Any], rids: Iterable[str]
) -> dict[str, UUID]:
    """Sends requests and receives their replies; returns their eids."""
    eids = {}
    for rid in rids:
        eids[rid] = send(client, session, rid).eid
        _serve(server)
        receive(client, session)
    return eids


def _serve(server: Connection) -> None:
    life = live(server)
    execute(server, life, claim(server, life)[0])
    server.perform(ops.CloseIncarnation(incarnation=life.incarnation))


def _again(session: Session[Any, Any], rid: str, body: bytes | None = None) -> ops.Send:
    return ops.Send(
        who=session.who,
        queue="orders",
        request=ops.Request(rid=rid, body=rid.encode() if body is None else body),
        send_no=99,
        ack=[],
    )
