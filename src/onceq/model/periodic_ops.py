"""The Ops of periodic requests. Pure values. Source: production.md 2; ADR 39.

Each is one transaction. Those that change one name its revision, and do nothing once it has
another: what they were computed from has changed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from onceq.model.ops.base import Op
from onceq.model.periodic import PeriodicInfo
from onceq.model.schedule import Schedule


class Now(Op[datetime]):
    """The time of the repository: the database's."""


class CreatePeriodic(Op[bool], changes="a periodic request is made"):
    """Makes a periodic request; False if there is one of this name.

    next_at: its first tick. QueueNotFound, TooLarge; IllegalState: the queue is not of requests.
    """

    name: str
    queue: str
    body: bytes
    content_type: str | None
    schedule: str
    zone: str
    missed: str
    overlap: bool
    next_at: datetime


class AlterPeriodic(Op[bool], changes="a periodic request is changed"):
    """Changes all of a periodic request; False if it is not of this revision any more.

    Raises what CreatePeriodic does.
    """

    name: str
    queue: str
    body: bytes
    content_type: str | None
    schedule: str
    zone: str
    missed: str
    overlap: bool
    next_at: datetime
    revision: UUID


class PausePeriodic(Op[bool], changes="a periodic request is paused or resumed"):
    """Pauses a periodic request, or resumes it from next_at on; False as for AlterPeriodic."""

    name: str
    revision: UUID
    paused: bool
    next_at: datetime


class RemovePeriodic(Op[bool], changes="a periodic request is removed"):
    """Removes a periodic request; what it has sent stays. Returns whether there was one."""

    name: str


class ListPeriodics(Op[list[PeriodicInfo]]):
    """All periodic requests by name, or just the named one."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTick:
    """A tick that is due by `now`. next_at: that tick, of this revision."""

    name: str
    revision: UUID
    schedule: str
    zone: str
    missed: str
    next_at: datetime
    now: datetime

    @property
    def times(self) -> Schedule:
        """When it ticks. InvalidValue: not to be computed on this machine."""
        return Schedule(text=self.schedule, zone=self.zone, missed=self.missed)


class DueTicks(Op[list[DueTick]]):
    """What is due and may be tried now, at most 1,000, the longest waiting first."""


class TickState(StrEnum):
    """What a Tick has done. GONE: nothing: it is another one's, or has changed, or is not due.

    UNDER_WAY: nothing: the last one is not done. REFUSED: the queue did not take it.
    """

    SENT = "sent"
    SKIPPED = "skipped"
    GONE = "gone"
    UNDER_WAY = "under way"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The answer of a Tick. error: why it was refused; is_news: not for that before."""

    state: TickState
    error: str | None
    is_news: bool


class Tick(Op[Ticked], changes="a tick is passed, and its request is enqueued"):
    """Moves on from the tick next_at to the tick `to`, and enqueues the request of tick_at.

    In one transaction, and only if next_at still is what comes next. tick_at: None: none is
    enqueued. What the queue refuses (QueueFull, QueueStopped, QueueNotFound, TooLarge) is noted,
    and due again in a second.
    """

    name: str
    revision: UUID
    next_at: datetime
    tick_at: datetime | None
    to: datetime


class HoldTick(Op[bool], changes="a tick is put off"):
    """Notes why a tick cannot be computed here; it is due again in after_s.

    Returns whether that is news.
    """

    name: str
    revision: UUID
    next_at: datetime
    error: str
    after_s: float
