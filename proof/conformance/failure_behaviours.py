"""Behaviours of what fails: on whose terms it is dequeued, and what is held (Q4, G3).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from onceq import errors
from onceq.manager.program import declare, show
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer, RequestOutcome, Unheld
from onceq.model.queue import Queue
from proof.conformance.ground import (
    OTHER_PROCESS,
    PROCESS,
    abort,
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

if TYPE_CHECKING:
    from onceq.model.element import Element
    from proof.conformance.ground import Connection, Repository

PATIENT: Queue[bytes, bytes] = Queue("orders", bytes, bytes, abort_limit=3, backoff_ms=0)


def _on_terms(
    connection: Connection,
    life: ops.Incarnation,
    *,
    element: Element | None = None,
    abort_limit: int | None = None,
    error_queue: str | None = None,
) -> bool:
    """Sets the terms of a life, or of one element that it has claimed."""
    return connection.perform(
        ops.SetTerms(
            incarnation=life.incarnation,
            queue_id=connection.run(show("orders")).queue_id,
            seq=None if element is None else element.seq,
            abort_limit=abort_limit,
            error_queue=error_queue,
        )
    )


def _held_in(connection: Connection) -> dict[str, int]:
    """Returns how many elements are held in which queue."""
    found = connection.perform(ops.ListQueues())
    return {one.name: one.held for one in found if one.held}


def what_a_life_claims_fails_on_its_terms(place: Repository) -> None:
    """At its own abort limit, to its own error queue, with its one reply; others are not told."""
    server = declared(place, PATIENT)
    other = place.session()
    life, another = live(server), live(other, OTHER_PROCESS)
    same([_on_terms(server, life, abort_limit=1, error_queue="doubtful")], [True])
    client, session = client_of(place)
    send(client, session, "1")
    (element,) = claim(other, another)
    same(abort(other, another, element, Charge.CHARGE), Fate.RETURNED)
    (element,) = claim(server, life)
    same(abort(server, life, element, Charge.CHARGE), Fate.FAILED)
    same(where(server, "1"), {("held", None), ("replied", "failed"), ("finished", "failed")})
    same(receive(client, session).outcome, RequestOutcome.FAILED)
    same(_held_in(server), {"doubtful": 1})


def terms_are_of_one_life(place: Repository) -> None:
    """The next life of the same process has its queue's limit, unless it says otherwise."""
    server = declared(place, PATIENT)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    life = live(server)
    _on_terms(server, life, abort_limit=1)
    server.perform(ops.CloseIncarnation(incarnation=life.incarnation))
    same([_on_terms(server, life, abort_limit=1)], [False])
    life = live(server)
    (element,) = claim(server, life)
    same(abort(server, life, element, Charge.CHARGE), Fate.RETURNED)
    _on_terms(server, life, abort_limit=1000)
    _on_terms(server, life, abort_limit=2)  # the last word counts
    (element,) = claim(server, life)
    same(abort(server, life, element, Charge.CHARGE), Fate.FAILED)
    same(_held_in(server), {"orders.error": 1})


def terms_may_be_of_one_element(place: Repository) -> None:
    """What the same life claims beside it, before and after, fails as the queue says."""
    server = declared(place, PATIENT)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2", b"3"]))
    life = live(server)
    elements = [claim(server, life)[0] for _ in range(3)]
    same([_on_terms(server, life, element=elements[1], abort_limit=1)], [True])
    fates = [abort(server, life, one, Charge.CHARGE) for one in elements]
    same(fates, [Fate.RETURNED, Fate.FAILED, Fate.RETURNED])
    connection = place.session()
    connection.perform(ops.AlterQueue(queue="orders", abort_limit=4))
    for number in range(2):  # what came back is on no terms of a former claim
        (element,) = claim(server, life)
        if number == 0:
            _on_terms(server, life, element=element, abort_limit=3)
        same((element.body, abort(server, life, element, Charge.CHARGE)), (b"1", Fate.RETURNED))
        place.advance(1)
        (other,) = claim(server, life)
        same(other.body, b"3")
        same(abort(server, life, other, Charge.RELEASE), Fate.RETURNED)
        place.advance(1)


def a_death_is_charged_on_the_terms_of_the_dead(place: Repository) -> None:
    """Whoever takes over finds them."""
    server = declared(place, PATIENT)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    dying = place.session()
    dead = live(dying, OTHER_PROCESS)
    _on_terms(dying, dead, abort_limit=1, error_queue="doubtful")
    (element,) = claim(dying, dead)
    begin(dying, dead, element)
    dying.close()
    server.perform(ops.TakeOver(process=PROCESS))
    server.perform(ops.Judge(process=OTHER_PROCESS, verdict=ops.Verdict.ENDED))
    same(_held_in(server), {"doubtful": 1})


