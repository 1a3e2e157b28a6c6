"""Elements outside a session: enqueue, dequeue, read, kill, redrive, look up (Q2, Q3, Q6). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from onceq.model.element import Element, Fate, KillAnswer, RequestState, Unheld
from onceq.model.ops.base import Identity, Integer, Op, SmallInt


class Enqueue(Op[UUID], changes="an element is enqueued, in our transaction or in the caller's"):
    """Enqueues an element that owes no reply.

    QueueNotFound, QueueStopped, QueueFull, TooLarge.
    """

    queue: str
    body: bytes
    rid: str | None = None
    priority: SmallInt = 4
    not_before: datetime | None = None
    expires_at: datetime | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] | None = None
    own_transaction: bool = True


class EnqueueMany(Op[list[UUID]], changes="many elements are enqueued as one"):
    """Enqueues many elements that owe no reply, in one transaction. properties: of each."""

    queue: str
    bodies: list[bytes]
    content_type: str | None = None
    own_transaction: bool = True
    properties: Mapping[str, Any] | None = None


class Dequeue(
    Op[Element | None], changes="an element is taken for good, in a transaction of its own"
):
    """Dequeues an element that owes no reply, outside any transaction; None: none is ready.

    who: a registrant, whose operation is tagged. sleep: it falls asleep, and is rung when something
    comes; it wakes when it gets something, or by StopWaiting. abort_limit, error_queue: terms, as
    in SetTerms, for whoever takes the element in a caller's transaction. IllegalState if the
    element owes a reply.
    """

    queue: str
    eid: UUID | None = None
    who: Identity | None = None
    tag: bytes | None = None
    sleep: bool = False
    abort_limit: Annotated[int | None, ""] = None
    error_queue: Annotated[str | None, ""] = None

    @property
    def has_terms(self) -> bool:
        """Whether its terms are not the queue's."""
        return self.abort_limit is not None or self.error_queue is not None


class NextDue(Op[float | None]):
    """In how many seconds the next element of a queue is due; None: none waits for its time."""

    queue: str


class StopWaiting(Op[bool]):
    """Wakes a session that fell asleep in a Dequeue and got nothing; returns whether it was."""


class ReadElement(Op[Element | None]):
    """Reads an element wherever it is; None if it is in no queue."""

    eid: UUID


class Peek(Op[list[Element]]):
    """The first n elements of a queue that wait and are due, all left in it. QueueNotFound.

    By priority and time. Those that waited for their time come after the others, and suspects last;
    servers take of them in turn. Source: BHM90 figure 3, Read.
    """

    queue: str
    n: Integer


class Take(Op[int], changes="an element is taken in the caller's transaction"):
    """Takes a claimed element into the caller's transaction; returns that one's xid.

    ClaimLost, IllegalState.
    """

    seq: int
    incarnation: int


class SetTerms(Op[bool], changes="a life dequeues on terms of its own, not its queue's"):
    """Sets the abort limit and the error queue of what a life claims from a queue (Q4).

    seq: of the one element, which it has claimed; None: of all that it claims from now on. None
    leaves what the queue says; an error queue that does not exist is made. InvalidValue: it has the
    name of a client's reply queue. Returns whether the life is there.
    """

    incarnation: int
    queue_id: Integer
    seq: int | None = None
    abort_limit: Integer | None = None
    error_queue: str | None = None


class AbortTaken(Op[Fate], changes="a taking that the caller rolled back is counted"):
    """Charges an abort if the transaction that took the element ended without concluding it."""

    seq: int
    incarnation: int
    xid: int


class ReplyTaken(
    Op[bool], changes="the reply of a taken element is written in the caller's transaction"
):
    """Gives the reply to an element taken in this transaction. IllegalState."""

    seq: int
    incarnation: int
    reply: bytes
    content_type: str | None = None


class Kill(Op[KillAnswer], changes="a request is killed, and its cancelled reply written"):
    """Kills an element, queued or running (G8). DeadlineExceeded: nothing happened."""

    eid: UUID
    timeout_s: float = 10.0


class Redrive(Op[tuple[UUID, str] | None], changes="a failed request is sent anew"):
    """Runs a failed request again; returns the (eid, rid) that it now has; None: it is not held."""

    eid: UUID


class RetryHeld(Op[Unheld], changes="what its queue holds runs again, as itself"):
    """Has an element that its queue holds run again, its aborts counted anew (G3)."""

    eid: UUID


class GiveUpHeld(Op[Unheld], changes="what its queue holds fails, with its failure reply"):
    """Fails an element that its queue holds, with its failure reply (G3)."""

    eid: UUID


class Settle(Op[bool], changes="what is in doubt is made certain by a synchronous commit"):
    """Makes everything read before it as durable as its own, synchronous commit (finding 9)."""


class LookUp(Op[list[RequestState]]):
    """Every place where a rid, or an eid, is or was, the latest first. At most `limit` rows."""

    rid: str | None = None
    eid: UUID | None = None
    registrant: str | None = None
    state: str | None = None
    queue: str | None = None
    limit: Integer = 100
