"""What a function for a request is given, and what it may return, as values.

Public through `onceq.spark`. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from onceq.model.attributes import Described, ElementType, scratch_of, type_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext(Described):
    """What a function for a request is told of it. attempt: 1 for the first, 2 after one abort, ...

    Like a native server's context, but without a connection: a function acts by what it returns.
    """

    queue: str
    eid: UUID
    rid: str
    registrant: str | None
    thread: str | None
    attempt: int
    enqueued_at: datetime
    priority: int
    properties: Mapping[str, Any] | None
    correlation_id: str | None
    content_type: str | None = None

    @property
    def type(self) -> ElementType:
        """What kind of message it is."""
        return type_of(self.properties, owes_reply=self.registrant is not None)

    @property
    def scratch(self) -> dict[str, Any]:
        """A copy of the scratch pad; empty if there is none."""
        return scratch_of(self.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply together with rows for the user's tables, by the table's name in `tables=`."""

    reply: Any
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Any])