def an_error_queue_that_is_named_in_terms_stays(place: Repository) -> None:
    """It is not destroyed while the life is there; a client's own queue is none."""
    server = declared(place, PATIENT)
    life = live(server)
    _on_terms(server, life, error_queue="doubtful")
    refuses(server, errors.QueueNotEmpty, ops.DestroyQueue(queue="doubtful"))
    queue_id = server.run(show("orders")).queue_id
    wrong = ops.SetTerms(incarnation=life.incarnation, queue_id=queue_id, error_queue="reply-7")
    refuses(server, errors.InvalidValue, wrong, "reply")
    server.run(declare(Queue[bytes, bytes]("others", bytes, bytes, error_queue="doubtful")))
    _on_terms(server, life, error_queue="others.error")
    server.perform(ops.DestroyQueue(queue="others"))
    same(
        [one.name for one in server.perform(ops.ListQueues(queue="others.error"))], ["others.error"]
    )
    server.perform(ops.CloseIncarnation(incarnation=life.incarnation))
    server.perform(ops.DestroyQueue(queue="others.error"))


HOLDING: Queue[bytes, bytes] = Queue(
    "orders", bytes, bytes, abort_limit=2, backoff_ms=0, on_failure="hold"
)
IN_LINE: Queue[bytes, bytes] = Queue(
    "orders", bytes, bytes, abort_limit=1, backoff_ms=0, on_failure="hold", order="strict"
)


def _until_held(connection: Connection, life: ops.Incarnation) -> Element:
    """Aborts the next element until its queue holds it; returns it."""
    (element,) = claim(connection, life)
    fate = abort(connection, life, element, Charge.CHARGE)
    while fate is Fate.RETURNED:
        former = element
        (element,) = claim(connection, life, turn=0)
        same(element.eid, former.eid)
        fate = abort(connection, life, element, Charge.CHARGE)
    same(fate, Fate.HELD)
    return element


def _survey(connection: Connection) -> ops.Sighting:
    return connection.perform(
        ops.Survey(
            process=PROCESS, queues=["orders"], everything=True, tidy=False, value=None, holders=[]
        )
    )


def what_is_held_is_claimed_by_nobody(place: Repository) -> None:
    """Not by turn, not by eid; and its client has no reply."""
    server = declared(place, HOLDING)
    client, session = client_of(place)
    send(client, session, "1")
    life = live(server)
    element = _until_held(server, life)
    same(where(server, "1"), {("held", None)})
    same(_held_in(server), {"orders": 1})
    info = server.run(show("orders"))
    same((info.settings.on_failure, info.held, info.ready, info.waiting), ("hold", 1, 0, 0))
    for turn in (-1, 0, 1, 2, 3):
        same(claim(server, life, turn=turn, n=10), [])
    by_eid = ops.ClaimEid(incarnation=life.incarnation, queue_id=element.queue_id, eid=element.eid)
    same(server.perform(by_eid), None)
    same(server.perform(ops.Dequeue(queue="orders")), None)
    same(server.perform(ops.Peek(queue="orders", n=10)), [])
    same(_survey(server).ready, [False])
    refuses(server, errors.QueueNotEmpty, ops.DestroyQueue(queue="orders"))
    same(server.perform(ops.Redrive(eid=element.eid)), None)


def what_is_held_is_retried_as_itself(place: Repository) -> None:
    """With its rid and its eid; its aborts are counted anew; once it is not held, not again."""
    server = declared(place, HOLDING)
    client, session = client_of(place)
    send(client, session, "1")
    life = live(server)
    element = _until_held(server, life)
    same(server.perform(ops.RetryHeld(eid=element.eid)), Unheld.RETRIED)
    same(server.perform(ops.RetryHeld(eid=element.eid)), Unheld.NOT_HELD)
    same(server.perform(ops.GiveUpHeld(eid=element.eid)), Unheld.NOT_HELD)
    (again,) = claim(server, life, turn=0)
    same((again.eid, again.rid, again.aborts), (element.eid, "1", 0))
    same(abort(server, life, again, Charge.CHARGE), Fate.RETURNED)
    (again,) = claim(server, life, turn=0)
    execute(server, life, again)
    same(receive(client, session).outcome, RequestOutcome.DONE)


