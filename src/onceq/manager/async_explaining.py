"""What happened to a request, and why it does not run: what is asked for that (spec Q14).

Used by AsyncQueueManager. Each question is answered by keys and indexes.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from onceq.engine.connect.async_links import AsyncLinks
from onceq.manager import program, together
from onceq.manager.async_old_requests import AsyncOldRequests
from onceq.model import admin_ops, explaining, ops
from onceq.model.element import Attempt, ElementState, OldRequest, RequestState, Role, Search
from onceq.model.explaining import Asked, Explanation, Found
from onceq.model.names import LIMIT_MAX


class AsyncExplaining:
    """Explains requests of a repository; for any number of tasks."""

    def __init__(self, links: AsyncLinks, old: AsyncOldRequests) -> None:
        self._links = links
        self._old = old

    async def explain(self, asked: Asked) -> Explanation:
        """Returns what happened to a request, and why it does not run. InvalidValue: several."""
        places = await self._in_tables(asked)
        is_archived = asked.archive and not places
        if is_archived:
            places = await self._in_archive(asked)
        place = explaining.chosen(asked, places)
        if place is not None:
            return explaining.explained(await self._found(asked, place, is_archived=is_archived))
        unknown = None
        if asked.registrant is not None and asked.rid is not None:
            op = admin_ops.UnknownRid(registrant=asked.registrant, rid=asked.rid)
            unknown = await self._links.perform(op)
        return explaining.not_found(asked, unknown)

    async def _in_tables(self, asked: Asked) -> list[RequestState]:
        """Returns where it is or was; not by a search for a rid, which no index has."""
        if asked.eid is not None:
            found = await self._places(asked.eid)
            if not any(one.role is Role.REPLY for one in found):
                return found
            asked = replace(asked, registrant=found[0].registrant, rid=found[0].rid)
        return await self._named(asked.registrant, asked.rid)

    async def _named(self, registrant: str | None, rid: str | None) -> list[RequestState]:
        if registrant is None or rid is None:
            return []
        eids = await self._links.perform(admin_ops.EidsOf(registrant=registrant, rid=rid))
        return [one for eid in eids for one in await self._places(eid)]

    async def _places(self, eid: UUID) -> list[RequestState]:
        return await self._links.perform(ops.LookUp(eid=eid, limit=LIMIT_MAX))

    async def _in_archive(self, asked: Asked) -> list[RequestState]:
        if asked.eid is not None:
            return await self._old.look_up(ops.LookUp(eid=asked.eid, limit=LIMIT_MAX))
        search = Search(registrant=asked.registrant, rid=asked.rid, limit=LIMIT_MAX)
        return together.places([], await self._old.find(search), LIMIT_MAX)

    async def _found(self, asked: Asked, place: RequestState, *, is_archived: bool) -> Found:
        facts = await self._links.perform(admin_ops.Examine(eid=place.eid))
        head = None
        if facts is not None and facts.head is not None:
            head = await self._links.perform(admin_ops.Examine(eid=facts.head))
        return Found(
            place=place,
            reply=explaining.reply_of(place, await self._named(place.registrant, place.rid)),
            old=await self._end(asked, place),
            is_archived=is_archived,
            aborts=await self._aborts(asked, place),
            facts=facts,
            head=head,
            servers=await self._links.perform(admin_ops.ListSessions()),
        )

    async def _end(self, asked: Asked, place: RequestState) -> OldRequest | None:
        """Returns how it ended; None: it has not, or that is not known here."""
        if place.state not in {ElementState.FINISHED, ElementState.HELD}:
            return None
        search = Search(registrant=place.registrant, rid=place.rid, limit=LIMIT_MAX)
        found = await self._links.perform(program.find_op(search))
        if asked.archive and not any(one.eid == place.eid for one in found):
            found = await self._old.find(search)
        return next((one for one in found if one.eid == place.eid), None)

    async def _aborts(self, asked: Asked, place: RequestState) -> list[Attempt]:
        if asked.archive:
            return await self._old.attempts(place.eid)
        return await self._links.perform(ops.ListAttempts(eid=place.eid))
