"""A client's ledger as a value: the request it constructed last, and how far that had come.

Pure. LastRequest, LastEnqueuedID and LastDequeuedID of BN09 figure 4.6; `Noted` has the states of
CSEP 9.2. One life of a client writes to a ledger at a time.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping  # at run time too: msgspec reads the types
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from onceq.model.names import client_said
from onceq.model.ops import Request


class Noted(enum.Enum):
    """What a ledger says of its last request (CSEP 9.2)."""

    NOTHING = "no request"
    NOT_SUBMITTED = "NotSubmitted"
    SUBMITTED = "Submitted"
    DONE = "Done"


class Joint(enum.Enum):
    """How a write to the ledger and an operation on the repository become one.

    ORDERED: written before the send and after the receive, each durable before the next; the rid
    closes the gaps. TOGETHER: one transaction of the repository's database. TWO_PHASE: the ledger's
    database prepares, and the repository's own commit decides.
    """

    ORDERED = "ordered"
    TOGETHER = "together"
    TWO_PHASE = "two-phase"


class Attributes(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a request is sent, as a ledger writes it; see SendAttributes."""

    priority: int = 4
    not_before: datetime | None = None
    expires_at: datetime | None = None
    properties: Mapping[str, Any] | None = None
    content_type: str | None = None


class LastRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The request that the client constructed last.

    body: None if the ledger did not have the request, and was brought up to the repository.
    """

    rid: str
    body: bytes | None = None
    attributes: Attributes = Attributes()

    @property
    def request(self) -> Request | None:
        """The request, as it was constructed; None if the ledger does not have it."""
        if self.body is None:
            return None
        return Request(rid=self.rid, body=self.body, **asdict(self.attributes))

    @classmethod
    def of(cls, request: Request) -> Self:
        """Returns a request as a ledger keeps it."""
        attributes = Attributes(
            priority=request.priority,
            not_before=request.not_before,
            expires_at=request.expires_at,
            properties=request.properties,
            content_type=request.content_type,
        )
        return cls(rid=request.rid, body=request.body, attributes=attributes)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a ledger holds (BN09 figure 4.6)."""

    last_request: LastRequest | None = None
    last_enqueued: str | None = None
    last_dequeued: str | None = None

    @property
    def rids(self) -> list[str]:
        """The rids that it names."""
        last = None if self.last_request is None else self.last_request.rid
        return [one for one in (last, self.last_enqueued, self.last_dequeued) if one is not None]

    @property
    def noted(self) -> Noted:
        """What this entry says of the last request."""
        if self.last_request is None:
            return Noted.NOTHING
        if self.last_request.rid == self.last_dequeued:
            return Noted.DONE
        same = self.last_request.rid == self.last_enqueued
        return Noted.SUBMITTED if same else Noted.NOT_SUBMITTED


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose ledger it is: a client of one repository, whose id no other repository has."""

    repository: str
    repository_id: UUID
    registrant: str
    thread: str

    @property
    def fenced_text(self) -> str:
        """What a life of this client that is over is told."""
        who = client_said(self.registrant, self.thread)
        return (
            f"a newer life of {who} has it, nothing happened: use that one, or connect() again, "
            "which fences it"
        )

    @property
    def digest(self) -> str:
        """A name for this client, of 32 characters."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]


def rid_digest(rid: str) -> str:
    """Returns a name for a rid, of 32 characters."""
    return hashlib.sha256(rid.encode()).hexdigest()[:32]


def encode_entry(entry: Entry) -> tuple[str, str]:
    """Returns an entry as text, and the digest of that text."""
    text = msgspec.json.encode(entry).decode()
    return text, hashlib.sha256(text.encode()).hexdigest()


def decode_entry(text: str, digest: str) -> Entry | None:
    """Returns the entry in a text; None if it is not what was written."""
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        return None
    try:
        return msgspec.json.decode(text, type=Entry)
    except msgspec.MsgspecError:
        return None
