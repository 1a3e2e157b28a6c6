"""The Ops of the Spark request server: registration, claim groups, the commit of a micro-batch.

Pure values, like those in `model.ops`; performed by `engine.perform.spark_driver`. Each is one
transaction on the server's side except `SparkAttempt`, which begins the one that stages rows, and
`SparkCommit`, which its caller commits. Those that name an epoch raise Fenced once a newer life has
begun.
Source: spec P1, P2; spark.md, Design of the request server.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from onceq.model.ops.base import Integer, Op, SmallInt


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRegistration:
    """A life of a Spark server. query_id, batch_id: its tag, the last micro-batch committed."""

    server_id: int
    epoch: int
    queue_id: int
    query_id: str | None
    batch_id: int | None


class SparkOpen(Op[SparkRegistration], in_doubt=True):
    """Begins a life of the Spark server of this name, and fences the former one.

    A claim group that the former life had begun to run is halved or, if it has one request,
    charged; but not, up to ten times, if `innocent` (the environment ended that life), or if the
    database went down. hold_s: how long a request that its batch does not answer is held for later
    batches; 0: that is an abort at once. stateful: the query keeps state of what it reads, so what
    it has claimed is not killed or taken over.
    QueueNotFound, IllegalState (it holds requests of another queue), InvalidValue (the queue is in
    strict order): nothing happened.
    """

    name: str
    queue: str
    hold_s: float = 0.0
    innocent: bool = False
    stateful: bool = False


class SparkClaim(Op[int], in_doubt=True):
    """The claim group after `start`, claiming up to n requests; `start` if there is none.

    bound: the last seq to claim. FileMismatch: the checkpoint of `start` is not ours.
    """

    server_id: Integer
    epoch: int
    start: int
    n: Integer
    bound: int | None = None


class SparkBound(Op[int]):
    """The last seq given out: a bound for claims that are to come to an end."""


class SparkLeft(Op[bool]):
    """Whether a server whose query has ended could go on at once: with what it holds, or may claim.

    bound: the last seq that counts.
    """

    server_id: Integer
    epoch: int
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkAborted:
    """How a request was aborted. record: its number. rid: None when the request is gone.

    attempt: 1 for the first. failed: it was the last. traceback: None too where the abort before
    said the same.
    """

    record: int
    rid: str | None
    eid: UUID
    attempt: int
    charge: str
    code: str | None
    failed: bool
    traceback: str | None


class SparkAborts(Op[list[SparkAborted]]):
    """The aborts of a Spark server's requests after a record, at most 1,000."""

    name: str
    since: int


class SparkLastRecord(Op[int]):
    """The number of the last record so far."""


class SparkPlan(Op[int], in_doubt=True):
    """Notes that a group begins to run; returns its size, 0 if it was finished before."""

    server_id: Integer
    epoch: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRequest:
    """A request as Spark reads it. properties: in JSON."""

    eid: UUID
    rid: str
    registrant: str | None
    thread: str | None
    aborts: int
    priority: int
    enqueued_at: datetime
    correlation_id: str | None
    content_type: str | None
    properties: str | None
    body: bytes


class SparkRead(Op[list[tuple[Any, ...]]]):
    """The requests that a group still holds, from place `first` to `last` of its order.

    As tuples, in the order of the fields of `SparkRequest`: they come in tens of thousands.
    """

    group: int
    first: Integer
    last: Integer


class SparkRefuse(Op[int], in_doubt=True):
    """Aborts requests that a group still holds, charged, as not of the queue's type.

    codes, errors: for each of `eids`. Returns how many. May be asked again.
    """

    group: int
    eids: list[UUID]
    codes: list[str]
    errors: list[str]


class SparkAttempt(Op[int], in_doubt=True):
    """Begins to stage the rows of one attempt of a task; returns its number."""

    server_id: Integer
    epoch: int
    query_id: str
    batch_id: int


class SparkDiscard(Op[int], in_doubt=True):
    """Removes the staged rows of attempts; returns how many attempts there were."""

    attempts: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCommitted:
    """The result of a commit. verdict: 'committed'; or 'void', 'replay', 'old': nothing applied.

    'void': a row was computed from several requests, and one of them is not to be finished; the
    rest of the batch is queued again.
    done: requests finished. failed: moved to the error queue. returned: charged and queued again.
    """

    verdict: str
    done: int
    failed: int
    returned: int


class SparkCommit(Op[SparkCommitted], in_doubt=True):
    """Commits a micro-batch: removal, replies, history, table rows and tag in one transaction.

    rows: staged by `attempts`, all tables together. tables: as `TableChange.for_sql` says.
    Nothing happened: EnvironmentFault (staged rows were lost), FileMismatch (the checkpoint is
    older than the registration), IllegalState (a row names a request that it may not),
    SchemaMissing, StatementRefused (by one of the tables).
    """

    server_id: Integer
    epoch: int
    query_id: str
    batch_id: int
    attempts: list[int]
    rows: int
    tables: list[dict[str, Any]]
    content_type: str | None = None


class SparkBlame(Op[int], in_doubt=True):
    """Makes an error of each request whose staged rows the user's tables refuse; returns how many.

    Its text is the database's. attempts, tables: as in the refused commit. SchemaMissing,
    StatementRefused: a table refuses even when given no rows.
    """

    server_id: Integer
    epoch: int
    attempts: list[int]
    tables: list[dict[str, Any]]


class SparkCheckTable(Op[str], in_doubt=True):
    """The statement that a commit will run for a table, tried with no rows, and undone.

    SchemaMissing (no such table), StatementRefused (no such column, no right, no constraint to
    conflict with; or a column does not take its text in `samples`).
    """

    table: dict[str, Any]


class SparkClose(Op[int], in_doubt=True):
    """Ends a life in good order: what it holds goes back, uncharged; returns how many requests.

    Requests held for later batches of a stateful server stay: they are in the state of the query.
    """

    server_id: Integer
    epoch: int


class SparkPurge(Op[int], in_doubt=True):
    """Removes what a stateful server keeps of its groups up to this one.

    Returns how many requests.
    """

    server_id: Integer
    epoch: int
    group: int


class SparkTakeOver(Op[int], in_doubt=True):
    """Takes over from Spark servers that died more than grace_s ago; returns how many requests.

    It does not take over from stateful ones.
    server_id: the Spark server that adopts those of its queue; None: they are queued again.
    """

    server_id: Integer | None
    grace_s: float


class SparkEnqueue(Op[int], in_doubt=True):
    """Enqueues the rows of a DataFrame that are nowhere yet and have not ended; returns how many.

    One transaction, all or none. registrant_id: who gets the replies, in its life `epoch`; None:
    the rows are datagrams. send_no: where that life began. Each list has one item a row, or is
    None; times are microseconds since 1970. content_type: for rows without one.
    Fenced, QueueNotFound, QueueStopped, QueueFull, TooLarge, RidReused (known with other content),
    InvalidValue, EnvironmentFault (a twin is enqueueing the same rows): nothing happened. InDoubt.
    """

    registrant_id: Integer | None
    epoch: int | None
    queue: str
    send_no: int
    rids: list[str]
    bodies: list[bytes]
    priorities: list[SmallInt | None] | None = None
    not_before: list[int | None] | None = None
    expires_at: list[int | None] | None = None
    correlation_ids: list[str | None] | None = None
    content_types: list[str | None] | None = None
    properties: list[str | None] | None = None
    content_type: str | None = None
