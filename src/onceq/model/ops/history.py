"""Requests that have ended, and how each of their executions was aborted (spec C10). Pure."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from onceq.model.element import Attempt, OldRequest
from onceq.model.ops.base import Integer, Op


class FindRequests(Op[list[OldRequest]]):
    """Requests that have ended, the latest first; a page begins after (after_at, after_eid).

    None matches anything. since is included, until is not. At most `limit` rows.
    """

    rid: str | None = None
    registrant: str | None = None
    queue: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after_at: datetime | None = None
    after_eid: UUID | None = None
    limit: Integer = 100


class ListAttempts(Op[list[Attempt]]):
    """How each unfinished execution of an element was aborted, the earliest first."""

    eid: UUID