def what_is_given_up_has_failed(place: Repository) -> None:
    """One failure reply, of the last abort; it is in the error queue, and can be redriven."""
    server = declared(place, HOLDING)
    client, session = client_of(place)
    send(client, session, "1")
    element = _until_held(server, live(server))
    same(server.perform(ops.GiveUpHeld(eid=element.eid)), Unheld.GIVEN_UP)
    same(server.perform(ops.GiveUpHeld(eid=element.eid)), Unheld.NOT_HELD)
    same(server.perform(ops.RetryHeld(eid=element.eid)), Unheld.NOT_HELD)
    reply = receive(client, session)
    same((reply.outcome, reply.code, reply.text), (RequestOutcome.FAILED, "Bad", "no"))
    same(_held_in(server), {"orders.error": 1})
    same([server.perform(ops.Redrive(eid=element.eid)) is None], [False])


def what_is_rejected_is_not_held(place: Repository) -> None:
    """A rejection is an answer; a kill and an expiry end what is held."""
    server = declared(place, HOLDING)
    life = live(server)
    for body in (b"rejected", b"killed"):
        server.perform(ops.Enqueue(queue="orders", body=body))
    late = ops.Enqueue(queue="orders", body=b"late", expires_at=place.now() + timedelta(seconds=60))
    server.perform(late)
    (rejected,) = claim(server, life)
    same(abort(server, life, rejected, Charge.CHARGE), Fate.RETURNED)
    (rejected,) = claim(server, life, turn=0)
    same((rejected.body, rejected.aborts), (b"rejected", 1))
    same(abort(server, life, rejected, Charge.REJECT), Fate.FAILED)
    killed, expired = _until_held(server, life), _until_held(server, life)
    same((killed.body, expired.body), (b"killed", b"late"))
    same(server.perform(ops.Kill(eid=killed.eid)), KillAnswer.KILLED)
    same(server.perform(ops.RetryHeld(eid=killed.eid)), Unheld.NOT_HELD)
    same(_held_in(server), {"orders": 1, "orders.error": 1})
    place.advance(61)
    same(server.perform(ops.RetryHeld(eid=expired.eid)), Unheld.EXPIRED)
    same(where(server, expired.rid), {("finished", "expired")})


def what_is_held_expires_when_somebody_looks(place: Repository) -> None:
    """A survey and a sweep, as no claim ever looks at it."""
    server = declared(place, HOLDING)
    life = live(server)
    for look in (_survey, _sweep):
        late = ops.Enqueue(
            queue="orders", body=b"1", expires_at=place.now() + timedelta(seconds=60)
        )
        server.perform(late)
        element = _until_held(server, life)
        look(server)
        same(where(server, element.rid), {("held", None)})
        place.advance(61)
        look(server)
        same(where(server, element.rid), {("finished", "expired")})


def _sweep(connection: Connection) -> ops.Observation:
    queue_id = connection.run(show("orders")).queue_id
    return connection.perform(ops.Sweep(queue_ids=[queue_id], value=None, holders=[]))


def a_held_head_blocks_a_strict_queue(place: Repository) -> None:
    """Until it is retried, given up, killed or expires; retried, it comes before all others."""
    server = declared(place, IN_LINE)
    for body in (b"1", b"2", b"3"):
        server.perform(ops.Enqueue(queue="orders", body=body))
    life = live(server)
    head = _until_held(server, life)
    same(claim(server, life), [])
    same(_survey(server).ready, [False])
    server.perform(ops.RetryHeld(eid=head.eid))
    same(_survey(server).ready, [True])
    same(_until_held(server, life).eid, head.eid)
    same(server.perform(ops.GiveUpHeld(eid=head.eid)), Unheld.GIVEN_UP)
    second = _until_held(server, life)
    same((second.body, claim(server, life)), (b"2", []))
    server.perform(ops.Kill(eid=second.eid))
    same([one.body for one in claim(server, life)], [b"3"])


def whether_a_queue_holds_can_be_changed(place: Repository) -> None:
    """For what fails from then on; what it holds stays held."""
    server = declared(place, HOLDING)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"1", b"2"]))
    held = _until_held(server, life)
    server.perform(ops.AlterQueue(queue="orders", on_failure="fail"))
    for fate in (Fate.RETURNED, Fate.FAILED):
        (element,) = claim(server, life, turn=0)
        same(abort(server, life, element, Charge.CHARGE), fate)
    same(_held_in(server), {"orders": 1, "orders.error": 1})
    server.perform(ops.AlterQueue(queue="orders", abort_limit=1))  # on_failure stays
    same(server.run(show("orders")).settings.on_failure, "fail")
    same(server.perform(ops.RetryHeld(eid=held.eid)), Unheld.RETRIED)
