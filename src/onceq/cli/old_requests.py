"""Where a request is or was, for the command line: in the tables, or in the archive only.

Used by `onceq request`. An archive that cannot be asked hides nothing of what the tables tell, and
is named.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

from onceq import QueueManager
from onceq.errors import FileMismatch, MissingExtra
from onceq.model.element import Attempt, ElementState, OldRequest, RequestState, Search
from onceq.model.names import LIMIT_MAX

UNASKED: Final = (MissingExtra, FileMismatch)


@dataclass(slots=True)
class Shown:
    """A place of a request. old: how it ended there; aborts: of its executions."""

    state: RequestState
    old: OldRequest | None = None
    aborts: list[Attempt] = field(default_factory=list["Attempt"])


def look_up(
    qm: QueueManager, rid: str, client: str | None, limit: int
) -> tuple[list[Shown], str | None]:
    """Returns the places of a rid, or else of an eid; and why the archive could not be asked."""
    try:
        return _look_up(qm, rid, client, limit, archive=True), None
    except UNASKED as error:
        shown = _look_up(qm, rid, client, limit, archive=False)
        if not shown:
            raise
        return shown, str(error)


def _look_up(
    qm: QueueManager, rid: str, client: str | None, limit: int, *, archive: bool
) -> list[Shown]:
    states = qm.lookup(rid, registrant=client, limit=limit, archive=archive)
    eid = as_eid(rid)
    if eid is not None and not states:
        states = qm.lookup(eid=eid, registrant=client, limit=limit, archive=archive)
    return [
        Shown(one, _ending(qm, one, archive=archive), qm.attempts(one.eid, archive=archive))
        for one in states
    ]


def find_all(qm: QueueManager, search: Search, limit: int) -> tuple[list[OldRequest], str | None]:
    """Returns what has ended, the latest first; and why the archive could not be asked."""
    search["limit"] = min(limit, LIMIT_MAX)
    try:
        return qm.find(**search, archive=True), None
    except UNASKED as error:
        found = qm.find(**search)
        if not found:
            raise
        return found, str(error)


def as_eid(text: str) -> uuid.UUID | None:
    """Returns a text as an eid, or None if it is not one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _ending(qm: QueueManager, state: RequestState, *, archive: bool) -> OldRequest | None:
    """Returns how a request has ended, if it has."""
    if state.state is not ElementState.FINISHED:
        return None
    ends = qm.find(rid=state.rid, registrant=state.registrant, limit=LIMIT_MAX, archive=archive)
    ended = (state.eid, state.finished_at)
    return next((one for one in ends if (one.eid, one.finished_at) == ended), None)
