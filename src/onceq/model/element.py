"""Elements, replies and what is known of requests, as values. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
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


@dataclass(frozen=True, slots=True)
class EndUser:
    """Who stands behind a request, and where they were (spec C19; Source: BHM90 11).

    id: what the user calls this request, 1 to 200 bytes. checkpoint: any text of theirs, at most
    64 KiB of UTF-8: what they would else write on a piece of paper.
    """

    id: str
    checkpoint: str | None = None


class RequestAttributes(SendAttributes, total=False):
    """How a client sends a request, by keyword. end_user: comes back with the reply."""

    end_user: EndUser | None


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


def attempts_of(aborts: int, outcome: RequestOutcome | None) -> int:
    """Returns the attempts of a request: its executions that ended and counted.

    Those that were charged, and the one that finished it. What the environment or `Retry` undid
    uncharged is none, nor is what still runs.
    """
    return aborts + (outcome is RequestOutcome.DONE)


class KillAnswer(enum.Enum):
    """What a kill came to (G8)."""

    KILLED = "KILLED"
    TOO_LATE = "TOO_LATE"
    NOT_FOUND = "NOT_FOUND"


class Charge(enum.Enum):
    """What an execution that did not finish costs its element (G7).

    RETRY: ENVIRONMENT, as the handler says. FELL: the database fell meanwhile; it becomes SUSPECT,
    or CHARGE after many in a row.
    """

    CHARGE = "charge"
    REJECT = "reject"
    ENVIRONMENT = "environment"
    RETRY = "retry"
    SUSPECT = "suspect"
    FELL = "fell"
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
    it was charged with. `body` is bytes. `outcome` is of replies only. `unreadable`: why its
    properties cannot be read, and are None; a server takes it for the element's failure.
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
    unreadable: str | None = None

    @property
    def is_suspect(self) -> bool:
        """True when it is to be run with nothing beside it (G7)."""
        return self.lane == SUSPECT_LANE


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a request is (C9).

    state: 'queued', 'waiting' (until not_before), 'suspect' (it will run alone), 'executing',
    'replied' (its reply waits, or is not acknowledged) or 'finished'. server_host, server_pid: who
    has claimed it. begun_at: since when it executes; None when the server has claimed it and not
    begun, and where this role may not see that server's session. attempts: see `attempts_of`.
    outcome, code, error: how it ended, or the last abort.
    """

    rid: str
    state: str
    eid: UUID
    queue: str
    attempts: int
    sent_at: datetime
    not_before: datetime | None
    server_host: str | None
    server_pid: int | None
    begun_at: datetime | None
    finished_at: datetime | None
    outcome: RequestOutcome | None
    code: str | None
    error: str | None


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

    @property
    def attempts(self) -> int:
        """How many executions ended and counted: see `attempts_of`."""
        ended = None if self.outcome is None else RequestOutcome(self.outcome)
        return attempts_of(self.aborts, ended)


class Search(TypedDict, total=False):
    """Which old requests are wanted, by keyword; what is not given may be any.

    since, until: aware datetimes of their end; since is included, until is not. after: the last of
    the page before. limit: of a page, 1 to 100,000, 100 by default.
    """

    rid: str | None
    registrant: str | None
    queue: str | None
    outcome: RequestOutcome | None
    since: datetime | None
    until: datetime | None
    after: OldRequest | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRequest:
    """A request that has ended, as history has it.

    aborts: what it was charged with. started_at: when the execution that finished it began; None
    where none did, or it is not known. server: the incarnation that finished it. redriven_as: the
    rid of the request that stands for it now. body, reply: None where its queue keeps no bodies.
    """

    rid: str
    registrant: str | None
    thread: str | None
    eid: UUID
    queue: str
    role: str
    outcome: RequestOutcome
    aborts: int
    code: str | None
    error: str | None
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime
    server: int | None
    correlation_id: str | None
    redriven_as: str | None
    body: bytes | None
    reply: bytes | None

    @property
    def attempts(self) -> int:
        """How many executions ended and counted: see `attempts_of`."""
        return attempts_of(self.aborts, self.outcome)

    @property
    def waited(self) -> timedelta | None:
        """How long it was queued, failed executions included; None: it is not known."""
        return None if self.started_at is None else self.started_at - self.enqueued_at

    @property
    def service(self) -> timedelta | None:
        """How long the execution that finished it took, in a batch with the others of it."""
        return None if self.started_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How an execution was aborted (Q4). server: the incarnation; host, pid: its process.

    traceback: where in the handler; None where nothing was raised there, and in the archive. Some
    do not count: see `counts`.
    """

    ended_at: datetime
    charge: Charge
    code: str | None
    error: str | None
    server: int | None
    host: str | None
    pid: int | None
    traceback: str | None = None

    @property
    def counts(self) -> bool:
        """Whether its element was charged with it: one of the attempts that every place counts."""
        return self.charge in {Charge.CHARGE, Charge.REJECT}
