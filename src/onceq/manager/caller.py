"""Fire and forget on the caller's own connection (spec C16).

The element joins the caller's transaction: it is enqueued if, and only if, that commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine.unwrap import async_caller_driver, caller_driver
from onceq.manager.program import enqueue_op
from onceq.model.names import check_repository
from onceq.model.queue import content_type_of

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from onceq.model.ops import Enqueue
    from onceq.model.queue import Queue

T = TypeVar("T")

DEFAULT_REPOSITORY = "onceq"


def _op(queue: Queue[T, Any], request: T, **attributes: Any) -> Enqueue:
    return enqueue_op(
        queue.name,
        queue.encode_request(request),
        content_type=content_type_of(queue.request_type),
        own_transaction=False,
        **attributes,
    )


def enqueue(
    connection: Any,
    queue: Queue[T, Any],
    request: T,
    *,
    rid: str | None = None,
    priority: int = 4,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    repository: str = DEFAULT_REPOSITORY,
) -> UUID:
    """Enqueues a request that wants no reply, in the caller's transaction; returns its eid.

    connection: psycopg's or SQLAlchemy's. The outcome is found by `lookup` and in the error
    queue. Raises QueueNotFound, QueueStopped, TooLarge, InvalidValue: nothing happened.
    """
    op = _op(
        queue, request, rid=rid, priority=priority, not_before=not_before, expires_at=expires_at
    )
    return caller_driver(connection, check_repository(repository)).perform(op)


async def enqueue_async(
    connection: Any,
    queue: Queue[T, Any],
    request: T,
    *,
    rid: str | None = None,
    priority: int = 4,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    repository: str = DEFAULT_REPOSITORY,
) -> UUID:
    """See `enqueue`; on an async connection."""
    op = _op(
        queue, request, rid=rid, priority=priority, not_before=not_before, expires_at=expires_at
    )
    return await async_caller_driver(connection, check_repository(repository)).perform(op)
