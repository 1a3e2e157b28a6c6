"""Where a request is or was, for the command line: in the tables, or in the archive only.

Used by `onceq request`. An archive that cannot be asked hides nothing of what the tables tell, and
is named.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from onceq import QueueManager
from onceq.errors import FileMismatch, MissingExtra
from onceq.model.element import Attempt, ElementState, OldRequest, RequestState, Search
from onceq.model.names import LIMIT_MAX

End: TypeAlias = tuple[uuid.UUID, datetime | None]
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
    search = Search(rid=rid, registrant=client, limit=limit)
    eid = as_eid(rid)
    if eid is not None and not states:
        states = qm.lookup(eid=eid, registrant=client, limit=limit, archive=archive)
        search = Search(rid=states[0].rid, registrant=states[0].registrant) if states else search
        search["limit"] = LIMIT_MAX
    ends: dict[End, OldRequest] = {}
    if any(one.state is ElementState.FINISHED for one in states):
        ends = {(one.eid, one.finished_at): one for one in qm.find(**search, archive=archive)}
    aborts = {one: qm.attempts(one, archive=archive) for one in {one.eid for one in states}}
    return [Shown(one, ends.get((one.eid, _end(one))), aborts[one.eid]) for one in states]


def _end(state: RequestState) -> datetime | None:
    """Returns when a place was left for good; None: something is there."""
    return state.finished_at if state.state is ElementState.FINISHED else None


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
