"""The clerk's Programs that watch: where a request is, alerts, the tags of threads (spec C7, C9).

Run like those of `onceq.clerk.program`. Of themselves they change nothing in the session.
"""

from __future__ import annotations

from typing import Any

from onceq.clerk.session import Session, ask, check
from onceq.model import ops
from onceq.model.client_state import Call
from onceq.model.element import Whereabouts


def where(session: Session[Any, Any], rid: str | None) -> ops.Program[Whereabouts | None]:
    """Returns where a request is; without a rid, the last one (C9).

    None: it was never sent, or history no longer has it.
    """
    check(session, Call.WATCH)
    if rid is None and session.s_rid is None:
        return None
    op = ops.WhereIs(who=session.who, rid=rid or session.s_rid or "")
    return (yield from ask(session, op))


def alert_late(
    session: Session[Any, Any], queue: str, late_s: float, rid: str | None
) -> ops.Program[list[str]]:
    """Enqueues one alert for each request that has waited late_s without a reply (C9)."""
    check(session, Call.WATCH)
    op = ops.AlertLate(
        who=session.who,
        rid=rid,
        late_s=late_s,
        queue=queue,
    )
    return (yield from ask(session, op))


def threads(session: Session[Any, Any]) -> ops.Program[list[ops.ThreadTags]]:
    """Returns the tags of every thread of this client (BHM90 5)."""
    check(session, Call.WATCH)
    op = ops.Threads(name=session.name, who=session.who)
    return (yield from ask(session, op))
