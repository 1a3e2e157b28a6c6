"""Behaviours of queues that keep history for some days (Q17); see `proof.conformance.suite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onceq import errors
from onceq.manager.program import declare, show
from onceq.manager.retaining import retire
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.model.queue import Queue
from onceq.model.retention import Retention
from onceq.model.retention_ops import DueRetention, HoldRetention
from proof.conformance.ground import (
    NotConformant,
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
    where,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceq.clerk.session import Session
    from proof.conformance.ground import Connection, Repository

DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
LOOKS_MAX: Final = 20
KEPT: Queue[bytes, bytes] = Queue(
    "orders", bytes, bytes, abort_limit=2, backoff_ms=0, history_days=2
)
OTHERS: Queue[bytes, bytes] = Queue("others", bytes, bytes)


def _retire(connection: Connection) -> int:
    """Looks until nothing is due; returns how many rows of history went."""
    gone = 0
    for _ in range(LOOKS_MAX):
        if not connection.perform(DueRetention()):
            return gone
        gone += connection.run(retire())
    raise NotConformant("it is due for ever")


def _ended(
    place: Repository, rids: Iterable[str], *, last: bool = True
) -> tuple[Connection, Connection, Session[Any, Any]]:
    """Returns a server and a client, all of whose requests are done; last: and acknowledged."""
    server = declared(place, KEPT)
    life = live(server)
    client, session = client_of(place)
    for rid in rids:
        send(client, session, rid)
        execute(server, life, claim(server, life)[0])
        receive(client, session)
    if last:
        send(client, session, "last")
        execute(server, life, claim(server, life)[0])
        receive(client, session)
    return server, client, session


def _again(session: Session[Any, Any], rid: str) -> ops.Send:
    return ops.Send(
        who=session.who,
        queue="orders",
        request=ops.Request(rid=rid, body=rid.encode()),
        send_no=session.s_no + 1,
        ack=[],
        content_type=None,
    )


def history_goes_after_the_days_of_its_queue(place: Repository) -> None:
    """And only of that queue; what went is known by its rid, and never runs again (finding 3)."""
    server, client, session = _ended(place, "12")
    server.run(declare(OTHERS))
    for queue in ("orders", "others"):
        server.perform(ops.Enqueue(queue=queue, body=b"x", rid=queue))
        server.perform(ops.Dequeue(queue=queue))
    same(_retire(server), 0)
    place.advance(2 * DAY_S - HOUR_S)
    same(_retire(server), 0)
    place.advance(2 * HOUR_S)
    same(_retire(server), 3)
    for rid in "12":
        same(where(client, rid), set())
        same(client.perform(_again(session, rid)).state, "done")
    same(where(client, "last"), {("finished", "done"), ("replied", "done")})
    left = {row.rid for row in server.perform(ops.LookUp()) if row.state == "finished"}
    same(left, {"last", "others"})
    same(server.perform(DueRetention()), [])


def aborts_go_with_the_history_of_their_request(place: Repository) -> None:
    """Not before: a request that failed and is held keeps both."""
    server = declared(place, KEPT)
    life = live(server)
    done = server.perform(ops.Enqueue(queue="orders", body=b"1"))
    (one,) = claim(server, life)
    same(abort(server, life, one, Charge.CHARGE), Fate.RETURNED)
    server.perform(ops.Dequeue(queue="orders"))
    held = server.perform(ops.Enqueue(queue="orders", body=b"2"))
    (one,) = claim(server, life)
    same(abort(server, life, one, Charge.REJECT), Fate.FAILED)
    place.advance(3 * DAY_S)
    same(_retire(server), 1)
    same(server.perform(ops.ListAttempts(eid=done)), [])
    same(len(server.perform(ops.ListAttempts(eid=held))), 1)
    states = {(row.eid, row.state.value) for row in server.perform(ops.LookUp())}
    same(states, {(held, "finished"), (held, "held")})


def what_a_client_may_still_ask_for_stays(place: Repository) -> None:
    """A reply that waits, and the request sent last; it goes when the client has gone on."""
    server, client, session = _ended(place, "1", last=False)
    place.advance(3 * DAY_S)
    same(_retire(server), 0)
    same(where(client, "1"), {("finished", "done"), ("replied", "done")})
    send(client, session, "2")
    life = live(server)
    execute(server, life, claim(server, life)[0])
    receive(client, session)
    send(client, session, "3")
    same(_retire(server), 0)
    place.advance(HOUR_S + 1)
    same(_retire(server), 1)
    same(client.perform(_again(session, "1")).state, "done")


def a_transaction_of_its_client_keeps_history(place: Repository) -> None:
    """One that has looked for what went, and found that nothing had, is over before any goes."""
    server, client, session = _ended(place, "1")
    place.advance(3 * DAY_S)
    client.perform(ops.BeginWork())
    same(client.perform(_again(session, "1")).state, "done")
    same(_retire(server), 0)
    client.perform(ops.Commit())
    place.advance(HOUR_S + 1)
    same(_retire(server), 1)
    same(client.perform(_again(session, "1")).state, "done")


def how_long_history_is_kept_is_changed(place: Repository) -> None:
    """Shown, changed, taken away; a change of something else leaves it."""
    server, _, _ = _ended(place, "1")
    same(server.run(show("orders")).settings.history_days, 2)
    other = Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=0, history_days=3)
    try:
        server.run(declare(other))
    except errors.SettingsDiffer as error:
        same("history_days is 2, declared 3" in str(error), wanted=True)
    else:
        raise NotConformant("other settings are declared")
    server.perform(ops.AlterQueue(queue="orders", abort_limit=3))
    same(server.run(show("orders")).settings.history_days, 2)
    server.perform(ops.AlterQueue(queue="orders", retention=Retention()))
    same(server.run(show("orders")).settings.history_days, None)
    place.advance(3 * DAY_S)
    same(server.perform(DueRetention()), [])
    server.perform(ops.AlterQueue(queue="orders", retention=Retention(history_days=4)))
    same(_retire(server), 0)
    server.perform(ops.AlterQueue(queue="orders", retention=Retention(history_days=1)))
    same(_retire(server), 1)
    refuses(server, errors.QueueNotFound, ops.AlterQueue(queue="nowhere", retention=Retention()))


def a_look_that_failed_is_put_off(place: Repository) -> None:
    """For that queue, as long as it keeps history for some days."""
    server, _, _ = _ended(place, "1")
    place.advance(3 * DAY_S)
    (due,) = server.perform(DueRetention())
    same(server.perform(HoldRetention(queue_id=due.queue_id, after_s=60.0)), wanted=True)
    same(_retire(server), 0)
    place.advance(61)
    same(_retire(server), 1)
    server.perform(ops.AlterQueue(queue="orders", retention=Retention()))
    same(server.perform(HoldRetention(queue_id=due.queue_id, after_s=60.0)), wanted=False)
