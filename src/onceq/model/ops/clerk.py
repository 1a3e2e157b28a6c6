"""The clerk's operations (BHM90 figure 5; spec C1). Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from onceq.model.client_state import ClientState
from onceq.model.element import Element, EndUser, Fate, KillAnswer, Role, Whereabouts
from onceq.model.ops.base import Identity, Integer, Op, SmallInt


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The answer of connect: this life, and where the former one stopped.

    was: 'new', 'connected' or 'disconnected'. s_rid, r_rid: of the request sent last and the reply
    received last. s_state: 'request' (no reply yet), 'reply' (it waits, or was received and not
    acknowledged) or 'done'. ckpt: of the last receive.
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

    @property
    def who(self) -> Identity:
        """The client, in this life."""
        return Identity(registrant_id=self.registrant_id, epoch=self.epoch)


class Connect(Op[Connection], changes="a client's new life begins, and fences the former"):
    """Begins a new life of a registrant and fences the former one.

    keep: how many replies stay after they are acknowledged; None leaves them. bell: where this life
    is rung; None: where its session is.
    """

    name: str
    thread: str = ""
    keep: Integer | None = None
    bell: str | None = None


class Disconnect(Op[bool], changes="a client's session ends, and a tombstone stays"):
    """Ends a session that has nothing outstanding. Fenced, IllegalState."""

    who: Identity
    received: list[str]
    r_rid: str | None
    ckpt: bytes | None
    s_rid: str | None
    s_no: int


class BeginWork(Op[None]):
    """Begins a transaction of the client's own; what follows joins it until Commit or Rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A stable send. state: 'new', or for a rid sent before 'queued', 'replied' or 'done'."""

    eid: UUID
    state: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its client sends it: what it is called, what it says, and SendAttributes.

    content_type: None: that of its queue's type.
    """

    rid: str
    body: bytes
    priority: SmallInt = 4
    not_before: datetime | None = None
    expires_at: datetime | None = None
    properties: Mapping[str, Any] | None = None
    content_type: str | None = None

    @property
    def sha256(self) -> bytes:
        """The digest by which a rid sent again is known to mean the same."""
        return hashlib.sha256(self.body).digest()

    @property
    def properties_text(self) -> str | None:
        """The properties as JSON; None: there are none."""
        return None if self.properties is None else json.dumps(self.properties)


class Send(Op[Sent], changes="a request goes in, and the replies that it acknowledges go"):
    """Sends a request; if it is new, removes the replies in `ack` (the last one: received last).

    sleep: if the request is new, this registrant falls asleep until its reply comes. keep: how many
    of the replies removed last stay, for a receive by rid.
    Fenced, QueueNotFound, QueueStopped, QueueFull, TooLarge, RidReused: nothing happened.
    InDoubt.
    """

    who: Identity
    queue: str
    request: Request
    send_no: int
    ack: list[str]
    content_type: str | None = None
    own_transaction: bool = True
    sleep: bool = False
    keep: Integer = 0


class Post(Op[None], changes="a request is given to the connection, and its answer not waited for"):
    """Gives a send to the connection and does not wait for it to commit (BHM90 5).

    Only a wait, and then Posted, may follow on this connection.
    """

    send: Send


class Posted(Op[Sent], changes="the answer to it is read: whether it is stable"):
    """The answer to the send that was posted; raises what Send raises."""


class SendMany(Op[list[Sent]], changes="many requests go in as one"):
    """Sends many requests in one transaction, all or none, with send numbers from `send_no` on.

    properties: of each request, as JSON; None in their place: none of them has any.
    """

    who: Identity
    queue: str
    rids: list[str]
    bodies: list[bytes]
    send_no: int
    ack: list[str]
    content_type: str | None = None
    own_transaction: bool = True
    keep: Integer = 0
    properties: list[str | None] | None = None


class Receive(Op[list[Element]], changes="a reply is read, and a checkpoint kept"):
    """The waiting replies, oldest first, without those in `skip`; they stay until acknowledged.

    rid: only that one, even if it was acknowledged and kept. after: only those whose seq is
    greater. ckpt: makes (rid, ckpt) stable before it returns. asleep: this registrant is
    asleep; sleep: it falls asleep now. It wakes when there is a reply. Fenced.
    """

    who: Identity
    rid: str | None = None
    skip: list[str]
    limit: Integer = 1
    ckpt: bytes | None = None
    s_rid: str | None
    s_no: int
    asleep: bool = False
    sleep: bool = False
    after: int = 0


class NextExpiry(Op[float | None]):
    """In how many seconds the next request that nobody has claimed expires; None: none does.

    Negative: it has expired, and the next Receive makes its reply. Fenced.
    """

    who: Identity


class Acknowledge(Op[int], changes="replies are freed, and a checkpoint kept"):
    """Removes replies that the client has recorded; returns how many were waiting. Fenced.

    The last one counts as received last. But without `ckpt`, one that was received with a
    checkpoint, and was still waiting, keeps that place (G6). keep: how many of those removed last
    stay, for a receive by rid.
    """

    who: Identity
    rids: list[str]
    ckpt: bytes | None
    s_rid: str | None
    s_no: int
    keep: Integer = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingRequest:
    """A request that was sent and not acknowledged. replied: its reply is waiting."""

    rid: str
    send_no: int
    replied: bool
    eid: UUID


class Outstanding(Op[list[OutstandingRequest]]):
    """What a registrant has outstanding, in the order of sending. Fenced."""

    who: Identity


class CountOutstanding(Op[int]):
    """How many requests and replies a registrant has outstanding. Fenced."""

    who: Identity


class CancelRequest(Op[KillAnswer], changes="a client kills its own request"):
    """Kills a request of this registrant by its rid. Fenced, DeadlineExceeded."""

    who: Identity
    rid: str
    timeout_s: float = 10.0


class LastUser(Op[EndUser | None]):
    """The end user of a registrant's request, while the request or its receive is known. Fenced."""

    who: Identity
    rid: str | None


