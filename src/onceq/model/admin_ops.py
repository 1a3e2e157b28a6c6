"""Ops for operators and bulk programs: who serves, who sends, which rids a registrant has used.

Values like those in `ops`, performed by the same drivers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from onceq.model.facts import Facts, Unknown
from onceq.model.ops.base import Integer, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A session of a native server. alive: its lock is held. claims: elements that it holds."""

    slot: int
    incarnation: int
    process: UUID
    host: str
    pid: int
    backend_pid: int
    started_at: datetime
    alive: bool
    claims: int


class ListServers(Op[list[ServerInfo]]):
    """Every known session of a native server, including dead ones not yet taken over."""


class Identify(Op[UUID]):
    """The id of the repository, which no other has, except a copy or a restored backup of it."""


class RidRange(Op[tuple[str, str] | None]):
    """The least and the greatest rid with a prefix that a registrant has sent; None: none.

    As far as history tells.
    """

    registrant_id: Integer
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """A registrant, or a thread of one, as operators see it.

    state: "new", "connected", "disconnected", "closed"; a client that died is connected. s_rid,
    s_state, r_rid: as in connect's answer. requests: sent and not ended. replies: not acknowledged.
    kept: acknowledged, and kept at its wish. waits: a session of it waits for a reply now.
    connected_at: when its epoch began. sent_at, received_at: as far as history tells.
    """

    name: str
    thread: str
    state: str
    epoch: int
    s_rid: str | None
    s_state: str
    r_rid: str | None
    requests: int
    replies: int
    kept: int
    waits: bool
    created_at: datetime
    connected_at: datetime | None
    sent_at: datetime | None
    received_at: datetime | None

    @property
    def seen_at(self) -> datetime:
        """When it was last heard of: it connected, sent, or recorded what it had received."""
        heard = (self.created_at, self.connected_at, self.sent_at, self.received_at)
        return max(one for one in heard if one is not None)


class ListClients(Op[list[ClientInfo]]):
    """Every registrant, by name and thread, or those of one name. It fences nobody."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """A forgotten thread of a client, and what it left. epoch: now; each of its lives is over.

    s_rid, r_rid: what a later connect says that it sent and received last. cancelled: requests.
    replies, kept: removed, as in ClientInfo. registrations: with queues, besides its own.
    """

    thread: str
    epoch: int
    s_rid: str | None
    r_rid: str | None
    cancelled: int
    replies: int
    kept: int
    registrations: int


class ForgetClient(Op[list[Forgotten]], changes="what a client has left is freed"):
    """Frees what a client that will not return has left; a tombstone stays (finding 3).

    thread: None means each of them. Returns nothing for an unknown name. IllegalState (it is
    connected or has something outstanding, and forced is False; or a request of it is in the state
    of a Spark query), DeadlineExceeded: nothing happened. forced: its requests are cancelled.
    """

    name: str
    thread: str | None = None
    forced: bool = False
    timeout_s: float = 10.0


class CloseClient(
    Op[list[Forgotten]],
    changes="a client is forgotten with its rids, and its name refused for ever",
):
    """Closes a client's name: forgets each of its threads, and its rids whose history was trimmed.

    Whoever connects by this name is refused with IllegalState from then on. Raises what
    ForgetClient does; nothing happened. Returns nothing for an unknown name, which stays free.
    """

    name: str
    forced: bool = False
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How much was done lately. at: the database's time. per_minute: requests, by queue."""

    at: datetime
    per_minute: dict[str, float]


class MeasureRates(Op[Rates]):
    """How many requests a minute were done in each queue in the last over_s, by history."""

    over_s: float = 60.0


class EidsOf(Op[list[UUID]]):
    """The eids of what a client has under a rid: a request, wherever it is or was, and a reply."""

    registrant: str
    rid: str


class Examine(Op[Facts | None]):
    """What holds of an element that is in a queue; None: none has this eid, or it is a reply."""

    eid: UUID


class UnknownRid(Op[Unknown]):
    """What is known of a client and a rid that are in no queue and in no history."""

    registrant: str
    rid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLoad:
    """A session of a native server, and what it does now. queues: that it serves.

    state: "runs"; "sleeps"; "looks" for work; "gone": it has ended, and nobody has taken over;
    "missing": the same, and what it ran waits for a verdict. doing, rid, queue: what it runs, of a
    batch the first; since, for_s: when that began, and how long ago; None if this role may not see
    it.
    """

    slot: int
    incarnation: int
    process: UUID
    host: str
    pid: int
    started_at: datetime
    queues: list[str]
    is_alive: bool
    state: str
    doing: UUID | None
    rid: str | None
    queue: str | None
    since: datetime | None
    for_s: float | None


class ListSessions(Op[list[SessionLoad]]):
    """Every known session of a native server, by host and process. Read by keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """A queue of requests, and what is done with it. ready: elements that may be claimed.

    backing_off: that wait for their time. held: that it holds for an operator. oldest_s: the age of
    its oldest element; None: it has none. done_per_s, aborted_per_s: of executions in the last
    minute. servers: processes that serve it and live, and Spark servers. paused_until: until when
    nothing is dequeued since the environment failed.
    """

    queue: str
    ready: int
    claimed: int
    backing_off: int
    suspect: int
    oldest_s: float | None
    done_per_s: float
    aborted_per_s: float
    servers: int
    enqueue_started: bool
    dequeue_started: bool
    held: int
    paused_until: datetime | None


class MeasureQueues(Op[list[QueueLoad]]):
    """Every queue of requests, by name. It counts what waits: the longer, the more waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What queues of requests have to do, and what sessions of servers do."""

    queues: list[QueueLoad]
    servers: list[SessionLoad]
