"""How a handler is called, apart from any server: what it is given, and what it raises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

import onceq
from onceq.errors import HandlerFailed, InvalidValue, Retry
from onceq.server.handlers import async_call, sync_call
from tests.lives import living

if TYPE_CHECKING:
    from onceq.model.element import Element

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture
def element(qm: onceq.QueueManager, conninfo: str, repository: str) -> Element:
    """A claimed element, whose session has gone."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x", rid="1", priority=7, properties={"k": [1]}, correlation_id="c")
    with living(conninfo, repository) as life:
        return life.claim_one("raw")


def test_a_handler_is_told_of_its_execution(element: Element, conninfo: str) -> None:
    seen: list[onceq.Context] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        seen.append(context)
        return request

    with psycopg.connect(conninfo) as connection:
        assert (
            sync_call(RAW.handled_by(handle), psycopg.Error, "onceq")(element, connection) == b"x"
        )
    (context,) = seen
    found = (context.queue, context.rid, context.attempt, context.priority, context.owes_reply)
    assert found == ("raw", "1", 1, 7, False)
    assert (context.properties, context.correlation_id) == ({"k": [1]}, "c")
    assert context.eid == element.eid


RAISED: list[tuple[Exception, type[Exception]]] = [
    (KeyError("k"), HandlerFailed),
    (InvalidValue("of a library call of its own"), HandlerFailed),
    (Retry("later"), Retry),
    (onceq.Reject("no"), onceq.Reject),
    (psycopg.errors.DeadlockDetected("d"), psycopg.errors.DeadlockDetected),
]


@pytest.mark.parametrize(("error", "expected"), RAISED, ids=lambda one: str(one)[:20])
def test_what_a_handler_raises(
    element: Element, conninfo: str, error: Exception, expected: type[Exception]
) -> None:
    def handle(request: bytes, _: onceq.Context) -> bytes:
        if request:
            raise error
        return request

    async def handle_async(request: bytes, context: onceq.AsyncContext) -> bytes:
        return handle(request, context)  # type: ignore[arg-type] # it looks at neither

    async def call_async() -> None:
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            await async_call(RAW.handled_by(handle_async), psycopg.Error, "onceq")(
                element, connection
            )

    with psycopg.connect(conninfo) as connection, pytest.raises(expected) as raised:
        sync_call(RAW.handled_by(handle), psycopg.Error, "onceq")(element, connection)
    if isinstance(raised.value, HandlerFailed):
        assert (raised.value.code, raised.value.text) == (type(error).__name__, str(error))
    with pytest.raises(expected):
        asyncio.run(call_async())


def test_async_handlers_are_known_as_such() -> None:
    class Called:
        async def __call__(self, request: bytes, context: onceq.AsyncContext) -> bytes:
            raise NotImplementedError

    async def handle(request: bytes, _: onceq.AsyncContext) -> bytes:
        return request

    assert RAW.handled_by(handle).is_async
    assert RAW.handled_by(Called()).is_async
    assert not RAW.handled_by(lambda request, _: request).is_async
