"""What an element says of itself beyond its columns (spec Q9): read from its properties. Pure.

The keys are the queue manager's own; `reserved` has the table of them, and says how they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from onceq.model.code_pages import code_page_of
from onceq.model.words import Word

MESSAGE_ID: Final = "onceq_message_id"
REPLY_TO: Final = "onceq_reply_to"
SCRATCH: Final = "onceq_scratch"
REPORT: Final = "onceq_report"
REPORTS: Final = "onceq_reports"


class ElementType(Word):
    """What kind of message an element is (Q9), wherever it is, also when it has failed."""

    DATAGRAM = "datagram"
    REQUEST = "request"
    REPLY = "reply"
    REPORT = "report"


class Carrier(Protocol):
    """What has properties: an element, or what a handler is told of one."""

    @property
    def eid(self) -> UUID:
        """Its eid."""
        ...

    @property
    def content_type(self) -> str | None:
        """Its content type."""
        ...

    @property
    def properties(self) -> Mapping[str, Any] | None:
        """Its properties."""
        ...


class Described:
    """The attributes that are among the properties, for an element and for a handler's context."""

    __slots__ = ()

    @property
    def message_id(self: Carrier) -> str:
        """What its sender calls this message; its eid, if the sender gave it no id."""
        return str((self.properties or {}).get(MESSAGE_ID, self.eid))

    @property
    def reply_to(self: Carrier) -> str | None:
        """The queue where the sender of a datagram waits for an answer; None: it waits for none."""
        return (self.properties or {}).get(REPLY_TO)

    @property
    def code_page(self: Carrier) -> str | None:
        """In which code page the body is text, as its content type says; None: it says nothing."""
        return code_page_of(self.content_type)


def scratch_of(properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the scratch pad among the properties, a copy; empty if there is none."""
    return dict((properties or {}).get(SCRATCH, {}))


def type_of(properties: Mapping[str, Any] | None, *, owes_reply: bool) -> ElementType:
    """Returns the type of what is no reply."""
    if REPORT in (properties or {}):
        return ElementType.REPORT
    return ElementType.REQUEST if owes_reply else ElementType.DATAGRAM
