"""Behaviours of scans: what a look through a queue meets, and what it locks (spec Q11).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onceq import errors
from onceq.manager import scanning
from onceq.model import ops
from onceq.model.element import Charge, ElementState, Fate, KillAnswer
from onceq.model.scan import OpenScan, Scan, Scanned
from proof.conformance.ground import (
    ORDERS,
    OTHER_PROCESS,
    abort,
    claim,
    client_of,
    declared,
    execute,
    live,
    receive,
    refuses,
    same,
    send,
)

if TYPE_CHECKING:
    from proof.conformance.ground import Connection, Repository

LATER_S: Final = 10.0


def _new(queue: str = ORDERS.name, *, locked: bool = False, page: int = 2) -> Scan:
    scan = scanning.checked(queue, locked=locked, has_connection=locked)
    scan.page = page
    return scan


def _next(connection: Connection, scan: Scan) -> list[Scanned]:
    return connection.run(scanning.following(scan))


def _rest(connection: Connection, scan: Scan) -> list[Scanned]:
    found: list[Scanned] = []
    while page := _next(connection, scan):
        found += page
    return found


def _all(connection: Connection, queue: str = ORDERS.name) -> list[tuple[bytes, ElementState]]:
    return [(one.body, one.state) for one in _rest(connection, _new(queue))]


def _bodies(found: list[Scanned]) -> list[bytes]:
    return [one.body for one in found]


def _enqueue(connection: Connection, *bodies: bytes, **attributes: Any) -> None:
    for body in bodies:
        connection.perform(ops.Enqueue(queue=ORDERS.name, body=body, **attributes))


def a_scan_meets_all_of_a_queue_in_its_order(place: Repository) -> None:
    """By priority, then by time; claimed, delayed and stopped too; and nothing changes."""
    connection = declared(place)
    refuses(connection, errors.QueueNotFound, OpenScan(queue="nowhere", locked=False))
    same(_all(connection), [])
    _enqueue(connection, b"least", priority=0)
    _enqueue(connection, b"second", b"third")
    _enqueue(connection, b"last", not_before=place.now() + timedelta(seconds=LATER_S))
    _enqueue(connection, b"first", priority=9)
    _enqueue(connection, b"before", not_before=place.now() + timedelta(seconds=1))
    (claimed,) = claim(connection, live(connection))
    connection.perform(ops.AlterQueue(queue=ORDERS.name, dequeue_started=False))
    place.advance(2)
    wanted = {
        b"first": ElementState.QUEUED,
        b"second": ElementState.QUEUED,
        b"third": ElementState.QUEUED,
        b"least": ElementState.QUEUED,
        b"before": ElementState.QUEUED,
        b"last": ElementState.WAITING,
    }
    wanted[claimed.body] = ElementState.EXECUTING
    same(_all(connection), list(wanted.items()))
    same(_all(connection), list(wanted.items()))


def many_of_one_moment_are_met_once_each(place: Repository) -> None:
    """More than a page has: none is left out, none comes twice."""
    connection = declared(place)
    moment = place.now() + timedelta(seconds=LATER_S)
    bodies = [b"%d" % number for number in range(7)]
    _enqueue(connection, *bodies, not_before=moment)
    _enqueue(connection, b"later", not_before=moment + timedelta(seconds=1))
    found = _bodies(_rest(connection, _new()))
    same(sorted(found[:-1]), bodies)
    same(found[-1], b"later")


def what_is_given_back_meanwhile_comes_once(place: Repository) -> None:
    """Whether it was met before or not: it goes behind what is fresh, and to the suspects."""
    connection = declared(place)
    life = live(connection)
    _enqueue(connection, *(b"%d" % number for number in range(6)))
    scan = _new()
    met = _bodies(_next(connection, scan))
    same(met, [b"0", b"1"])
    claimed = claim(connection, life, n=6)
    for number, one in enumerate(sorted(claimed, key=lambda one: one.body)):
        charge = Charge.CHARGE if number % 2 else Charge.SUSPECT
        same(abort(connection, life, one, charge), Fate.RETURNED)
    met += _bodies(_rest(connection, scan))
    same(sorted(met), [b"%d" % number for number in range(6)])


def what_comes_after_the_beginning_does_not_come(place: Repository) -> None:
    """So a scan ends, however fast others send; and what has left does not come either."""
    connection = declared(place)
    _enqueue(connection, *(b"%d" % number for number in range(4)))
    scan = _new()
    met = _bodies(_next(connection, scan))
    _enqueue(connection, b"fresh", b"urgent")
    _enqueue(connection, b"late", not_before=place.now() + timedelta(seconds=LATER_S))
    for _ in range(4):
        connection.perform(ops.Dequeue(queue=ORDERS.name))
    met += _bodies(_rest(connection, scan))
    same(met, [b"0", b"1"])
    same(_rest(connection, scan), [])


def what_failed_is_met_in_its_error_queue_and_replies_in_theirs(place: Repository) -> None:
    """Until they are redriven, and acknowledged; what was kept for rereceive is not there."""
    client, session = client_of(_ready(place), window=3, keep=3)
    for rid in ("1", "2", "3"):
        send(client, session, rid)
    server = place.session()
    life = live(server)
    first, second, third = sorted(claim(server, life, n=3), key=lambda one: one.rid)
    execute(server, life, first)
    same(abort(server, life, second, Charge.REJECT), Fate.FAILED)
    execute(server, life, third)
    (failed,) = _rest(server, _new("orders.error"))
    same((failed.rid, failed.state, failed.code), ("2", ElementState.HELD, "Bad"))
    registrant = first.registrant_id
    (replies,) = (
        info.name for info in server.perform(ops.ListQueues()) if info.kind.value == "reply"
    )
    met = _rest(server, _new(replies))
    same([(one.rid, one.state) for one in met], [(rid, ElementState.REPLIED) for rid in "123"])
    same({one.registrant_id for one in met}, {registrant})
    receive(client, session)
    ack = ops.Acknowledge(who=session.who, rids=["1"], ckpt=None, s_rid="3", s_no=3, keep=3)
    client.perform(ack)
    same([one.rid for one in _rest(server, _new(replies))], ["2", "3"])
    scan = _new("orders.error")
    same(len(_next(server, scan)), 1)
    server.perform(ops.Redrive(eid=failed.eid))
    same(_rest(server, scan), [])
    same(_all(server, "orders.error"), [])


def _ready(place: Repository) -> Repository:
    """Returns the place, with the queue declared."""
    declared(place)
    return place


def a_locked_scan_keeps_others_from_what_it_meets(place: Repository) -> None:
    """Only what is unclaimed; nobody claims or kills it, and others are not held up."""
    one, other = declared(place), place.session()
    life = live(other)
    _enqueue(one, *(b"%d" % number for number in range(3)))
    (running,) = claim(other, life)
    one.perform(ops.BeginWork())
    found = _rest(one, _new(locked=True))
    same(sorted([running.body, *_bodies(found)]), [b"0", b"1", b"2"])
    _enqueue(other, b"new")
    same(_bodies(list(claim(other, life, n=9))), [b"new"])  # type: ignore[arg-type] # claimed are elements, too
    refuses(other, errors.DeadlineExceeded, ops.Kill(eid=found[0].eid, timeout_s=0.05))
    third = place.session()
    third.perform(ops.BeginWork())
    same(_rest(third, _new(locked=True)), [])
    same(len(_rest(third, _new())), 4)
    third.perform(ops.Rollback())
    one.perform(ops.Rollback())
    same(other.perform(ops.Kill(eid=found[0].eid)), KillAnswer.KILLED)
    same(len(claim(other, life, n=9)), 1)


def a_locked_scan_of_replies_is_refused(place: Repository) -> None:
    """Their client would wait for it; a look is allowed."""
    client, session = client_of(_ready(place))
    send(client, session, "1")
    queue = f"reply-{session.who.registrant_id}"
    client.perform(ops.BeginWork())
    refuses(client, errors.IllegalState, OpenScan(queue=queue, locked=True), "repl")
    client.perform(ops.Rollback())
    same(_rest(place.session(), _new(queue)), [])


def a_locked_scan_ends_with_its_session(place: Repository) -> None:
    """Whoever dies holds nothing."""
    one = declared(place)
    _enqueue(one, b"1")
    one.perform(ops.BeginWork())
    same(len(_rest(one, _new(locked=True))), 1)
    one.close()
    other = place.session()
    same(len(claim(other, live(other, OTHER_PROCESS))), 1)
