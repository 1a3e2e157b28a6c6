"""Behaviours of old requests: found by key, page by page, with their aborts.

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.model import ops
from onceq.model.element import Charge, Fate, RequestOutcome
from onceq.model.queue import Queue
from proof.conformance.ground import (
    Repository,
    abort,
    claim,
    client_of,
    declared,
    execute,
    live,
    receive,
    same,
    send,
)

if TYPE_CHECKING:
    from onceq.model.element import OldRequest
    from proof.conformance.ground import Connection


def aborts_are_recorded(place: Repository) -> None:
    """Each with its charge, code, text, traceback, time and process; a release leaves none (Q4)."""
    server = declared(place)
    life = live(server)
    client, session = client_of(place)
    eid = send(client, session, "1").eid
    same(abort(server, life, claim(server, life)[0], Charge.RELEASE), Fate.RETURNED)
    same(client.perform(ops.ListAttempts(eid=eid)), [])
    first = place.now()
    same(abort(server, life, claim(server, life, 2)[0], Charge.ENVIRONMENT), Fate.RETURNED)
    place.advance(3600)
    same(abort(server, life, claim(server, life, 2)[0], Charge.CHARGE), Fate.RETURNED)
    place.advance(3600)
    same(abort(server, life, claim(server, life, 2)[0], Charge.CHARGE), Fate.FAILED)
    found = client.perform(ops.ListAttempts(eid=eid))
    same([one.charge for one in found], [Charge.ENVIRONMENT, Charge.CHARGE, Charge.CHARGE])
    same({(one.code, one.error, one.traceback) for one in found}, {("Bad", "no", "line 1")})
    same({(one.server, one.host, one.pid) for one in found}, {(life.incarnation, "here", 1)})
    hours = [round((one.ended_at - first).total_seconds() / 3600) for one in found]
    same(hours, [0, 1, 2])
    (old,) = client.perform(ops.FindRequests(rid="1"))
    same((old.outcome, old.aborts, old.attempts), (RequestOutcome.FAILED, 2, 2))
    same((old.code, old.error, old.started_at), ("Bad", "no", None))
    same(old.server, life.incarnation)


def old_requests_are_found(place: Repository) -> None:
    """By rid, registrant, queue, outcome and time; the latest first, in pages, none twice."""
    server = declared(place, Queue("orders", bytes, bytes, keep_body=True))
    life = live(server)
    client, session = client_of(place)
    began = place.now()
    for number in range(7):
        place.advance(60)
        send(client, session, str(number))
        (element,) = claim(server, life)
        if number == 3:
            abort(server, life, element, Charge.REJECT)
        else:
            execute(server, life, element)
        receive(client, session)
    server.perform(ops.EnqueueMany(queue="orders", bodies=[b"alone"]))
    place.advance(60)
    execute(server, life, claim(server, life)[0])
    everything = find(client)
    same([one.registrant for one in everything], [None, *["till-7"] * 7])
    same(rids(find(client, registrant="till-7")), [*"6543210"])
    same(rids(find(client, registrant="till-7", outcome="failed")), ["3"])
    same(rids(find(client, queue="orders", outcome="failed")), ["3"])
    same(find(client, registrant="nobody"), [])
    same(find(client, registrant="till-7", queue="other"), [])
    ends = {one.rid: one.finished_at for one in everything}
    between = find(client, registrant="till-7", since=ends["2"], until=ends["5"])
    same(rids(between), [*"432"])
    paged: list[OldRequest] = []
    for _ in range(4):  # the last is empty
        paged += find(client, limit=3, **behind(paged))
    same(paged, everything)
    (one,) = find(client, rid="5")
    same((one.body, one.reply, one.role, one.queue), (b"5", b"done", "request", "orders"))
    same(one.started_at is not None and one.started_at >= began, wanted=True)
    same((one.server, one.attempts, one.redriven_as), (life.incarnation, 1, None))
    redriven = server.perform(ops.Redrive(eid=find(client, rid="3")[0].eid))
    same(find(client, rid="3")[0].redriven_as, redriven[1] if redriven else None)


def find(connection: Connection, **search: Any) -> list[OldRequest]:
    """Finds old requests."""
    return connection.perform(ops.FindRequests(**search))


def rids(found: list[OldRequest]) -> list[str]:
    """Returns their rids."""
    return [one.rid for one in found]


def behind(page: list[OldRequest]) -> dict[str, Any]:
    """Returns the key behind which the next page begins."""
    return {"after_at": page[-1].finished_at, "after_eid": page[-1].eid} if page else {}
