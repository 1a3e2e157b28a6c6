"""Behaviours of the circuit breaker: a queue pauses when the environment fails (Q4).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.manager.program import show
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.model.queue import Queue
from proof.conformance.ground import (
    OTHER_PROCESS,
    PROCESS,
    abort,
    claim,
    declared,
    execute,
    live,
    same,
)

if TYPE_CHECKING:
    from onceq.model.element import Element
    from proof.conformance.ground import Connection, Repository

PATIENT: Queue[bytes, bytes] = Queue("orders", bytes, bytes, abort_limit=3, backoff_ms=0)


def _survey(connection: Connection) -> ops.Sighting:
    return connection.perform(
        ops.Survey(
            process=PROCESS, queues=["orders"], everything=True, tidy=False, value=None, holders=[]
        )
    )


def _fault(
    connection: Connection, life: ops.Incarnation, charge: Charge = Charge.ENVIRONMENT
) -> Element:
    """Lets the environment fail once; returns what it struck."""
    found = claim(connection, life, turn=0)
    same(len(found), 1)
    same(abort(connection, life, found[0], charge), Fate.RETURNED)
    return found[0]


def _is_paused(connection: Connection) -> bool:
    return connection.run(show("orders")).paused_until is not None


def faults_with_nothing_done_between_pause_a_queue(place: Repository) -> None:
    """After ten of them, by any servers, for a second; then by each for twice as long."""
    server = declared(place, PATIENT)
    other = place.session()
    life, another = live(server), live(other, OTHER_PROCESS)
    eid = server.perform(ops.Enqueue(queue="orders", body=b"1"))
    struck = _fault(other, another)
    for number in range(9):
        same([_is_paused(server)], [False])
        struck = _fault(*((server, life) if number % 2 else (other, another)))
    same(
        server.perform(ops.FindPause(queue_id=struck.queue_id, seq=struck.seq)),
        ops.Pause(faults=10, pause_s=1),
    )
    same(server.perform(ops.FindPause(queue_id=struck.queue_id, seq=struck.seq + 1)), None)
    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
        same([_is_paused(server)], [True])
        for turn in (0, 1):
            same(claim(server, life, turn=turn, n=2), [])
        by_eid = ops.ClaimEid(incarnation=life.incarnation, queue_id=struck.queue_id, eid=eid)
        same(server.perform(by_eid), None)
        same(server.perform(ops.Dequeue(queue="orders")), None)
        sighting = _survey(server)
        same((sighting.ready, sighting.stopped), ([False], [False]))
        same([0 < (sighting.due_s or 0) <= pause_s], [True])
        place.advance(pause_s - 0.5)
        same(claim(server, life, turn=0), [])
        place.advance(0.6)
        same(_survey(server).ready, [True])
        _fault(server, life)
    same(server.run(show("orders")).dequeue_started, server.run(show("orders")).enqueue_started)


def what_is_done_between_faults_begins_their_count_anew(place: Repository) -> None:
    """Before a pause, and after it; what takes effect in a caller's transaction counts too."""
    server = declared(place, PATIENT)
    life = live(server)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"1"]))
    for rounds in range(2):
        for _ in range(9):
            _fault(server, life)
        same([_is_paused(server)], [False])
        server.perform(ops.Enqueue(queue="orders", body=b"good"))
        (good,) = claim(server, life, turn=1)
        same((good.body, rounds), (b"good", rounds))
        execute(server, life, good)
    for _ in range(10):
        _fault(server, life)
    place.advance(1.1)
    (element,) = claim(server, life, turn=0)
    execute(server, life, element)
    server.perform(ops.Enqueue(queue="orders", body=b"2"))
    for _ in range(9):
        _fault(server, life)
    same([_is_paused(server)], [False])


def only_faults_of_the_environment_pause_a_queue(place: Repository) -> None:
    """Not a retry at a time that the handler says; one without a time does, as all then wait."""
    server = declared(
        place,
        Queue[bytes, bytes]("orders", bytes, bytes, abort_limit=100, retry_limit=100, backoff_ms=0),
    )
    life = live(server)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    for charge, after_s in ((Charge.CHARGE, None), (Charge.RETRY, 1.0), (Charge.RELEASE, None)):
        for _ in range(11):
            (element,) = claim(server, life, turn=0)
            same(abort(server, life, element, charge, after_s=after_s), Fate.RETURNED)
            place.advance(61)
    same([_is_paused(server)], [False])
    for _ in range(10):
        _fault(server, life, Charge.RETRY)
    same([_is_paused(server)], [True])


def a_pause_is_not_the_operators_stop(place: Repository) -> None:
    """Its end starts no queue that is stopped; a start ends it, and what was counted."""
    server = declared(place, PATIENT)
    life = live(server)
    server.perform(ops.Enqueue(queue="orders", body=b"1"))
    for _ in range(10):
        _fault(server, life)
    server.perform(ops.AlterQueue(queue="orders", dequeue_started=False))
    place.advance(2)
    same((_survey(server).stopped, claim(server, life, turn=0)), ([True], []))
    server.perform(ops.AlterQueue(queue="orders", dequeue_started=True))
    for number in range(10):
        same([_is_paused(server)], [False])
        same([number < 10, _fault(server, life).body], [True, b"1"])
    same([_is_paused(server)], [True])
    server.perform(ops.AlterQueue(queue="orders", abort_limit=9))
    same([_is_paused(server)], [True])
    server.perform(ops.AlterQueue(queue="orders", dequeue_started=True))
    same([_is_paused(server), len(claim(server, life, turn=0))], [False, 1])
