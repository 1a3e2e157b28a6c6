"""Behaviours of aborts: what each costs its element, and when it comes again (G7).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceq.manager.program import show
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.model.queue import Queue
from proof.conformance.ground import abort, claim, declared, execute, live, same

if TYPE_CHECKING:
    from proof.conformance.ground import Repository

PAUSE_S: Final = 61
"""Longer than a queue pauses after faults of the environment."""


def charges_follow_the_evidence(place: Repository) -> None:
    """Rejected at once; released uncharged; asked again ten times, then it runs alone."""
    server = declared(place)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"reject", b"release"]))
    same(abort(server, life, claim(server, life)[0], Charge.REJECT), Fate.FAILED)
    same(abort(server, life, claim(server, life)[0], Charge.RELEASE), Fate.RETURNED)
    for charge in (*[Charge.ENVIRONMENT] * 12, *[Charge.RETRY] * 11):
        place.advance(PAUSE_S)
        (element,) = claim(server, life, 2)
        same((element.aborts, element.is_suspect), (0, False))
        same(abort(server, life, element, charge), Fate.RETURNED)
    place.advance(PAUSE_S)
    (element,) = claim(server, life)
    same((element.aborts, element.is_suspect), (0, True))
    same(abort(server, life, element, Charge.RETRY), Fate.RETURNED)
    place.advance(PAUSE_S)
    same(claim(server, life)[0].aborts, 1)


def a_retry_says_when_and_its_queue_how_often(place: Repository) -> None:
    """It waits as long as it says, charged or not; the queue's retry limit is its bound."""
    queue: Queue[bytes, bytes] = Queue("orders", bytes, bytes, abort_limit=2, retry_limit=1)
    server = declared(place, queue)
    life = live(server)
    (eid,) = server.perform(ops.EnqueueMany(queue="orders", bodies=[b"later"]))
    fates: list[Fate] = []
    for aborts, is_suspect in ((0, False), (0, False), (0, True), (1, True)):
        (element,) = claim(server, life)
        same((element.aborts, element.is_suspect), (aborts, is_suspect))
        fates.append(abort(server, life, element, Charge.RETRY, after_s=60.0))
        place.advance(59)
        same(claim(server, life), [])
        place.advance(2)
    same(fates, [*[Fate.RETURNED] * 3, Fate.FAILED])
    same([one.attempts for one in server.perform(ops.LookUp(eid=eid, state="held"))], [2])
    told = server.perform(ops.ListAttempts(eid=eid))
    same([one.counts for one in told], [False, False, True, True])


def a_retry_limit_may_be_none_at_all(place: Repository) -> None:
    """At a limit of 0 the first Retry makes its element run alone; 0 s is no wait."""
    server = declared(place)
    life = live(server)
    server.perform(ops.AlterQueue(queue="orders", retry_limit=0, backoff_ms=5000))
    same(server.run(show("orders")).settings.retry_limit, 0)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"now"]))
    same(abort(server, life, claim(server, life)[0], Charge.RETRY, after_s=0.0), Fate.RETURNED)
    (element,) = claim(server, life)
    same((element.aborts, element.is_suspect), (0, True))


def faults_count_where_others_are_done(place: Repository) -> None:
    """The environment fails one request, and others of its queue, of the same server, between."""
    server = declared(place)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"faulty", *[b"good"] * 12]))
    (element,) = claim(server, life)
    for _ in range(12):
        same((element.body, element.aborts, element.is_suspect), (b"faulty", 0, False))
        same(abort(server, life, element, Charge.ENVIRONMENT), Fate.RETURNED)
        execute(server, life, claim(server, life)[0])
        place.advance(1)
        (element,) = claim(server, life, 2)
    same((element.body, element.aborts, element.is_suspect), (b"faulty", 0, True))
