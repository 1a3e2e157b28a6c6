"""A handler that leaves a cursor open: its session goes on, and it is told its own error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import RequestFailed
from tests.parts import LIMIT_S, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from onceq.model.queue import Handled

MANY = "select n, repeat('x', 100) from generate_series(1, 200000) n"
OUT = f"copy ({MANY}) to stdout"
IN = "copy kept_rows from stdin"
RAW = onceq.Queue("raw", str, str, abort_limit=1)
KEPT: list[Any] = []


def _stream(connection: Any) -> Iterator[Any]:
    return connection.cursor().stream(MANY)  # type: ignore[no-any-return] # psycopg's own


def _copy_out(connection: Any) -> Iterator[Any]:
    with connection.cursor().copy(OUT) as copy:
        yield from copy


def _copy_in(connection: Any) -> Iterator[None]:
    connection.execute("create temp table kept_rows (n int)")
    with connection.cursor().copy(IN) as copy:
        while True:
            copy.write_row([1])
            yield


def _pipeline(connection: Any) -> Iterator[None]:
    with connection.pipeline():
        while True:
            connection.execute("select 1")
            yield


async def _async_copy_out(connection: Any) -> AsyncIterator[Any]:
    async with connection.cursor().copy(OUT) as copy:
        async for row in copy:
            yield row


async def _async_pipeline(connection: Any) -> AsyncIterator[None]:
    async with connection.pipeline():
        while True:
            await connection.execute("select 1")
            yield


OPENED: dict[str, Callable[[Any], Iterator[Any]]] = {
    "stream": _stream,
    "copy out": _copy_out,
    "copy in": _copy_in,
    "pipeline": _pipeline,
}
ASYNC_OPENED: dict[str, Callable[[Any], AsyncIterator[Any]]] = {
    "stream": lambda connection: connection.cursor().stream(MANY),
    "copy out": _async_copy_out,
    "pipeline": _async_pipeline,
}


@pytest.fixture(autouse=True)
def none_kept() -> Iterator[None]:
    yield
    KEPT.clear()


def _ends(request: str) -> str:
    """What the handler does at its end: raises, or returns, where it is told to."""
    if request == "raise":
        raise KeyError("my own")
    return request


def _outcomes(
    conninfo: str, repository: str, handled: Handled[str, str], requests: list[str]
) -> list[str]:
    """Returns what these came to, each the code of its failure or its reply."""
    found: list[str] = []
    with (
        serving(conninfo, repository, handled),
        onceq.open(conninfo, repository=repository) as qm,
        qm.clerk("till", RAW, window=10) as clerk,
    ):
        clerk.send_many([(f"{n}", request) for n, request in enumerate(requests)])
        for n, _ in enumerate(requests):
            reply = clerk.receive(rid=f"{n}", timeout_s=LIMIT_S)
            try:
                found.append(reply.value)
            except RequestFailed as error:
                found.append(error.code)
    return found


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", OPENED)
def test_what_a_handler_leaves_open_does_not_hold_its_session(
    conninfo: str, repository: str, name: str, batch: int, *, keeps: bool
) -> None:
    def handle(request: str, context: onceq.Context) -> str:
        if request != "well":
            rows = OPENED[name](context.connection)
            next(rows)
            if keeps or request == "return":
                KEPT.append(rows)
        return _ends(request)

    handled = RAW.handled_by(handle, batch=batch)
    found = _outcomes(conninfo, repository, handled, ["well", "raise", "well", "return", "well"])
    assert found == ["well", "KeyError", "well", "HandlerMisuse", "well"]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", ASYNC_OPENED)
def test_what_an_async_handler_leaves_open_does_not_hold_its_session(
    conninfo: str, repository: str, name: str, *, keeps: bool
) -> None:
    async def handle(request: str, context: onceq.AsyncContext) -> str:
        if request != "well":
            rows = ASYNC_OPENED[name](context.connection)
            await anext(rows)
            if keeps or request == "return":
                KEPT.append(rows)
        return _ends(request)

    handled = RAW.handled_by(handle)
    found = _outcomes(conninfo, repository, handled, ["well", "raise", "well", "return", "well"])
    assert found == ["well", "KeyError", "well", "HandlerMisuse", "well"]
