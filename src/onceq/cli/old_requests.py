"""Where a request is or was, for the command line: in the tables, or in the archive only.

Used by `onceq request`. The tables are asked first: what is no longer there has long been in the
archive. An archive that cannot be asked hides nothing of what the tables tell, and is named.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from onceq import QueueManager
from onceq.engine.perform import spark_driver as engine
from onceq.errors import FileMismatch, MissingExtra
from onceq.files.archived import ArchivedRequests
from onceq.model.archive_ops import ArchiveManifest, ArchiveRedriven
from onceq.model.element import Attempt, ElementState, OldRequest, RequestState, Search

if TYPE_CHECKING:
    End: TypeAlias = tuple[uuid.UUID, datetime | None]

PAGE: Final = 1000
SLACK: Final = timedelta(hours=1)
"""How far a clock may have been set back between an enqueue and an abort."""
UNASKED: Final = (MissingExtra, FileMismatch)
OF_STATE: Final = (
    *("rid", "registrant", "thread", "eid", "role", "queue", "aborts", "code", "error"),
    *("enqueued_at", "finished_at", "correlation_id"),
)
"""The fields that an ended request shares with one that has not ended."""


@dataclass(slots=True)
class Shown:
    """A place of a request. old: how it ended there; aborts: of its executions."""

    state: RequestState
    old: OldRequest | None = None
    aborts: list[Attempt] = field(default_factory=list["Attempt"])

    @property
    def end(self) -> End:
        """What identifies a finished place: no two have it in common."""
        return self.state.eid, self.state.finished_at


def look_up(
    qm: QueueManager, rid: str, client: str | None, limit: int
) -> tuple[list[Shown], str | None]:
    """Returns the places of a rid, or else of an eid; and why the archive could not be asked."""
    eid = as_eid(rid)
    states = qm.lookup(rid, registrant=client, limit=limit)
    by_eid = eid is not None and not states
    if by_eid:
        states = qm.lookup(eid=eid, registrant=client, limit=limit)
    shown = [Shown(one, _ending(qm, one), qm.attempts(one.eid)) for one in states]
    try:
        with _archive_of(qm) as archive:
            there = archive.find(Search(rid=rid, registrant=client, limit=limit))
            if by_eid and not there:
                there = archive.find(Search(registrant=client, limit=limit), eid)
            _complete(shown, there)
            _add_aborts(shown, archive)
    except UNASKED as error:
        if not shown:
            raise
        return shown, str(error)
    return shown[:limit], None


def find_all(qm: QueueManager, search: Search, limit: int) -> tuple[list[OldRequest], str | None]:
    """Returns what has ended, the latest first; and why the archive could not be asked."""
    found: dict[End, OldRequest] = {}
    while len(found) < limit:
        search["limit"] = min(limit - len(found), PAGE)
        page = qm.find(**search)
        if not page:
            break
        found |= _by_end(page)
        search["after"] = page[-1]
    missed: str | None = None
    search["limit"] = limit
    if len(found) == limit:  # only ask the archive for what ended this late
        search["since"] = min(one.finished_at for one in found.values())
    try:
        with _archive_of(qm) as archive:
            found = _by_end(archive.find(search)) | found
    except UNASKED as error:
        if not found:
            raise
        missed = str(error)
    latest = sorted(found.values(), key=lambda one: (one.finished_at, one.eid), reverse=True)
    return latest[:limit], missed


def as_eid(text: str) -> uuid.UUID | None:
    """Returns a text as an eid, or None if it is not one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@contextlib.contextmanager
def _archive_of(qm: QueueManager) -> Generator[ArchivedRequests]:
    where = engine.Route(url="", conninfo=qm.located.conninfo, repository=qm.repository)
    with engine.spark_driver(where) as driver:

        def redriven(eids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
            return driver.perform(ArchiveRedriven(eids=eids))

        yield ArchivedRequests(driver.perform(ArchiveManifest()), redriven)


def _by_end(found: Iterable[OldRequest]) -> dict[End, OldRequest]:
    """Returns requests by what tells their ends apart: a datagram may run again as itself."""
    return {(one.eid, one.finished_at): one for one in found}


def _ending(qm: QueueManager, state: RequestState) -> OldRequest | None:
    """Returns how a request that the tables hold has ended."""
    if state.state is not ElementState.FINISHED:
        return None
    page = qm.find(rid=state.rid, registrant=state.registrant, limit=PAGE)
    return _by_end(page).get((state.eid, state.finished_at))


def _complete(shown: list[Shown], there: Iterable[OldRequest]) -> None:
    """Adds what only the archive has, and the end of any request that was trimmed just now."""
    known = {one.end: one for one in shown if one.state.state is ElementState.FINISHED}
    for end, old in _by_end(there).items():
        if end in known:
            known[end].old = known[end].old or old
        else:
            shown.append(Shown(_state_of(old), old))


def _add_aborts(shown: list[Shown], archive: ArchivedRequests) -> None:
    """Adds the aborts that only the archive has."""
    for eid in {one.state.eid for one in shown}:
        places = [one for one in shown if one.state.eid == eid]
        since = min(one.state.enqueued_at for one in places) - SLACK
        every = [*archive.attempts(eid, since), *(abort for one in places for abort in one.aborts)]
        unique = {(one.ended_at, one.server): one for one in every}
        for one in places:
            one.aborts = [unique[key] for key in sorted(unique, key=lambda key: key[0])]


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
