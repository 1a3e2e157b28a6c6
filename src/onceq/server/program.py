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


def serve(session: ServerSession) -> ops.Program[None]:
    """Serves the session's queues until a stop is due; raises when this life is over."""
    life = yield from ops.OpenIncarnation(
        process=session.process, host=session.host, pid=session.pid, former=session.incarnation
    )
    session.incarnation = life.incarnation
    session.counts.lives += 1
    queue_ids = yield from _queue_ids(session.served)
    turn = 0
    misses = 0
    while not (yield from ops.Stopping()):
        turn = (turn + 1) % TURNS
        at = turn % len(queue_ids)
        pending = yield from ops.Claim(
            incarnation=life.incarnation,
            queue_id=queue_ids[at],
            n=1,
            turn=turn // len(queue_ids),  # alternates for each queue, however many there are
            alone=True,
        )
        misses = 0 if pending else misses + 1
        while pending and not (yield from ops.Stopping()):
            turn = (turn + 1) % TURNS
            run = Execution(session.served[at], queue_ids[at], pending[0], turn)
            pending = yield from _execute(session, life, run)
            if turn % TAKE_OVER_EVERY == 0:
                yield from ops.TakeOver(process=session.process)
        if misses >= len(queue_ids):
            if misses % TAKE_OVER_IDLE == 0:
                yield from ops.TakeOver(process=session.process)
            if misses % LOOK_AGAIN_IDLE == 0:
                queue_ids = yield from _queue_ids(session.served)
            yield from ops.Wait(key="idle", first=misses == len(queue_ids))
    yield from ops.CloseIncarnation(incarnation=life.incarnation)
    session.incarnation = None


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
            seq=element.seq,
            incarnation=life.incarnation,
            reply=reply,
            content_type=None,
            token=token,
            queue_id=run.queue_id,
            n=int(chained),
            turn=run.turn,
            alone=True,
        )
        yield from ops.Commit()
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
