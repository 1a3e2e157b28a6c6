"""What a handler is given, and how it is called: its request decoded, its transaction guarded.

The connection that a handler gets is the server's own, inside the transaction that also removes
the request and enqueues the reply. It refuses to end or reconfigure that transaction; savepoints
(`with context.connection.transaction()`) are fine. If a handler sends `commit` as SQL text, the
finish detects it. Source: spec S1; architecture 3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.engine.perform.guarded import HandlerConnection, said_by
from onceq.errors import (
    EnvironmentFault,
    HandlerFailed,
    HandlerMisuse,
    HandlerSignal,
    InvalidValue,
    QueueFull,
)
from onceq.manager.caller import enqueue, enqueue_async
from onceq.model.context import AsyncContext, BaseContext, Context
from onceq.model.element import Element
from onceq.model.queue import Handled, Queue

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T", bound=BaseContext[Any])

ACTED_UPON = (HandlerSignal, HandlerMisuse, EnvironmentFault, QueueFull)
"""Errors that reach the server as they were raised, besides the database's own. EnvironmentFault
and QueueFull come from onceq's operations on the handler's connection."""


def _context(
    kind: type[T],
    handled: Handled[Any, Any],
    element: Element,
    connection: HandlerConnection,
    *,
    sender: Callable[..., Any],
) -> T:
    return kind(
        connection=connection,
        queue=handled.queue.name,
        eid=element.eid,
        rid=element.rid,
        attempt=element.aborts + 1,
        enqueued_at=element.enqueued_at,
        priority=element.priority,
        properties=element.properties,
        correlation_id=element.correlation_id,
        owes_reply=element.owes_reply,
        content_type=element.content_type,
        scratch=element.scratch,
        sender=sender,
    )


def _failed(error: BaseException) -> HandlerFailed:
    """Returns the error that takes the place of whatever the user's code raised."""
    return HandlerFailed(type(error).__name__, said_by(error))


@contextlib.contextmanager
def _own_cancellation() -> Generator[None]:
    """Raises HandlerFailed for a CancelledError of the handler's own, not meant for this task."""
    try:
        yield
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is None or ours.cancelling():
            raise
        raise _failed(error) from error


def decoded(queue: Queue[Any, Any], body: bytes, content_type: str | None) -> Any:
    """Returns a request decoded for its handler, for every server. InvalidValue, HandlerFailed."""
    try:
        return queue.decode_request(body, content_type)
    except InvalidValue:
        raise
    except Exception as error:  # a type's own decoding
        raise _failed(error) from error


def _request(handled: Handled[Any, Any], element: Element) -> Any:
    if element.unreadable is not None:
        what = f"the properties of a request in queue {handled.queue.name!r}"
        raise InvalidValue(f"{what} cannot be read: {element.unreadable}")
    return decoded(handled.queue, element.body, element.content_type)


def _encoded(handled: Handled[Any, Any], element: Element, value: Any) -> bytes:
    if value is None and not element.owes_reply:
        return b""
    try:
        return handled.queue.encode_reply(value)
    except InvalidValue as error:
        raise HandlerFailed("InvalidReply", str(error)) from error
    except Exception as error:  # a type's own encoding
        raise _failed(error) from error


def sync_call(
    handled: Handled[Any, Any], database_error: type[Exception], repository: str
) -> Callable[[Element, psycopg.Connection[Any]], bytes]:
    """Returns what the driver calls for an element of this queue."""
    passed = (*ACTED_UPON, database_error)

    def call(element: Element, connection: psycopg.Connection[Any]) -> bytes:
        request = _request(handled, element)
        guarded = HandlerConnection(connection)
        try:
            sender = partial(enqueue, guarded, repository=repository)
            context = _context(Context, handled, element, guarded, sender=sender)
            value = handled.handler(request, context)
        except passed:
            raise
        except Exception as error:  # the server's handler boundary
            raise _failed(error) from error
        finally:
            guarded.expire()
        return _encoded(handled, element, value)

    return call


def async_call(
    handled: Handled[Any, Any], database_error: type[Exception], repository: str
) -> Callable[[Element, psycopg.AsyncConnection[Any]], Awaitable[bytes]]:
    """Returns what the async driver awaits for an element of this queue."""
    passed = (*ACTED_UPON, database_error)

    async def call(element: Element, connection: psycopg.AsyncConnection[Any]) -> bytes:
        request = _request(handled, element)
        guarded = HandlerConnection(connection)
        try:
            with _own_cancellation():
                sender = partial(enqueue_async, guarded, repository=repository)
                context = _context(AsyncContext, handled, element, guarded, sender=sender)
                value = await handled.handler(request, context)
        except passed:
            raise
        except Exception as error:  # the server's handler boundary
            raise _failed(error) from error
        finally:
            guarded.expire()
        return _encoded(handled, element, value)

    return call
