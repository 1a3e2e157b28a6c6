"""Ops: the operations of the queue manager, as frozen values, and Programs, which yield them.

An Op says what is to be done and what type its answer has; a Driver does it. A Program is a
generator of Ops: `element = yield from Claim(...)`. It does no I/O, reads no clock, draws no
random number, and never catches BaseException. Source: BHM90 figure 3.

Every Op is one round trip. What an Op raises is in `onceq.errors`; the Driver throws it into
the Program at the yield.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from onceq.model.element import Charge, Element
    from onceq.model.queue import QueueSettings

T = TypeVar("T")


class Op(Generic[T]):
    """An operation whose answer is a T."""

    __slots__ = ()

    def __iter__(self) -> Generator[Op[Any], Any, T]:
        return cast("T", (yield self))


Program: TypeAlias = Generator[Op[Any], Any, T]


# --- queues (spec Q1) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateQueue(Op["bool"]):
    """Creates a queue and its error queue; False when a queue of that name is there already."""

    queue: str
    settings: QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQueue(Op["bool"]):
    """Changes the settings that are given; None leaves one as it is. QueueNotFound."""

    queue: str
    abort_limit: int | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int | None = None
    execution_limit_s: int | None = None
    body_bytes_max: int | None = None
    tag_bytes_max: int | None = None
    keep_body: bool | None = None
    enqueue_started: bool | None = None
    dequeue_started: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyQueue(Op["bool"]):
    """Destroys an empty queue. QueueNotFound, QueueNotEmpty."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueues(Op["list[QueueInfo]"]):
    """All queues by name, or the one that is named."""

    queue: str | None = None


# --- elements outside a session (spec Q2, Q3, Q6) -----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue(Op["UUID"]):
    """Enqueues an element that owes no reply. QueueNotFound, QueueStopped, TooLarge."""

    queue: str
    body: bytes
    rid: str | None = None
    priority: int = 4
    not_before: datetime | None = None
    expires_at: datetime | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] | None = None
    own_transaction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueMany(Op["list[UUID]"]):
    """Enqueues many elements that owe no reply, in one transaction."""

    queue: str
    bodies: list[bytes]
    content_type: str | None = None
    own_transaction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequeue(Op["Element | None"]):
    """Dequeues an element that owes no reply, outside any transaction; None: none is ready.

    With a registrant, tagged. IllegalState when the element owes a reply.
    """

    queue: str
    eid: UUID | None = None
    registrant_id: int | None = None
    epoch: int | None = None
    tag: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadElement(Op["Element | None"]):
    """Reads an element wherever it is; None when it is in no queue."""

    eid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Take(Op["int"]):
    """Takes a claimed element into the caller's transaction; its xid. ClaimLost, IllegalState."""

    seq: int
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTaken(Op["Fate"]):
    """Charges an abort when the transaction that took the element ended without concluding it."""

    seq: int
    incarnation: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTaken(Op["bool"]):
    """Gives the reply of an element taken in this transaction. IllegalState."""

    seq: int
    incarnation: int
    reply: bytes
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(Op["KillAnswer"]):
    """Kills an element, queued or running (G8). DeadlineExceeded: nothing happened."""

    eid: UUID
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive(Op["tuple[UUID, str] | None"]):
    """Runs again what failed; (eid, rid) of what now runs, None when nothing is held by that eid."""

    eid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Op["bool"]):
    """Makes everything read before it as durable as its own, synchronous, commit (finding 9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp(Op["list[RequestState]"]):
    """Every place in which a rid, or an eid, is or was, the latest first. At most `limit` rows."""

    rid: str | None = None
    eid: UUID | None = None
    registrant: str | None = None
    state: str | None = None
    queue: str | None = None
    limit: int = 100


# --- registrations (BHM90 4.3; spec Q5) ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registrant's registration with a queue: its handle, and its last operation there."""

    registrant_id: int
    epoch: int
    thread: str
    kind: str | None
    eid: UUID | None
    tag: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Op["list[Registered]"]):
    """Registers with a queue, durably. The first row is this thread's, the rest its siblings'.

    epoch: None begins a new life of the registrant, which fences the former; a number joins one.
    """

    queue: str
    name: str
    thread: str = ""
    stable: bool = True
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deregister(Op["bool"]):
    """Destroys a registration. Fenced."""

    registrant_id: int
    epoch: int
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueTagged(Op["UUID"]):
    """Enqueues and records it as the registrant's last operation. Fenced, TooLarge, ..."""

    registrant_id: int
    epoch: int
    queue: str
    body: bytes
    tag: bytes | None = None
    own_transaction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOperation:
    """A registrant's last operation on a queue, with the copy of its element."""

    kind: str | None
    eid: UUID | None
    tag: bytes | None
    body: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLast(Op["LastOperation | None"]):
    """Reads the copy of the element last operated upon, whoever dequeued it since. Fenced."""

    registrant_id: int
    epoch: int
    queue: str


