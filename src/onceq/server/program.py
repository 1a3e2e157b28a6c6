"""The server's Program: claim, begin, call the handler, finish, commit, for ever until a stop.

Run by Server, on any Driver, and by the simulator. One Program is one session, one life: when it
raises, its connection is given up, and the next life takes back what it held. Source: BHM90
figure 5; who is charged for what: spec G7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.engine.waiting import Wakes
from onceq.manager.program import show
from onceq.model import ops
from onceq.server.execution import Execution, execute

if TYPE_CHECKING:
    from uuid import UUID

    from onceq.model.element import Element

TURNS = 2**30
"""Turns are counted modulo this: they travel as 4-byte integers, and a life may last for years."""
TAKE_OVER_EVERY = 64
"""A busy session looks for dead ones after this many turns."""
TAKE_OVER_IDLE = 2
"""An idle session looks for dead ones at every so many looks at all its queues."""
LOOK_AT_EVERYTHING = 16
"""An idle session looks below the low-water marks too at every so many looks."""
LOOK_AGAIN_IDLE = 64
"""An idle session asks so often whether its queues were destroyed and made anew."""


@dataclass(frozen=True, slots=True)
class Served:
    """A queue that is served. isolation: of the handler's transactions.

    batch: how many requests may share one. effects: whether the handler may write.
    """

    queue: str
    isolation: str
    batch: int = 1
    effects: bool = True


@dataclass(slots=True)
class Counts:
    """What a session has done."""

    done: int = 0
    failed: int = 0
    returned: int = 0
    claims_lost: int = 0
    lives: int = 0


@dataclass(slots=True, kw_only=True)
class ServerSession:
    """One of a process's sessions. incarnation: of its present or last life; None: not yet born.

    process: of the whole process. fault_in_row: whether the last execution met a fault. wakes: how
    its waits ended.
    """

    process: UUID
    host: str
    pid: int
    served: tuple[Served, ...]
    incarnation: int | None = None
    fault_in_row: bool = False
    counts: Counts = field(default_factory=Counts)
    wakes: Wakes = field(default_factory=Wakes)


@dataclass(slots=True, kw_only=True)
class Looks:
    """How a session looks for requests. misses: looks in a row that found nothing.

    asleep: the queues on which it is registered as asleep. seen: what its last sweep observed.
    """

    queue_ids: list[int]
    turn: int = 0
    misses: int = 0
    claims: int = 0
    asleep: list[int] | None = None
    seen: ops.Observation | None = None


def serve(session: ServerSession) -> ops.Program[None]:
    """Serves the session's queues until a stop is due; raises when this life is over."""
    life = yield from ops.OpenIncarnation(
        process=session.process, host=session.host, pid=session.pid, former=session.incarnation
    )
    session.incarnation = life.incarnation
    session.counts.lives += 1
    looks = Looks(queue_ids=(yield from _queue_ids(session.served)))
    while not (yield from ops.Stopping()):
        at, pending = yield from _look(session, life, looks)
        while pending and not (yield from ops.Stopping()):
            looks.turn = (looks.turn + 1) % TURNS
            run = Execution(session.served[at], looks.queue_ids[at], pending, looks.turn)
            pending = yield from execute(session, life, run)
            if looks.turn % TAKE_OVER_EVERY == 0:
                yield from ops.TakeOver(process=session.process)
                yield from _sweep(looks)
        if looks.misses and looks.misses % len(looks.queue_ids) == 0:
            yield from _idle(session, life, looks)
    yield from ops.CloseIncarnation(incarnation=life.incarnation)
    session.incarnation = None


def _look(
    session: ServerSession, life: ops.Incarnation, looks: Looks
) -> ops.Program[tuple[int, list[Element]]]:
    """Claims from the next queue; returns its place and what was claimed.

    The claim of an idle session may be lost in a crash of the database, but for its first: a
    request that brings the database down would otherwise be claimed so for ever.
    """
    looks.turn = (looks.turn + 1) % TURNS
    at = looks.turn % len(looks.queue_ids)
    pending = yield from ops.Claim(
        incarnation=life.incarnation,
        queue_id=looks.queue_ids[at],
        n=session.served[at].batch,
        turn=looks.turn // len(looks.queue_ids),  # alternates for each queue, however many
        alone=True,
        everything=_rounds(looks) % LOOK_AT_EVERYTHING == LOOK_AT_EVERYTHING - 1,
        may_lose=looks.claims > 0,
        slot=life.slot,
        asleep=looks.asleep,
    )
    looks.misses = 0 if pending else looks.misses + 1
    if pending:
        looks.claims += 1
        looks.asleep = None
    return at, pending


def _rounds(looks: Looks) -> int:
    """Returns how often in a row all queues were looked at, and nothing was found."""
    return looks.misses // len(looks.queue_ids)


def _sweep(looks: Looks) -> ops.Program[None]:
    seen = looks.seen
    looks.seen = yield from ops.Sweep(
        queue_ids=looks.queue_ids,
        value=None if seen is None else seen.value,
        holders=[] if seen is None else seen.holders,
    )


def _idle(session: ServerSession, life: ops.Incarnation, looks: Looks) -> ops.Program[None]:
    """Does what there is time for now, and waits to be rung, or a little.

    A session that falls asleep looks at all queues once more before it waits: what came meanwhile
    rang nobody. So it does after a ring, which does not say for which queue it was.
    """
    rounds = _rounds(looks)
    if rounds > 2 and rounds % TAKE_OVER_IDLE == 1:  # after the first wait: work may come at once
        yield from ops.TakeOver(process=session.process)
        yield from _sweep(looks)
    if rounds % LOOK_AGAIN_IDLE == 0:
        looks.queue_ids = yield from _queue_ids(session.served)
    if looks.asleep is None:
        yield from ops.FallAsleep(slot=life.slot, queue_ids=looks.queue_ids)
        looks.asleep = list(looks.queue_ids)
        return
    yield from ops.Wait(key="idle", first=rounds <= 2)


def _queue_ids(served: tuple[Served, ...]) -> ops.Program[list[int]]:
    found: list[int] = []
    for one in served:
        info = yield from show(one.queue)
        found.append(info.queue_id)
    return found