class BeginReply(
    Op[bool], changes="it is noted that a reply is processed in the client's transaction"
):
    """Notes that the processing of a reply begins; False: it aborted too often, and is held.

    An attempt that a dead client had begun is charged. Fenced, IllegalState: there is no reply.
    """

    who: Identity
    rid: str
    s_rid: str | None
    s_no: int


class TakeReply(Op[int], changes="a reply is received in the client's transaction"):
    """Takes a begun reply into the caller's transaction; returns its xid. Fenced, IllegalState."""

    who: Identity
    rid: str
    ckpt: bytes | None
    s_rid: str | None
    s_no: int


class SettleReply(
    Op[Fate], changes="what the client's transaction did to a reply is found, and counted"
):
    """What became of a reply that was taken: LOST if it was received, RUNNING; else an abort.

    xid: of the transaction that took it; None if none did. counts: whether an abort counts.
    """

    who: Identity
    rid: str
    xid: int | None
    counts: bool = True
    s_rid: str | None
    s_no: int


class Act(Op[Any], changes="a client reads its device, or processes a reply"):
    """Does something of the client's own, unknown to the queue manager; returns its answer.

    Reads a device, outputs a reply, asks a person. Raises whatever `act` raises.
    """

    act: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTags:
    """Where a thread of a client had stopped (BHM90 5).

    was, s_rid, s_state, r_rid, ckpt: as in connect's answer. outstanding: how many requests have
    no reply that it has recorded as received.
    """

    thread: str
    registrant_id: int
    epoch: int
    was: str
    s_rid: str | None
    s_state: str
    r_rid: str | None
    ckpt: bytes | None
    outstanding: int

    @property
    def state(self) -> ClientState:
        """Where this thread is (BHM90 figure 1); Disconnected, if it never connected."""
        if self.was != "connected":
            return ClientState.DISCONNECTED
        if self.outstanding:
            return ClientState.REQ_SENT
        kept = self.s_state == Role.REPLY
        return ClientState.REPLY_RECVD if kept else ClientState.CONNECTED


class Threads(Op[list[ThreadTags]]):
    """The tags of every thread of a client, by thread. It fences nobody.

    who: Fenced if that life is over. None: nobody in particular asks.
    """

    name: str
    who: Identity | None = None


class WhereIs(Op[Whereabouts | None]):
    """Where a request of this registrant is. Fenced.

    None: it was never sent, or history no longer has it.
    """

    who: Identity
    rid: str


class AlertLate(Op[list[str]], changes="alerts of late requests are enqueued"):
    """Enqueues one alert for each request without a reply after late_s; returns the rids.

    rid: only that one. queue: for the alerts. Fenced, QueueNotFound, QueueStopped,
    QueueFull.
    """

    who: Identity
    rid: str | None
    late_s: float
    queue: str
