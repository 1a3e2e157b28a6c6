"""What a handler is told about its execution, as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack
from uuid import UUID

from onceq.errors import IllegalState
from onceq.model.attributes import Described, ElementType, type_of
from onceq.model.send_attributes import EnqueueAttributes

if TYPE_CHECKING:
    import psycopg

    from onceq.model.queue import Queue

T = TypeVar("T")
C = TypeVar("C")
Sync: TypeAlias = "psycopg.Connection[Any]"
Async: TypeAlias = "psycopg.AsyncConnection[Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseContext(Described, Generic[C]):
    """What both kinds of handler are given.

    attempt: 1 for the first, 2 after one abort that was charged, ...: one more than the attempts
    that have counted so far. scratch: the scratch pad, a mapping for the handler to change, which
    `enqueue` sends along; an attempt that fails leaves it as it came. sender: what `enqueue` calls.
    """

    connection: C
    queue: str
    eid: UUID
    rid: str
    attempt: int
    enqueued_at: datetime
    priority: int
    properties: Mapping[str, Any] | None
    correlation_id: str | None
    owes_reply: bool
    content_type: str | None = None
    scratch: dict[str, Any] = field(default_factory=dict[str, Any])
    sender: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    @property
    def type(self) -> ElementType:
        """What kind of message it is."""
        return type_of(self.properties, owes_reply=self.owes_reply)

    def _send(self, queue: object, request: object, attributes: EnqueueAttributes) -> Any:
        if self.sender is None:
            raise IllegalState(
                "this context is of no server, and cannot enqueue: use that of a handler, or "
                "onceq.enqueue"
            )
        along: EnqueueAttributes = {"scratch": self.scratch} if self.scratch else {}
        return self.sender(queue, request, **{**along, **attributes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(BaseContext[Sync]):
    """For a sync handler. `connection` is in the transaction that commits with the reply."""

    def enqueue(
        self, queue: Queue[T, Any], request: T, **attributes: Unpack[EnqueueAttributes]
    ) -> UUID:
        """Enqueues for the next server, in this transaction, with the scratch pad; returns the eid.

        attributes: see EnqueueAttributes; scratch: another pad. Raises what `onceq.enqueue` does.
        """
        eid: UUID = self._send(queue, request, attributes)
        return eid


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncContext(BaseContext[Async]):
    """For an async handler: like Context, with an async connection."""

    async def enqueue(
        self, queue: Queue[T, Any], request: T, **attributes: Unpack[EnqueueAttributes]
    ) -> UUID:
        """Enqueues for the next server: see Context.enqueue."""
        eid: UUID = await self._send(queue, request, attributes)
        return eid
