"""Behaviours of what fails: on whose terms it is dequeued (Q4).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq import errors
from onceq.manager.program import declare, show
from onceq.model import ops
from onceq.model.element import Charge, Fate, RequestOutcome
from onceq.model.queue import Queue
from proof.conformance.ground import (
    OTHER_PROCESS,
    PROCESS,
    abort,
    begin,
    claim,
    client_of,
    declared,
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
