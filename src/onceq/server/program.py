"""The server's Program: claim, begin, call the handler, finish, commit, for ever until a stop.

Run by Server, on any Driver, and by the simulator. One Program is one session, one life: when it
raises, its connection is given up, and the next life takes back what it held. Source: BHM90
figure 5; who is charged for what: spec G7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq import errors
from onceq.manager.program import show
from onceq.model import ops
from onceq.model.element import Charge, Fate

if TYPE_CHECKING:
    from uuid import UUID

    from onceq.model.element import Element

ERROR_CHARS_MAX = 4000
TURNS = 2**30
"""Turns are counted modulo this: they travel as 4-byte integers, and a life may last for years."""
TAKE_OVER_EVERY = 64
"""A busy session looks for dead ones after this many turns."""
TAKE_OVER_IDLE = 4
"""An idle session looks for dead ones at every so many looks for requests."""
LOOK_AT_EVERYTHING = 16
"""An idle session looks below the low-water marks too at every so many looks."""
LOOK_AGAIN_IDLE = 64
"""An idle session asks so often whether its queues were destroyed and made anew."""

CHARGES: dict[type[errors.OnceqError], Charge] = {
    errors.Reject: Charge.REJECT,
    errors.HandlerMisuse: Charge.REJECT,
    errors.InvalidValue: Charge.REJECT,
    errors.Retry: Charge.ENVIRONMENT,
    errors.EnvironmentFault: Charge.ENVIRONMENT,
    errors.DeadlineExceeded: Charge.ENVIRONMENT,
}
"""What an execution that raised costs its element; what is not listed is charged."""

LIFE_IS_OVER = (errors.ConnectionLost, errors.InDoubt, errors.CannotConnect)
"""After these the session cannot go on; its next life learns the truth (spec finding 9)."""


@dataclass(frozen=True, slots=True)
class Served:
    """A queue that is served. isolation: of the handler's transactions."""

    queue: str
    isolation: str


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

    process: of the whole process. fault_in_row: whether the last execution met a fault.
    """

    process: UUID
    host: str
    pid: int
    served: tuple[Served, ...]
    incarnation: int | None = None
    fault_in_row: bool = False
    counts: Counts = field(default_factory=Counts)


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
        at, pending = yield from _look(life, looks)
        while pending and not (yield from ops.Stopping()):
            looks.turn = (looks.turn + 1) % TURNS
            run = Execution(session.served[at], looks.queue_ids[at], pending[0], looks.turn)
            pending = yield from _execute(session, life, run)
            if looks.turn % TAKE_OVER_EVERY == 0:
                yield from ops.TakeOver(process=session.process)
                yield from _sweep(looks)
        if looks.misses >= len(looks.queue_ids):
            yield from _idle(session, life, looks)
    yield from ops.CloseIncarnation(incarnation=life.incarnation)
    session.incarnation = None


def _look(life: ops.Incarnation, looks: Looks) -> ops.Program[tuple[int, list[Element]]]:
    """Claims from the next queue; returns its place and what was claimed.

    The claim of an idle session may be lost in a crash of the database, but for its first: a
    request that brings the database down would otherwise be claimed so for ever.
    """
    looks.turn = (looks.turn + 1) % TURNS
    at = looks.turn % len(looks.queue_ids)
    pending = yield from ops.Claim(
        incarnation=life.incarnation,
        queue_id=looks.queue_ids[at],
        n=1,
        turn=looks.turn // len(looks.queue_ids),  # alternates for each queue, however many there are
        alone=True,
        everything=looks.misses % LOOK_AT_EVERYTHING == LOOK_AT_EVERYTHING - 1,
        may_lose=looks.claims > 0,
        slot=life.slot,
        asleep=looks.asleep,
    )
    looks.misses = 0 if pending else looks.misses + 1
    if pending:
        looks.claims += 1
        looks.asleep = None
    return at, pending


def _sweep(looks: Looks) -> ops.Program[None]:
    seen = looks.seen
    looks.seen = yield from ops.Sweep(
        queue_ids=looks.queue_ids,
        value=None if seen is None else seen.value,
        holders=[] if seen is None else seen.holders,
    )


def _idle(session: ServerSession, life: ops.Incarnation, looks: Looks) -> ops.Program[None]:
    """Does what there is time for now, and waits to be rung, or a little.

    A session that falls asleep looks once more before it waits: what came meanwhile rang nobody.
    """
    misses, queues = looks.misses, len(looks.queue_ids)
    if misses % TAKE_OVER_IDLE == 0:
        yield from ops.TakeOver(process=session.process)
        yield from _sweep(looks)
    if misses % LOOK_AGAIN_IDLE == 0:
        looks.queue_ids = yield from _queue_ids(session.served)
    if looks.asleep is None:
        yield from ops.FallAsleep(slot=life.slot, queue_ids=looks.queue_ids)
        looks.asleep = list(looks.queue_ids)
        return
    yield from ops.Wait(key="idle", first=misses <= 2 * queues)


def _queue_ids(served: tuple[Served, ...]) -> ops.Program[list[int]]:
    found: list[int] = []
    for one in served:
        info = yield from show(one.queue)
        found.append(info.queue_id)
    return found


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a claimed element. turn: makes its token unlike any other's."""

    served: Served
    queue_id: int
    element: Element
    turn: int


def _execute(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[list[Element]]:
    """Runs one claimed element; returns what was claimed next, chained to its finish."""
    element, served = run.element, run.served
    token = f"{life.incarnation}.{element.seq}.{run.turn}"
    chained = len(session.served) == 1 and served.isolation == "read committed"
    try:
        yield from ops.Begin(
            slot=life.slot,
            seq=element.seq,
            token=token,
            isolation=served.isolation,
            alone=element.is_suspect,
        )
        reply = yield from ops.Call(queue=served.queue, element=element)
        following = yield from ops.Finish(
            seqs=[element.seq],
            incarnation=life.incarnation,
            replies=[reply],
            content_type=None,
            token=token,
            queue_id=run.queue_id,
            n=int(chained),
            turn=run.turn,
            alone=True,
            commit=True,
        )
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        yield from ops.Rollback()
        yield from _abort(session, life, element, error)
        return []
    session.counts.done += 1
    session.fault_in_row = False
    return following


def _abort(
    session: ServerSession, life: ops.Incarnation, element: Element, error: errors.OnceqError
) -> ops.Program[None]:
    """Returns or fails what was rolled back, and waits when the environment is to blame."""
    charge = CHARGES.get(type(error), Charge.CHARGE)
    fate = yield from ops.AbortElement(
        seq=element.seq,
        incarnation=life.incarnation,
        charge=charge,
        code=_storable(code_of(error)),
        error=_storable(text_of(error)[:ERROR_CHARS_MAX]),
    )
    session.counts.failed += fate is Fate.FAILED
    session.counts.returned += fate is Fate.RETURNED
    session.counts.claims_lost += fate is Fate.LOST
    if charge is Charge.ENVIRONMENT:
        yield from ops.Wait(key="environment", first=not session.fault_in_row)
        session.fault_in_row = True


def code_of(error: errors.OnceqError) -> str:
    """Returns the abort code: the class of what the handler raised, or ours."""
    return error.code if isinstance(error, errors.HandlerFailed) else type(error).__name__


def text_of(error: errors.OnceqError) -> str:
    """Returns what the handler said, without the class that is the abort code."""
    return error.text if isinstance(error, errors.HandlerFailed) else str(error)


def _storable(text: str) -> str:
    """Returns text that PostgreSQL takes: an exception may say anything, and must be recorded."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
