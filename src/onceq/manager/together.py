"""What tables and archive tell of requests that have ended, put together. Pure.

Used by OldRequests. Each of the two tells the latest that it has, up to a limit, and so the latest
of both are among these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from onceq.model import ops
from onceq.model.element import (
    Attempt,
    ElementState,
    OldRequest,
    RequestOutcome,
    RequestState,
    Search,
)

OF_STATE: Final = (
    *("rid", "registrant", "thread", "eid", "role", "queue", "aborts", "code", "error"),
    *("enqueued_at", "finished_at", "correlation_id"),
)
"""The fields that an ended request shares with one that has not ended."""


def beside(search: Search, op: ops.FindRequests, found: list[OldRequest]) -> Search:
    """Returns what of a search to ask the archive, of which the tables told `found`.

    If that is a whole page, only what ended as late can still come into it.
    """
    wanted = Search(**search)
    wanted["limit"] = op.limit
    if len(found) == op.limit:
        wanted["since"] = found[-1].finished_at
    return wanted


def ended(op: ops.LookUp) -> Search | None:
    """Returns a lookup as a search among what has ended; None: it asks for something else."""
    if op.state not in {None, ElementState.FINISHED.value}:
        return None
    return Search(rid=op.rid, registrant=op.registrant, queue=op.queue, limit=op.limit)


def latest(found: Iterable[OldRequest], limit: int) -> list[OldRequest]:
    """Returns each end once, the latest first."""
    each = {(one.eid, one.finished_at): one for one in found}
    ordered = sorted(each.values(), key=lambda one: (one.finished_at, one.eid), reverse=True)
    return ordered[:limit]


def places(
    found: list[RequestState], there: Iterable[OldRequest], limit: int
) -> list[RequestState]:
    """Returns the places of requests, and those that only the archive knows, the latest first."""
    known = {(one.eid, one.finished_at) for one in found if one.state is ElementState.FINISHED}
    added = [_state_of(one) for one in there if (one.eid, one.finished_at) not in known]
    if not added:
        return found
    every = sorted([*found, *added], key=lambda one: one.state)
    every.sort(key=lambda one: one.finished_at or one.enqueued_at, reverse=True)
    return every[:limit]


def earliest(found: Iterable[Attempt]) -> list[Attempt]:
    """Returns each attempt once, the earliest first; the last that tells of one counts."""
    each = {(one.ended_at, one.server): one for one in found}
    return sorted(each.values(), key=lambda one: one.ended_at)


def failed(found: Iterable[OldRequest]) -> list[UUID]:
    """Returns the eids of what failed, which may have been run again."""
    return [one.eid for one in found if one.outcome is RequestOutcome.FAILED]


def _state_of(old: OldRequest) -> RequestState:
    """Returns the place of a request that only the archive has."""
    return RequestState(
        **{name: getattr(old, name) for name in OF_STATE},
        state=ElementState.FINISHED,
        outcome=old.outcome.value,
        not_before=None,
        expires_at=None,
        server_host=None,
        server_pid=None,
        body_bytes=None if old.body is None else len(old.body),
    )
