"""Behaviours of servers, kills and the caller's transaction; see `onceq.testing.conformance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq import errors
from onceq.clerk import program as clerk
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer, RequestOutcome
from onceq.server.program import Served, ServerSession, serve
from onceq.testing.ground import (
    OTHER_PROCESS,
    PROCESS,
    Repository,
    abort,
    begin,
    claim,
    client_of,
    declared,
    execute,
    finish,
    live,
    receive,
    refuses,
    same,
    send,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element


def the_last_abort_fails_an_element(place: Repository) -> None:
    """One failure reply; held in the error queue; redriven as a new request (G3, G7)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    sent = send(client, session, "1")
    same(abort(server, life, claim(server, life)[0], Charge.CHARGE), Fate.RETURNED)
    same(abort(server, life, claim(server, life, 2)[0], Charge.CHARGE), Fate.FAILED)
    reply = receive(client, session)
    same((reply.outcome, reply.attempts, reply.code), (RequestOutcome.FAILED, 2, "Bad"))
    same(where(client, "1"), {("finished", "failed"), ("replied", "failed"), ("held", None)})
    again = server.perform(ops.Redrive(eid=sent.eid))
    same(again is not None and again[0] != sent.eid, wanted=True)
    same(server.perform(ops.Redrive(eid=sent.eid)), None)


def charges_follow_the_evidence(place: Repository) -> None:
    """Rejected at once; released uncharged; the environment ten times, then it runs alone."""
    server = declared(place)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"reject", b"release"]))
    same(abort(server, life, claim(server, life)[0], Charge.REJECT), Fate.FAILED)
    same(abort(server, life, claim(server, life)[0], Charge.RELEASE), Fate.RETURNED)
    for _ in range(11):
        (element,) = claim(server, life, 2)
        same((element.aborts, element.is_suspect), (0, False))
        same(abort(server, life, element, Charge.ENVIRONMENT), Fate.RETURNED)
    (element,) = claim(server, life)
    same((element.aborts, element.is_suspect), (0, True))
    same(abort(server, life, element, Charge.ENVIRONMENT), Fate.RETURNED)
    same(claim(server, life)[0].aborts, 1)


def a_kill_decides(place: Repository) -> None:
    """Queued or running, KILLED, again KILLED; of what is done, TOO_LATE (G8)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    sent = send(client, session, "1")
    (element,) = claim(server, life)
    begin(server, life, element)
    same(client.perform(ops.Kill(eid=sent.eid)), KillAnswer.KILLED)
    refuses(server, errors.ClaimLost, finish(life, element))
    server.perform(ops.Rollback())
    same(abort(server, life, element, Charge.CHARGE), Fate.LOST)
    same(client.perform(ops.Kill(eid=sent.eid)), KillAnswer.KILLED)
    same(receive(client, session).outcome, RequestOutcome.CANCELLED)
    send(client, session, "2")
    execute(server, life, claim(server, life)[0])
    same(client.run(clerk.cancel_last_request(session, 1.0)), KillAnswer.TOO_LATE)


def a_revoked_claim_never_finishes(place: Repository) -> None:
    """The fence: eid and incarnation (finding 5); and the token of its own transaction (G2)."""
    server, other = declared(place), place.session()
    life = live(server)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    (element,) = claim(server, life)
    begin(server, life, element)
    refuses(server, errors.HandlerMisuse, finish(life, element, "another"))
    server.perform(ops.Rollback())
    other.perform(ops.CloseIncarnation(incarnation=life.incarnation))
    begin(server, life, element)
    refuses(server, errors.ClaimLost, finish(life, element))
    server.perform(ops.Rollback())


def only_what_was_started_is_charged(place: Repository) -> None:
    """A process died: its started element is charged, its other claims are not (G7)."""
    connection = declared(place)
    bodies = [b"started", b"claimed"]
    connection.perform(ops.EnqueueMany(queue="orders", bodies=bodies))
    dying, survivor = place.session(), place.session()
    life = live(dying, OTHER_PROCESS)
    (started,) = claim(dying, life)
    claim(dying, life)
    begin(dying, life, started)
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 0)
    dying.close()
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
    rest = live(survivor)
    back = {one.body: one.aborts for _ in bodies for one in claim(survivor, rest)}
    same(back, {b"started": 1, b"claimed": 0})


def a_broken_connection_is_not_a_death(place: Repository) -> None:
    """Its process lives and names its former incarnation: nobody is charged."""
    connection = declared(place)
    connection.perform(ops.Enqueue(queue="orders", body=b"1"))
    broken, following = place.session(), place.session()
    life = live(broken)
    (element,) = claim(broken, life)
    begin(broken, life, element)
    broken.close()
    opened = ops.OpenIncarnation(process=PROCESS, host="here", pid=1, former=life.incarnation)
    new = following.perform(opened)
    (again,) = claim(following, new)
    same((again.eid, again.aborts, again.code), (element.eid, 0, "server_died"))


def effects_commit_with_their_request(place: Repository) -> None:
    """The server's Program: what raised leaves no effect, what finished has one."""
    done: list[bytes] = []

    def handle(element: Element, effect: Callable[[str], None]) -> bytes:
        effect(element.body.decode())
        done.append(element.body)
        if done.count(b"poison") == 2 and done.count(b"good") == 1:
            server.stop()
        if element.body == b"poison":
            raise errors.HandlerFailed("ValueError", "poison")
        return b"reply"

    connection = declared(place)
    server = place.session(handle)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"poison", b"good"]))
    served = (Served("orders", "read committed"),)
    session = ServerSession(process=PROCESS, host="here", pid=1, served=served)
    server.run(serve(session))
    same((place.effects(), done.count(b"poison")), (["good"], 2))
    states = sorted(str(row.outcome) for row in connection.perform(ops.LookUp()))
    same(states, ["None", "done", "failed"])
    same((session.counts.done, session.counts.failed), (1, 1))


def a_caller_takes_an_element(place: Repository) -> None:
    """It leaves the queue when the transaction commits; rolled back, an abort is counted."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    send(client, session, "1")
    (element,) = claim(server, life)
    take = ops.Take(seq=element.seq, incarnation=life.incarnation)
    begin(server, life, element)
    xid = server.perform(take)
    abort = ops.AbortTaken(seq=element.seq, incarnation=life.incarnation, xid=xid)
    same(client.perform(abort), Fate.RUNNING)
    server.perform(ops.Rollback())
    same(client.perform(abort), Fate.RETURNED)
    (element,) = claim(server, life, 2)
    same(element.aborts, 1)
    begin(server, life, element)
    server.perform(take)
    refuses(server, errors.IllegalState, ops.Commit())
    begin(server, life, element)
    server.perform(take)
    server.perform(ops.ReplyTaken(seq=element.seq, incarnation=life.incarnation, reply=b"r"))
    server.perform(ops.Commit())
    same(receive(client, session).body, b"r")
