"""What may be said of a request beside its body, as keywords of calls that send it (Q9). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from onceq.model.element import EndUser
    from onceq.model.reports import Reports


class AnyAttributes(TypedDict, total=False):
    """What is said of a request beside its body, as keywords (Q9).

    properties: JSON, uninterpreted; keys that begin with `onceq_` are refused. message_id: what the
    sender calls it, 1 to 200 bytes, its eid by default; no key: two may have one. scratch: a
    mapping that travels along, at most 64 KiB of JSON. content_type: of requests of type bytes, and
    in it their code page. reports: of which events the sender is told, and where (Q10).
    """

    properties: Mapping[str, Any] | None
    message_id: str | None
    scratch: Mapping[str, Any] | None
    content_type: str | None
    reports: Reports | None


class SendAttributes(AnyAttributes, total=False):
    """How a request is sent, as keywords; see also AnyAttributes.

    priority: 0 to 9, 9 first, 4 by default. not_before, expires_at: aware datetimes; an element
    that expires before it takes effect gets one expired reply.
    """

    priority: int
    not_before: datetime | None
    expires_at: datetime | None


class RequestAttributes(SendAttributes, total=False):
    """How a client sends a request, as keywords. end_user: comes back with the reply."""

    end_user: EndUser | None


class ManyAttributes(AnyAttributes, total=False):
    """What is said of each of many requests; content_type: the same of all."""

    end_user: EndUser | None


class EnqueueAttributes(SendAttributes, total=False):
    """How an element is enqueued, as keywords. rid: its name in lookups, not a key.

    reply_to: the queue where an answer is awaited, for whoever takes the element to send it there.
    """

    rid: str | None
    correlation_id: str | None
    reply_to: str | None
