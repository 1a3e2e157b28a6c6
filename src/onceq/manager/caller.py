"""Fire and forget on the caller's own connection (spec C16).

The element joins the caller's transaction: it is enqueued if, and only if, that commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine.unwrap import async_caller_driver, caller_driver
from onceq.manager.program import enqueue_op
from onceq.model.names import check_repository

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from onceq.model.element import EnqueueAttributes
    from onceq.model.queue import Queue

T = TypeVar("T")

DEFAULT_REPOSITORY = "onceq"


def enqueue(
    connection: Any,
    queue: Queue[T, Any],
    request: T,
    *,
    repository: str = DEFAULT_REPOSITORY,
    **attributes: Unpack[EnqueueAttributes],
) -> UUID:
    """Enqueues a request that wants no reply, in the caller's transaction; returns its eid.

    connection: psycopg's or SQLAlchemy's. attributes: see EnqueueAttributes. The outcome is found
    by `lookup` and in the error queue. Raises QueueNotFound, QueueStopped, TooLarge,
    InvalidValue: nothing happened.
    """
    op = enqueue_op(queue, request, attributes, own_transaction=False)
    return caller_driver(connection, check_repository(repository)).perform(op)


async def enqueue_async(
    connection: Any,
    queue: Queue[T, Any],
    request: T,
    *,
    repository: str = DEFAULT_REPOSITORY,
    **attributes: Unpack[EnqueueAttributes],
) -> UUID:
    """See `enqueue`; on an async connection."""
    op = enqueue_op(queue, request, attributes, own_transaction=False)
    return await async_caller_driver(connection, check_repository(repository)).perform(op)
