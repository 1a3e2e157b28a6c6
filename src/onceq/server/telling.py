"""What a session tells about failed executions; while all goes well it tells nothing.

Used by the server's Programs. The session decides who is told. Telling is an Op, performed
after the thing that it tells of has committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from onceq import telemetry
from onceq.model import ops
from onceq.model.element import Charge, Element, Fate
from onceq.server.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq import errors
    from onceq.engine.perform.hung import Hung
    from onceq.server.program import ServerSession

CAUSES_MAX = 20
"""How far an error is followed to its causes."""

CONFLICTS = frozenset({"40001", "40P01", "55P03", "25P02"})
"""SQLSTATEs by which other transactions may have refused a statement, or that follow a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A failed execution. error: as given to the server. trace: where in the handler it failed.

    again: whether the request's previous abort said the same.
    """

    aborted: ops.Aborted
    error: errors.OnceqError
    trace: Trace | None
    again: bool

    @property
    def is_conflict(self) -> bool:
        """Whether another transaction was in the way."""
        return is_conflict(self.error)


Told: TypeAlias = "Undone | ops.TakenOver | telemetry.Event"
"""What a session tells of itself."""


def tell(session: ServerSession, told: Told) -> ops.Program[None]:
    """Tells whoever listens to this session."""
    if session.tell is not None:
        yield from ops.Act(act=partial(session.tell, told))


def tell_taken_over(session: ServerSession) -> ops.Program[None]:
    """Tells what this session has taken back."""
    for one in (yield from ops.ListTakenOver()):
        yield from tell(session, one)


def counted(
    queue: str, one: Element | Hung, *, charge: Charge, code: str, error: str, fate: Fate
) -> ops.Aborted:
    """Returns an abort, as it was counted. one: what was aborted, as it was before."""
    return ops.Aborted(
        queue=queue,
        rid=one.rid,
        eid=one.eid,
        attempt=one.aborts + 1,
        charge=charge,
        code=code,
        error=error,
        fate=fate,
    )


def lost(queue: str, element: Element) -> telemetry.ClaimLost:
    """Returns the event for a lost claim."""
    return telemetry.ClaimLost(queue=queue, rid=element.rid, eid=element.eid)


def paused(queue: str, pause: ops.Pause) -> telemetry.QueuePaused:
    """Returns the event for a pause of a queue."""
    return telemetry.QueuePaused(queue=queue, pause_s=pause.pause_s, faults=pause.faults)


def undone(
    queue: str, requests: Sequence[Element], called: int, code: str
) -> telemetry.BatchUndone:
    """Returns the event for a batch that came to nothing. called: how many of its requests."""
    return telemetry.BatchUndone(
        queue=queue, eid=requests[0].eid, requests=len(requests), called=called, code=code
    )


def in_doubt(queue: str, element: Element) -> telemetry.InDoubt:
    """Returns the event for a commit that is in doubt."""
    return telemetry.InDoubt(
        queue=queue, rid=element.rid, eid=element.eid, attempt=element.aborts + 1
    )


def is_conflict(error: BaseException) -> bool:
    """Returns whether others' locks may have caused an error, whatever a handler wrapped it in."""
    seen: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if seen is None or getattr(seen, "sqlstate", None) in CONFLICTS:
            break
        seen = seen.__cause__ or seen.__context__
    return seen is not None and getattr(seen, "sqlstate", None) in CONFLICTS
