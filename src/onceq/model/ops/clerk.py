"""The clerk's operations (BHM90 figure 5; spec C1). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from onceq.model.element import Element, KillAnswer
from onceq.model.ops.base import Op


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
class Connect(Op[Connection]):
    """Begins a new life of a registrant and fences the former."""

    name: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(Op[bool]):
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
class Send(Op[Sent]):
    """Sends a request; removes the replies whose rids are in `ack` (the last: received last).

    sleep: this registrant falls asleep, if the request is new, until its reply comes.
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
    sleep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMany(Op[list[Sent]]):
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
class Receive(Op[list[Element]]):
    """The replies that wait, oldest first, without those in `skip`; they stay until acknowledged.

    rid: only that one. ckpt: makes (rid, ckpt) stable before it returns. asleep: this registrant is
    asleep; sleep: it falls asleep now. It wakes when there is a reply. Fenced.
    """

    registrant_id: int
    epoch: int
    s_rid: str | None
    s_no: int
    rid: str | None = None
    skip: list[str]
    limit: int = 1
    ckpt: bytes | None = None
    asleep: bool = False
    sleep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge(Op[int]):
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
class Outstanding(Op[list[OutstandingRequest]]):
    """What a registrant has outstanding, in the order of sending. Fenced."""

    registrant_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest(Op[KillAnswer]):
    """Kills a request of this registrant by its rid. Fenced, DeadlineExceeded."""

    registrant_id: int
    epoch: int
    rid: str
    timeout_s: float = 10.0
