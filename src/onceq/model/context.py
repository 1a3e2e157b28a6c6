"""What a handler is told about its execution, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    import psycopg

C = TypeVar("C")
Sync: TypeAlias = "psycopg.Connection[Any]"
Async: TypeAlias = "psycopg.AsyncConnection[Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseContext(Generic[C]):
    """What both kinds of handler are given.

    attempt: 1 for the first, 2 after one abort that was charged, ...: one more than the attempts
    that have counted so far.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(BaseContext[Sync]):
    """For a sync handler. `connection` is in the transaction that commits with the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncContext(BaseContext[Async]):
    """For an async handler: like Context, with an async connection."""
