"""Behaviours of a queue in strict order: one at a time, the first sent first (Q8).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk.session import Session
from onceq.manager.program import declare, show
from onceq.model import ops
from onceq.model.element import Charge, Fate, Lane
from onceq.model.queue import Queue
from proof.conformance.ground import (
    OTHER_PROCESS,
    PROCESS,
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

STRICT: Queue[bytes, bytes] = Queue(
    "orders", bytes, bytes, abort_limit=2, backoff_ms=60_000, order="strict"
)

OTHERS: Queue[bytes, bytes] = Queue("others", bytes, bytes)


def _filled(place: Repository) -> Connection:
    """Returns a session of a repository whose strict queue holds 1, 2 and 3."""
    connection = declared(place, STRICT)
    for body in (b"1", b"2", b"3"):
        connection.perform(ops.Enqueue(queue="orders", body=body))
    return connection


def _seen_ready(connection: Connection) -> list[bool]:
    """Returns for which queues a survey says that a claim would find something: for this one."""
    survey = ops.Survey(
        process=PROCESS, queues=["orders"], everything=True, tidy=False, value=None, holders=[]
    )
    return connection.perform(survey).ready


def a_strict_queue_runs_one_at_a_time_in_order(place: Repository) -> None:
    """Nobody gets a second one, however many are asked for, until the first has ended."""
    server = _filled(place)
    other = place.session()
    life, another = live(server), live(other, OTHER_PROCESS)
    same(server.run(show("orders")).settings.order, "strict")
    for body in (b"1", b"2", b"3"):
        same(_seen_ready(server), [True])
        (element,) = claim(server, life, n=10)
        same(element.body, body)
        same(_seen_ready(server), [False])
        same(claim(other, another, n=10), [])
        same(claim(server, life), [])
        execute(server, life, element)
    same(claim(server, life), [])


def what_is_finished_is_not_over_before_its_commit(place: Repository) -> None:
    """Until the handler's transaction ends, nobody gets the next; nor after its rollback."""
    server = _filled(place)
    other = place.session()
    life, another = live(server), live(other, OTHER_PROCESS)
    (element,) = claim(server, life)
    begin(server, life, element)
    server.perform(finish(life, element))
    same(claim(other, another), [])
    server.perform(ops.Rollback())
    same(claim(other, another), [])
    execute(server, life, element)
    same([one.body for one in claim(other, another)], [b"2"])


def a_head_in_back_off_blocks_a_strict_queue(place: Repository) -> None:
    """It is tried again before any other, when its time has come; once it has failed, it is out."""
    server = _filled(place)
    life = live(server)
    for fate in (Fate.RETURNED, Fate.FAILED):
        (element,) = claim(server, life)
        same(element.body, b"1")
        same(abort(server, life, element, Charge.CHARGE), fate)
        if fate is Fate.RETURNED:
            same(_seen_ready(server), [False])
            same(claim(server, life), [])
            place.advance(61)
        same(_seen_ready(server), [True])
    same([one.body for one in claim(server, life)], [b"2"])


def the_next_of_a_strict_queue_follows_a_kill(place: Repository) -> None:
    """Of one that waits and of the head that runs, which cannot commit any more."""
    server = _filled(place)
    life = live(server)
    (element,) = claim(server, life)
    server.perform(ops.Kill(eid=element.eid, timeout_s=1.0))
    (following,) = claim(server, life)
    same(following.body, b"2")
    begin(server, life, element)
    refuses(server, errors.ClaimLost, finish(life, element))
    server.perform(ops.Rollback())
    execute(server, life, following)
    same([one.body for one in claim(server, life)], [b"3"])


def what_a_dead_server_began_comes_first(place: Repository) -> None:
    """A takeover gives it back, and it comes before what was sent later."""
    server = _filled(place)
    dying = place.session()
    life = live(server)
    (element,) = claim(dying, live(dying, OTHER_PROCESS))
    same(claim(server, life), [])
    dying.close()
    server.perform(ops.TakeOver(process=PROCESS))
    same([one.eid for one in claim(server, life)], [element.eid])


def a_suspect_head_blocks_a_strict_queue(place: Repository) -> None:
    """It comes again, before any other, once no suspect of another queue runs."""
    server = _filled(place)
    life = live(server)
    server.run(declare(OTHERS))
    server.perform(ops.Enqueue(queue="others", body=b"other"))
    numbers = {name: server.run(show(name)).queue_id for name in ("orders", "others")}
    claims = {
        name: partial(ops.Claim, queue_id=number, n=1, turn=0, alone=True)
        for name, number in numbers.items()
    }
    for one in claims.values():
        (element,) = server.perform(one(incarnation=life.incarnation))
        same(abort(server, life, element, Charge.SUSPECT), Fate.RETURNED)
    place.advance(61)
    same(_seen_ready(server), [True])
    (other,) = server.perform(claims["others"](incarnation=life.incarnation))
    same(other.lane, Lane.SUSPECT)
    second = place.session()
    another = live(second, OTHER_PROCESS)
    same(_seen_ready(second), [False])
    same(claim(second, another), [])
    execute(server, life, other)
    same(_seen_ready(second), [True])
    same([(one.body, one.lane) for one in claim(second, another)], [(b"1", Lane.SUSPECT)])


def what_breaks_the_order_is_refused(place: Repository) -> None:
    """A priority, a delay, a dequeue by eid; and nothing happened."""
    server = declared(place, STRICT)
    eid = server.perform(ops.Enqueue(queue="orders", body=b"1"))
    session: Session[bytes, bytes] = Session(
        name="till-7", thread="", queue=STRICT, window=1, keep=0
    )
    server.run(clerk.connect(session))
    says = 'queue "orders" is in strict order, and '
    for priority, not_before, why in ((5, None, "takes no"), (4, place.now(), "delays")):
        enqueue = ops.Enqueue(queue="orders", body=b"2", priority=priority, not_before=not_before)
        refuses(server, errors.InvalidValue, enqueue, says + why)
        send = ops.Send(
            who=session.who,
            queue="orders",
            request=ops.Request(rid="1", body=b"2", priority=priority, not_before=not_before),
            send_no=1,
            ack=[],
            content_type=None,
        )
        refuses(server, errors.InvalidValue, send, says + why)
    queue_id = server.run(show("orders")).queue_id
    out_of_turn = ops.ClaimEid(incarnation=live(server).incarnation, queue_id=queue_id, eid=eid)
    refuses(server, errors.InvalidValue, out_of_turn, says + "gives")
    same(server.run(show("orders")).depth, 1)