# --- the clerk (BHM90 figure 5; spec C1) --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What connect says: this life, and where the former life had come to.

    was: 'new', 'connected' or 'disconnected'. s_rid, r_rid: the request sent and the reply
    received last. s_state: 'request' (no reply yet), 'reply' (it waits, or was received and is
    kept) or 'done'. ckpt: of the last receive.
    """

    registrant_id: int
    epoch: int
    reply_queue: str
    was: str
    s_rid: str | None
    s_no: int
    s_state: str | None
    r_rid: str | None
    ckpt: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect(Op["Connection"]):
    """Begins a new life of a registrant and fences the former."""

    name: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(Op["bool"]):
    """Ends a session that has nothing outstanding. Fenced, IllegalState."""

    registrant_id: int
    epoch: int
    received: list[str]
    r_rid: str | None
    ckpt: bytes | None
    s_rid: str | None
    s_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A send that is stable. state: 'new', or of a rid sent before 'queued', 'replied', 'done'."""

    eid: UUID
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Op["Sent"]):
    """Sends a request; removes the replies whose rids are in `ack` (the last: received last).

    Fenced, QueueNotFound, QueueStopped, TooLarge, RidReused: nothing happened. InDoubt.
    """

    registrant_id: int
    epoch: int
    queue: str
    rid: str
    body: bytes
    send_no: int
    ack: list[str]
    priority: int = 4
    not_before: datetime | None = None
    expires_at: datetime | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] | None = None
    own_transaction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMany(Op["list[Sent]"]):
    """Sends many requests in one transaction, all or none; send numbers from `send_no` on."""

    registrant_id: int
    epoch: int
    queue: str
    rids: list[str]
    bodies: list[bytes]
    send_no: int
    ack: list[str]
    content_type: str | None = None
    own_transaction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(Op["list[Element]"]):
    """The replies that wait, oldest first, without those in `skip`; they stay until acknowledged.

    rid: only that one. ckpt: makes (rid, ckpt) stable before it returns. Fenced.
    """

    registrant_id: int
    epoch: int
    s_rid: str | None
    s_no: int
    rid: str | None = None
    skip: list[str]
    limit: int = 1
    ckpt: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge(Op["int"]):
    """Removes replies that the client has recorded; the last counts as received last. Fenced."""

    registrant_id: int
    epoch: int
    rids: list[str]
    ckpt: bytes | None
    s_rid: str | None
    s_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingRequest:
    """A request that was sent and not acknowledged. replied: its reply waits."""

    rid: str
    send_no: int
    replied: bool
    eid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding(Op["list[OutstandingRequest]"]):
    """What a registrant has outstanding, in the order of sending. Fenced."""

    registrant_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest(Op["KillAnswer"]):
    """Kills a request of this registrant by its rid. Fenced, DeadlineExceeded."""

    registrant_id: int
    epoch: int
    rid: str
    timeout_s: float = 10.0


# --- the server (BHM90 figure 5; spec S1) -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a server session. slot: of its advisory lock and started marker."""

    slot: int
    incarnation: int
    backend_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncarnation(Op["Incarnation"]):
    """Begins an incarnation on this connection; takes back the claims of `former`, uncharged."""

    process: UUID
    host: str
    pid: int
    former: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseIncarnation(Op["bool"]):
    """Ends an incarnation; what it holds goes back, uncharged."""

    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver(Op["int"]):
    """Takes over the claims of processes that have died (G7); how many."""

    process: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Op["list[Element]"]):
    """Claims up to n elements; turn alternates between lanes; alone: suspects may be claimed."""

    incarnation: int
    queue_id: int
    n: int
    turn: int
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEid(Op["Element | None"]):
    """Claims the element with this eid; None when it is not there, or held by another."""

    incarnation: int
    eid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Op["None"]):
    """Begins the handler's transaction and sets the started marker of this slot to `seq`.

    alone: waits until nothing else runs in this process, and keeps it so until the end.
    """

    slot: int
    seq: int
    token: str
    isolation: str
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Op["None"]):
    """Commits. InDoubt when the answer is lost, or says that durability was cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Op["None"]):
    """Rolls back; succeeds when there is nothing to roll back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Op["bytes"]):
    """Calls the handler of a queue with an element inside the transaction; its encoded reply.

    Raises HandlerFailed, Reject, Retry, HandlerMisuse, EnvironmentFault, ConnectionLost.
    """

    queue: str
    element: Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Op["list[Element]"]):
    """Removes a claimed element, writes reply and history, claims n more. ClaimLost."""

    seq: int
    incarnation: int
    reply: bytes
    content_type: str | None
    token: str
    queue_id: int
    n: int
    turn: int
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortElement(Op["Fate"]):
    """Ends an execution that failed, in a transaction of its own (finding 4)."""

    seq: int
    incarnation: int
    charge: Charge
    code: str | None
    error: str | None


# --- waiting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Op["bool"]):
    """Whether this program has been asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Op["bool"]):
    """Waits a little for something to change; False when the deadline has passed or a stop is due.

    key: what is waited for, so that repeated waits can grow longer. timeout_s: of the whole
    series of waits that began with `first`; None: for ever (until a stop).
    """

    key: str
    first: bool
    timeout_s: float | None = None
