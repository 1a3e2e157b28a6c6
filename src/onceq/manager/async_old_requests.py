"""Requests that have ended, in the tables and in the files of the archive (spec C10).

Used by AsyncQueueManager. The tables are asked first, and then the files: a row is trimmed from the
tables only when it is in a file, so none is missed in between. What both hold counts once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

from onceq.engine.connect.async_links import AsyncLinks
from onceq.manager import program, together
from onceq.manager.archived import ArchivedRequests
from onceq.model import ops
from onceq.model.archive_ops import ArchiveManifest, ArchiveRedriven, Kind
from onceq.model.element import Attempt, OldRequest, RequestState, Search


class AsyncOldRequests:
    """What has ended in a repository; for any number of tasks.

    Each method raises MissingExtra (there are files, but no pyarrow), and FileMismatch: the archive
    is not here, is not this repository's, or a file cannot be read.
    """

    def __init__(self, links: AsyncLinks, repository: str) -> None:
        self._links = links
        self._repository = repository

    async def find(self, search: Search) -> list[OldRequest]:
        """Returns a page of the requests that have ended, the latest first. InvalidValue."""
        op = program.find_op(search)
        found = await self._links.perform(op)
        there = await self._archived(together.beside(search, op, found), None)
        return together.latest([*there, *found], op.limit)

    async def look_up(self, op: ops.LookUp) -> list[RequestState]:
        """Returns the places where requests are or were, the latest first."""
        found = await self._links.perform(op)
        search = together.ended(op)
        there = [] if search is None else await self._archived(search, op.eid)
        return together.places(found, there, op.limit)

    async def attempts(self, eid: UUID) -> list[Attempt]:
        """Returns how executions of a request were aborted, the earliest first."""
        found = await self._links.perform(ops.ListAttempts(eid=eid))
        archive = await self._archive(Kind.ATTEMPT)
        there = await asyncio.to_thread(archive.attempts, eid)
        return together.earliest([*there, *found])

    async def _archived(self, search: Search, eid: UUID | None) -> list[OldRequest]:
        archive = await self._archive(Kind.HISTORY)
        there = await asyncio.to_thread(archive.find, search, eid)
        failed = together.failed(there)
        if not failed:
            return there
        redriven = await self._links.perform(ArchiveRedriven(eids=failed))
        return [replace(one, redriven_as=redriven.get(one.eid)) for one in there]

    async def _archive(self, kind: Kind) -> ArchivedRequests:
        manifest = await self._links.perform(ArchiveManifest(kind=kind))
        return ArchivedRequests(manifest, self._repository)
