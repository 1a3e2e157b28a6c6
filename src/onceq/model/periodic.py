"""Periodic requests as values: what is sent, where to, and when. Pure, no I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from uuid import UUID

from onceq.errors import InvalidValue
from onceq.model import names
from onceq.model.queue import Queue, content_type_of
from onceq.model.schedule import Schedule

Request = TypeVar("Request")
Missed: TypeAlias = Literal["last", "all", "none"]


@dataclass(frozen=True)  # with slots, Periodic[A](...) is an error of Python 3.11
class Periodic(Generic[Request]):
    """A request that is sent again and again: one at each tick of a schedule, exactly once.

    A value: making one does no I/O; `qm.declare` makes it known. Its requests want no reply, and
    the rid of each tells its tick, in UTC: `nightly@2026-11-28T02:00:00Z`. name: of the characters
    of a queue's name. schedule: the five fields of cron. zone: of the IANA time zone database; what
    a change of clocks means there, docs/periodic.md says. missed: what becomes of ticks that came
    while nobody looked: "last" sends one request, of the last of them; "all" one for each, but of
    more than 1,000 only the last 1,000; "none" nothing, unless it is less than 60 s late. overlap:
    False sends no new one while the last one waits or runs: ticks meanwhile count as missed.
    Raises InvalidName or InvalidValue: also for a request that is not of the queue's type.
    """

    name: str
    queue: Queue[Request, Any]
    request: Request
    schedule: str
    _: KW_ONLY
    zone: str = "UTC"
    missed: Missed = "last"
    overlap: bool = False

    def __post_init__(self) -> None:
        names.check_periodic(self.name)
        queue: Any = self.queue
        if not isinstance(queue, Queue):
            raise InvalidValue(
                f"periodic request {self.name!r}: the queue is an onceq.Queue, not "
                f"{names.shown(queue)}"
            )
        names.check_flag("overlap", self.overlap)
        self.queue.encode_request(self.request)
        Schedule(text=self.schedule, zone=self.zone, missed=self.missed)

    @property
    def times(self) -> Schedule:
        """When it ticks, and what becomes of what was missed."""
        return Schedule(text=self.schedule, zone=self.zone, missed=self.missed)

    @property
    def fields(self) -> dict[str, Any]:
        """What a repository keeps of it, by the names of `PeriodicInfo`."""
        return {
            "queue": self.queue.name,
            "body": self.queue.encode_request(self.request),
            "content_type": content_type_of(self.queue.request_type),
            "schedule": " ".join(self.schedule.split()),
            "zone": self.zone,
            "missed": self.missed,
            "overlap": self.overlap,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicInfo:
    """A periodic request as it is now. revision: another one since each change of it.

    next_at: the tick that is to come; lag_s: how late that is, 0 if it is paused. ticked_at, eid:
    of the last request that was sent; is_under_way: it waits or runs. error: why the tick that is
    due was not sent when it was tried last; it is tried again.
    """

    name: str
    revision: UUID
    queue: str
    body: bytes
    content_type: str | None
    schedule: str
    zone: str
    missed: str
    overlap: bool
    is_paused: bool
    next_at: datetime
    ticked_at: datetime | None
    eid: UUID | None
    is_under_way: bool
    error: str | None
    lag_s: float
    created_at: datetime

    @property
    def times(self) -> Schedule:
        """When it ticks. InvalidValue: not to be computed on this machine."""
        return Schedule(text=self.schedule, zone=self.zone, missed=self.missed)
