"""Elements, replies and what is known of requests, as values. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID


class SendAttributes(TypedDict, total=False):
    """How a request is sent, by keyword.

    priority: 0 to 9, 9 first, 4 by default. not_before, expires_at: aware datetimes; an element
    that expires before it took effect gets one expired reply. properties: JSON, uninterpreted.
    """

    priority: int
    not_before: datetime | None
    expires_at: datetime | None
    properties: Mapping[str, Any] | None


class EnqueueAttributes(SendAttributes, total=False):
    """How an element is enqueued, by keyword. rid: its name in lookups, not a key."""

    rid: str | None
    correlation_id: str | None


class RequestOutcome(enum.Enum):
    """How a request ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEQUEUED = "dequeued"


class KillAnswer(enum.Enum):
    """What a kill came to (G8)."""

    KILLED = "KILLED"
    TOO_LATE = "TOO_LATE"
    NOT_FOUND = "NOT_FOUND"


class Charge(enum.Enum):
    """What an execution that did not finish costs its element (G7)."""

    CHARGE = "charge"
    REJECT = "reject"
    ENVIRONMENT = "environment"
    SUSPECT = "suspect"
    RELEASE = "release"


class Fate(enum.Enum):
    """What became of an element that was aborted."""

    RETURNED = "returned"
    FAILED = "failed"
    LOST = "lost"
    RUNNING = "running"


SUSPECT_LANE = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A queue element as it was read.

    `eid` is its lasting id; `seq` is local to the repository and changes. `aborts` counts what
    it was charged with. `body` is bytes. `outcome` is of replies only.
    """

    seq: int
    eid: UUID
    rid: str
    body: bytes
    role: str
    queue_id: int
    lane: int
    priority: int
    aborts: int
    enqueued_at: datetime
    owes_reply: bool
    outcome: RequestOutcome | None = None
    registrant_id: int | None = None
    send_no: int | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    code: str | None = None
    error: str | None = None

    @property
    def is_suspect(self) -> bool:
        """True when it is to be run with nothing beside it (G7)."""
        return self.lane == SUSPECT_LANE


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """One place in which a rid is (G4), for lookups."""

    rid: str
    registrant: str | None
    thread: str | None
    eid: UUID
    state: str
    role: str
    outcome: str | None
    queue: str
    aborts: int
    code: str | None
    error: str | None
    enqueued_at: datetime
    not_before: datetime | None
    expires_at: datetime | None
    finished_at: datetime | None
    server_host: str | None
    server_pid: int | None
    correlation_id: str | None
    body_bytes: int | None
