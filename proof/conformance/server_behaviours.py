"""Behaviours of servers, kills and the caller's transaction; see `proof.conformance.suite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq import errors
from onceq.clerk import program as clerk
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer, RequestOutcome
from onceq.server.program import Served, ServerSession, serve
from proof.conformance.ground import (
    NOBODY,
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


def fresh_returned_and_suspects_take_turns(place: Repository) -> None:
    """Fresh ones first every second time, what is due again and suspects in turn between; alone."""
    server = declared(place)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"suspect", b"due", b"f", b"g"]))
    for charge in (Charge.SUSPECT, Charge.RELEASE):
        same(abort(server, life, claim(server, life)[0], charge), Fate.RETURNED)
    place.advance(2)
    bodies = [claim(server, life, turn)[0].body for turn in range(4)]
    same(bodies, [b"suspect", b"f", b"due", b"g"])
    server.perform(ops.CloseIncarnation(incarnation=life.incarnation))
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"h"]))
    place.advance(2)
    for turn, first in ((2, {b"f", b"due", b"g"}), (1, {b"h"})):
        claimed = claim(server, life, turn, n=3)
        same({element.body for element in claimed}, first)
    (suspect,) = claim(server, life, 2, n=3)
    same(abort(server, life, suspect, Charge.RELEASE), Fate.RETURNED)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"i"]))
    same([element.is_suspect for element in claim(server, life, 0)], [False])
    same([element.is_suspect for element in claim(server, life, -1, n=3)], [True])


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
    whose = (life.incarnation, OTHER_PROCESS, "here", 1)
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 0)
    dying.close()
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
    same(survivor.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED)), wanted=True)
    told = survivor.perform(ops.ListTakenOver())
    same([(one.incarnation, one.process, one.host, one.pid) for one in told], 2 * [whose])
    same([(one.returned, one.suspects, one.charged) for one in told], [(1, 0, 0), (0, 0, 1)])
    same(survivor.perform(ops.ListTakenOver()), [])
    rest = live(survivor)
    back = {one.body: one.aborts for _ in bodies for one in claim(survivor, rest)}
    same(back, {b"started": 1, b"claimed": 0})


def what_was_started_waits_for_a_verdict(place: Repository) -> None:
    """Sessions that ended are not a death: a life that comes back acquits; a minute convicts."""
    connection = declared(place)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"started", b"claimed"]))
    survivor = place.session()
    rest = live(survivor)
    for process, comes_back in ((OTHER_PROCESS, True), (NOBODY, False)):
        cut = place.session()
        opening = ops.OpenIncarnation(process=process, host="here", pid=1, identity="it")
        life = cut.perform(opening)
        started, claimed = claim(cut, life, 2, n=2)
        begin(cut, life, started)
        cut.close()
        for _ in range(2):
            same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
            place.advance(29)
        same(survivor.perform(ops.FindMissing()), [ops.Missing(process=process, identity="it")])
        (back,) = claim(survivor, rest, 2, n=2)
        same((back.eid, back.aborts), (claimed.eid, 0))
        same(abort(survivor, rest, back, Charge.RELEASE), Fate.RETURNED)
        if comes_back:
            live(place.session(), process)
        place.advance(3)
        same(survivor.perform(ops.TakeOver(process=PROCESS)), int(not comes_back))
        both = claim(survivor, rest, 2, n=2)
        same(sorted(one.aborts for one in both), [0, int(not comes_back)])
        for one in both:
            same(abort(survivor, rest, one, Charge.RELEASE), Fate.RETURNED)
        place.advance(1)


def a_verdict_waits_for_the_sessions(place: Repository) -> None:
    """A supervisor may say that a process has ended before the database knows."""
    server = declared(place)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    dying = place.session()
    life = live(dying, OTHER_PROCESS)
    (element,) = claim(dying, life)
    begin(dying, life, element)
    same(server.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED)), wanted=True)
    same(server.perform(ops.Judge(process=NOBODY, verdict=ops.Verdict.ENDED)), wanted=False)
    dying.close()
    same(server.perform(ops.TakeOver(process=PROCESS)), 1)
    (again,) = claim(server, live(server))
    same(again.aborts, 1)


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


def requests_of_a_batch_fail_alone(place: Repository) -> None:
    """One transaction; what raised leaves no effect, is accounted for, and costs nobody else."""

    def handle(element: Element, effect: Callable[[str], None]) -> bytes:
        effect(element.body.decode())
        match element.body:
            case b"poison":
                raise errors.HandlerFailed("ValueError", "poison")
            case b"reject":
                raise errors.Reject("never")
            case b"last":
                server.stop()
            case _:
                pass
        return b"reply"

    connection = declared(place)
    server = place.session(handle)
    bodies = [b"good", b"poison", b"reject", b"last"]
    enqueued = connection.perform(ops.EnqueueMany(queue="orders", bodies=bodies))
    eids = dict(zip(bodies, enqueued, strict=True))
    served = (Served("orders", "read committed", len(bodies)),)
    session = ServerSession(process=PROCESS, host="here", pid=1, served=served)
    server.run(serve(session))
    same(place.effects(), ["good", "last"])
    ends = {row.rid: row.outcome for row in connection.perform(ops.LookUp(state="finished"))}
    same(ends.get(str(eids[b"poison"])), None)
    same(ends[str(eids[b"reject"])], "failed")
    counts = session.counts
    same((counts.done, counts.failed, counts.returned), (2, 1, 1))


def a_kill_undoes_the_batch_in_which_it_runs(place: Repository) -> None:
    """Until the batch has finished a kill wins; nothing of that batch takes effect then (G8)."""
    connection = declared(place)
    server = place.session(_writes)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2", b"3"]))
    life = live(server)
    first, killed, last = claim(server, life, n=3)
    begin(server, life, first, several=True)
    for one in (first, killed, last):
        server.perform(ops.Call(queue="orders", element=one))
        server.perform(ops.MayGoOn())
    same(connection.perform(ops.Kill(eid=killed.eid)), KillAnswer.KILLED)
    seqs = [one.seq for one in (first, killed, last)]
    several = replace(finish(life, first), batch=True, commit=True)
    refuses(server, errors.ClaimLost, replace(several, seqs=seqs, replies=[b"r"] * 3))
    same(server.perform(ops.Rollback()), wanted=False)
    same(place.effects(), [])
    held = ops.StillClaimed(seqs=[last.seq, *seqs[:2]], incarnation=life.incarnation)
    same(server.perform(held), [first.seq, last.seq])
    begin(server, life, first, several=True)
    for one in (first, last):
        server.perform(ops.Call(queue="orders", element=one))
    seqs = [first.seq, last.seq]
    finished = server.perform(replace(several, seqs=seqs, replies=[b"r"] * 2))
    same((finished, place.effects()), (ops.Finished(following=[]), ["1", "3"]))


def a_kill_of_the_first_of_a_batch_leaves_the_others_suspects(place: Repository) -> None:
    """The marker names the first; whoever removes that lets it name another (G7)."""
    connection = declared(place)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2", b"3"]))
    dying, survivor = place.session(_writes), place.session()
    life = live(dying, OTHER_PROCESS)
    claimed = claim(dying, life, n=3)
    begin(dying, life, claimed[0], several=True)
    for one in claimed[:2]:
        same(connection.perform(ops.Kill(eid=one.eid)), KillAnswer.KILLED)
    dying.close()
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
    survivor.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED))
    (taken,) = survivor.perform(ops.ListTakenOver())
    same((taken.returned, taken.suspects, taken.charged), (0, 1, 0))


def a_death_in_a_batch_is_halved(place: Repository) -> None:
    """Nobody is charged; all are suspects, and run together again, half as many at each death."""
    connection = declared(place)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2", b"3", b"4", b"5"]))
    survivor = place.session()
    for held in (5, 3):
        dying = place.session(_writes)
        life = live(dying, OTHER_PROCESS)
        claimed = claim(dying, life, n=9)
        same(len(claimed), held)
        begin(dying, life, claimed[0], several=True)
        dying.perform(ops.Call(queue="orders", element=claimed[0]))
        dying.close()
        same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
        survivor.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED))
    rest = live(survivor)
    few = claim(survivor, rest, n=1)
    together = [few, *(claim(survivor, rest, n=9) for _ in range(4))]
    same(sorted(len(one) for one in together), [0, 1, 1, 1, 2])
    same({(one.aborts, one.is_suspect) for some in together for one in some}, {(0, True)})


def what_came_back_is_no_suspect_of_a_batch(place: Repository) -> None:
    """It was charged before, so that it runs alone: it cannot have been in the batch that died."""
    connection = declared(place)
    connection.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2", b"3"]))
    dying, survivor = place.session(), place.session()
    life = live(dying, OTHER_PROCESS)
    (charged, *_) = claim(dying, life, n=1)
    same(abort(dying, life, charged, Charge.CHARGE), Fate.RETURNED)
    fresh = claim(dying, life, n=2)
    same([one.body for one in claim(dying, life, turn=2)], [b"1"])
    begin(dying, life, fresh[0], several=True)
    dying.close()
    same(survivor.perform(ops.TakeOver(process=PROCESS)), 1)
    survivor.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED))
    rest = live(survivor)
    back = [one for _ in range(3) for one in claim(survivor, rest, n=9)]
    found = sorted((one.body, one.aborts, one.is_suspect) for one in back)
    same(found, [(b"1", 1, False), (b"2", 0, True), (b"3", 0, True)])


def _writes(element: Element, effect: Callable[[str], None]) -> bytes:
    effect(element.body.decode())
    return b"reply"


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


def what_is_taken_leaves_its_tag_with_the_commit(place: Repository) -> None:
    """In the transaction that takes it, and not before; nor when the tag is refused."""
    server = declared(place)
    life = live(server)
    operator = place.session()
    (one,) = operator.perform(ops.Register(queue="orders", name="device"))
    on: dict[str, Any] = {"who": one.who, "queue": "orders", "tag": b"t"}
    eid = operator.perform(ops.Enqueue(queue="orders", body=b"1"))
    (element,) = claim(server, life)
    take = ops.TakeTagged(**on, seq=element.seq, incarnation=life.incarnation)
    last = ops.ReadLast(who=one.who, queue="orders")
    for kind in (None, "dequeue"):
        begin(server, life, element)
        server.perform(ops.BeginTagged(**on))
        server.perform(take)
        same(getattr(server.perform(last), "kind", ""), "dequeue")
        same(getattr(operator.perform(last), "kind", ""), None)
        if kind is None:
            server.perform(ops.Rollback())
        else:
            server.perform(ops.Commit())
        same(getattr(operator.perform(last), "kind", ""), kind)
    known = ops.LastOperation(kind="dequeue", eid=eid, tag=b"t", body=b"1")
    same(operator.perform(last), known)
    refuses(operator, errors.ClaimLost, take)
