"""Elements, replies, and facts about requests, as values. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar
from uuid import UUID

from onceq.model.attributes import Described, ElementType, scratch_of, type_of
from onceq.model.words import Word

E = TypeVar("E", bound="Word")


class Members(dict[str, E]):
    """The members of an enum by their texts; a text that only a newer version knows stays one."""

    def __init__(self, of: type[E]) -> None:
        super().__init__((one.value, one) for one in of)

    def __missing__(self, text: str) -> Any:
        return text


@dataclass(frozen=True, slots=True)
class EndUser:
    """The person behind a request, and where they were (spec C19; Source: BHM90 11).

    id: what the user calls this request, 1 to 200 bytes. checkpoint: any text of theirs, at most
    64 KiB of UTF-8: what they would otherwise write on a piece of paper.
    """

    id: str
    checkpoint: str | None = None


class Role(Word):
    """What an element is. FAILED: what is held in an error queue, whatever it was before."""

    DATAGRAM = "datagram"
    REQUEST = "request"
    REPLY = "reply"
    FAILED = "failed"


ROLES: Final = Members(Role)


class ElementState(Word):
    """Where a rid is (G4), as `where`, `lookup` and the view `requests` say it.

    WAITING: until not_before. SUSPECT: it will run alone. EXECUTING: it is claimed. REPLIED: its
    reply is waiting, or not acknowledged; KEPT: it was. HELD: for an operator, in an error queue,
    or in its own queue. FINISHED: it has ended.
    """

    QUEUED = "queued"
    WAITING = "waiting"
    SUSPECT = "suspect"
    EXECUTING = "executing"
    REPLIED = "replied"
    KEPT = "kept"
    HELD = "held"
    FINISHED = "finished"


class RequestOutcome(enum.Enum):
    """How a request ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEQUEUED = "dequeued"


def attempts_of(aborts: int, outcome: RequestOutcome | None) -> int:
    """Returns the attempts of a request: its executions that ended and counted.

    Those are the charged ones, and the one that finished it. An execution that the environment or
    `Retry` undid uncharged does not count, nor does one that is still running.
    """
    return aborts + (outcome is RequestOutcome.DONE)


TOOK_EFFECT: Final = (RequestOutcome.DONE, RequestOutcome.DEQUEUED)
"""The outcomes of what has taken effect."""


class KillAnswer(enum.Enum):
    """The result of a kill (G8)."""

    KILLED = "KILLED"
    TOO_LATE = "TOO_LATE"
    NOT_FOUND = "NOT_FOUND"


class Charge(enum.Enum):
    """What an execution that did not finish costs its element (G7).

    RETRY: like ENVIRONMENT, at the handler's word. FELL: the database went down meanwhile; it
    becomes SUSPECT, or CHARGE after many in a row.
    """

    CHARGE = "charge"
    REJECT = "reject"
    ENVIRONMENT = "environment"
    RETRY = "retry"
    SUSPECT = "suspect"
    FELL = "fell"
    RELEASE = "release"


COUNTED: Final = frozenset({Charge.CHARGE, Charge.REJECT})
"""The charges that an element's aborts count."""


class Fate(enum.Enum):
    """What became of an element that was aborted. RUNNING: nothing yet; its transaction is open.

    HELD: it has reached its abort limit, and its queue holds it for an operator (G3).
    """

    RETURNED = "returned"
    FAILED = "failed"
    HELD = "held"
    LOST = "lost"
    RUNNING = "running"


class Unheld(enum.Enum):
    """What became of an element that its queue held. EXPIRED: its time was over before.

    RETRIED: it runs again, as itself. GIVEN_UP: it has failed. NOT_HELD: nothing happened.
    """

    RETRIED = "retried"
    GIVEN_UP = "given_up"
    EXPIRED = "expired"
    NOT_HELD = "not_held"


class Lane(enum.IntEnum):
    """The lanes of a queue, by number; base.sql says who stands in each, and when they leave it.

    0 to 9 are fresh, 9 minus the priority: FRESH is the last of them, USUAL that of the priority 4.
    A reply that waits for its client is in the first.
    """

    REPLY = 0
    USUAL = 5
    FRESH = 9
    DUE = 10
    SUSPECT = 11
    HELD = 12
    KEPT = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Element(Described):
    """A queue element as it was read.

    `eid` is its lasting id; `seq` is local to the repository, and may change. `aborts` counts its
    charged aborts. `outcome` is for replies only. `unreadable`: why its
    properties cannot be read, and are None; a server treats it as the element's failure. `trace`:
    the context of the span that sent it, a W3C traceparent; None: OpenTelemetry was not on there.
    """

    seq: int
    eid: UUID
    rid: str
    body: bytes
    role: Role
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
    trace: str | None = None

    @property
    def is_suspect(self) -> bool:
        """True if it is to run with nothing beside it (G7)."""
        return self.lane == Lane.SUSPECT

    @property
    def type(self) -> ElementType:
        """What kind of message it is, also where it is held."""
        if self.outcome is not None:
            return ElementType.REPLY
        return type_of(self.properties, owes_reply=self.owes_reply)

    @property
    def scratch(self) -> dict[str, Any]:
        """A copy of its scratch pad; empty if there is none."""
        return scratch_of(self.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a request is (C9).

    state: never KEPT: such a request is REPLIED or FINISHED. HELD: in its own queue; one that is
    held in an error queue is REPLIED or FINISHED, too. server_host, server_pid: of
    the process that has claimed it. begun_at: when its execution began; None if none is under way,
    or if this role may not see that server's session. attempts: see `attempts_of`. outcome: of its
    end. code, error: of its end, or of the last abort.
    """

    rid: str
    state: ElementState
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
    """One place where a rid is (G4), for lookups."""

    rid: str
    registrant: str | None
    thread: str | None
    eid: UUID
    state: ElementState
    role: Role
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


class Places(TypedDict, total=False):
    """Which places of requests are wanted, as keywords; what is not given may be anything.

    state: one of ElementState. limit: how many at most, at least 1, 100 by default.
    """

    eid: UUID | None
    registrant: str | None
    state: str | None
    queue: str | None
    limit: int


class Search(TypedDict, total=False):
    """Which old requests are wanted, as keywords; what is not given may be anything.

    since, until: aware datetimes of their end; since is included, until is not. after: the last one
    of the previous page. limit: of a page, at least 1, 100 by default.
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

    aborts: how many were charged to it. started_at: when the execution that finished it began; None
    if there was none, or it is not known. server: the incarnation that finished it. redriven_as:
    the rid of the request that now replaces it. body, reply: None if its queue keeps no bodies.
    """

    rid: str
    registrant: str | None
    thread: str | None
    eid: UUID
    queue: str
    role: Role
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
        """How long it was queued, failed executions included; None if not known."""
        return None if self.started_at is None else self.started_at - self.enqueued_at

    @property
    def service(self) -> timedelta | None:
        """How long the execution that finished it took, in a batch with the others of it."""
        return None if self.started_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How an execution was aborted (Q4). server: the incarnation; host, pid: its process.

    traceback: where in the handler; None if nothing was raised there, and in the archive.
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
        """Whether its element was charged with it: then every place counts it as an attempt."""
        return self.charge in COUNTED
