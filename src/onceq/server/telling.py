"""What a session tells of executions that failed; where all goes well it tells nothing.

Used by the server's Programs. Who is told is the session's affair. Telling is an Op, performed
after what is told has committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from onceq import telemetry
from onceq.model import ops

if TYPE_CHECKING:
    from onceq import errors
    from onceq.model.element import Charge, Element, Fate
    from onceq.server.program import ServerSession
    from onceq.server.traces import Trace

CAUSES_MAX = 20
"""So far an error is followed to what caused it."""

CONFLICTS = frozenset({"40001", "40P01", "55P03", "25P02"})
"""SQLSTATEs by which other transactions may have refused a statement, or that follow a refusal.

They name nobody's fault where a batch held locks: alone, the request would have waited.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """An execution that failed. error: as the server was given it. trace: where in the handler.

    code, text: by which it is recorded. fate: what became of the element.
    """

    queue: str
    element: Element
    error: errors.OnceqError
    charge: Charge
    code: str
    text: str
    trace: Trace | None
    fate: Fate

    @property
    def is_conflict(self) -> bool:
        """Whether another transaction was in the way."""
        return is_conflict(self.error)


Told: TypeAlias = "Undone | telemetry.Event"
"""What a session tells of itself."""


def tell(session: ServerSession, told: Told) -> ops.Program[None]:
    """Tells whoever listens to this session."""
    if session.tell is not None:
        yield from ops.Act(act=partial(session.tell, told))


def tell_taken_over(session: ServerSession) -> ops.Program[None]:
    """Tells what this session has taken back."""
    for one in (yield from ops.ListTakenOver()):
        yield from tell(session, took_over(one))


def took_over(one: ops.TakenOver) -> telemetry.TookOver:
    """Returns what to tell of what an incarnation held."""
    return telemetry.TookOver(
        of_incarnation=one.incarnation,
        of_process=one.process,
        of_host=one.host,
        of_pid=one.pid,
        returned=one.returned,
        suspects=one.suspects,
        charged=one.charged,
    )


def lost(queue: str, element: Element | None, count: int) -> telemetry.ClaimLost:
    """Returns what to tell of claims that were lost; of a batch nobody knows which: None."""
    rid, eid = (None, None) if element is None else (element.rid, element.eid)
    return telemetry.ClaimLost(queue=queue, rid=rid, eid=eid, count=count)


def in_doubt(queue: str, element: Element) -> telemetry.InDoubt:
    """Returns what to tell of a commit whose answer was lost."""
    return telemetry.InDoubt(
        queue=queue, rid=element.rid, eid=element.eid, attempt=element.aborts + 1
    )


def is_conflict(error: BaseException) -> bool:
    """Returns whether others' locks may be behind an error, whatever a handler wrapped it in."""
    seen: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if seen is None or getattr(seen, "sqlstate", None) in CONFLICTS:
            break
        seen = seen.__cause__ or seen.__context__
    return seen is not None and getattr(seen, "sqlstate", None) in CONFLICTS
