"""Fire and forget on the caller's own connection (spec C16).

The element joins the caller's transaction: it is enqueued if, and only if, that commits.
"""

from __future__ import annotations

from typing import Any, TypeVar, Unpack
from uuid import UUID

from onceq.engine.connect.unwrap import async_caller_driver, caller_driver, no_repository
from onceq.errors import SchemaMissing
from onceq.manager.program import enqueue_op
from onceq.model.names import check_repository
from onceq.model.queue import Queue
from onceq.model.send_attributes import EnqueueAttributes

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

    connection: psycopg's, SQLAlchemy's or Django's. attributes: see EnqueueAttributes. Find the
    outcome by `lookup` and in the error queue. Raises QueueNotFound, QueueStopped, QueueFull,
    TooLarge, InvalidValue; SchemaMissing if the connection's database does not hold the repository;
    IllegalState if the connection is in no transaction, ConnectionLost if closed: nothing happened.
    """
    op = enqueue_op(queue, request, attributes, own_transaction=False)
    driver = caller_driver(connection, check_repository(repository))
    try:
        return driver.run(iter(op))
    except SchemaMissing as error:
        raise no_repository(driver.connection, repository) from error


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
    driver = await async_caller_driver(connection, check_repository(repository))
    try:
        return await driver.run(iter(op))
    except SchemaMissing as error:
        raise no_repository(driver.connection, repository) from error
