"""What a handler may raise, and what a request may hold, without ending its server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq.errors import EnvironmentFault
from onceq.model import ops
from onceq.server import program
from tests.parts import LIMIT_S, driving, scalar, serving

if TYPE_CHECKING:
    from onceq.clerk.session import Reply

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=2, backoff_ms=1)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Picky(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        raise KeyError("not a ValueError")


def raising(error: Exception) -> Any:
    def handler(_request: Any, _context: onceq.Context) -> bytes:
        raise error

    return handler


async def cancels_its_own(_request: bytes, _context: onceq.AsyncContext) -> bytes:
    inner = asyncio.create_task(asyncio.sleep(LIMIT_S))
    inner.cancel()
    await inner
    return b""


def reply_of(
    qm: onceq.QueueManager, conninfo: str, repository: str, handler: Any, **queue: Any
) -> Reply[bytes]:
    """Returns the reply to one request; the server is then stopped, and must not have ended."""
    qm.declare(RAW)
    served = onceq.Queue("raw", queue.get("kind", bytes), bytes, abort_limit=2, backoff_ms=1)
    with (
        serving(conninfo, repository, served.handled_by(handler)),
        qm.clerk("client", RAW) as clerk,
    ):
        return clerk.transceive("1", queue.get("body", b""), timeout_s=LIMIT_S)


@pytest.mark.parametrize(
    ("handler", "code", "text"),
    [
        (raising(ValueError("a \x00 in it")), "ValueError", "a \\0 in it"),
        (raising(ValueError("a \udcff in it")), "ValueError", "a \\udcff in it"),
        (raising(Unprintable()), "Unprintable", "its text cannot be had: RuntimeError"),
        (cancels_its_own, "CancelledError", ""),
    ],
)
def test_whatever_a_handler_raises_is_charged_and_recorded(
    qm: onceq.QueueManager, conninfo: str, repository: str, handler: Any, code: str, text: str
) -> None:
    reply = reply_of(qm, conninfo, repository, handler)
    assert (reply.code, reply.text, reply.attempts) == (code, text, 2)


@pytest.mark.parametrize(
    ("kind", "body", "code", "attempts"),
    [
        (dict[str, Any], b'{"a":' + b"[" * 200_000, "InvalidValue", 1),
        (Picky, b'{"number":1}', "KeyError", 2),
    ],
)
def test_a_request_that_breaks_its_decoder_fails(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    kind: type[Any],
    body: bytes,
    code: str,
    attempts: int,
) -> None:
    handler = raising(AssertionError("never called"))
    reply = reply_of(qm, conninfo, repository, handler, kind=kind, body=body)
    assert (reply.code, reply.attempts) == (code, attempts)


def test_a_fault_met_by_onceq_in_a_handler_is_not_charged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    executions: list[int] = []

    def handler(_request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.attempt)
        if len(executions) <= RAW.settings.abort_limit:
            raise EnvironmentFault("deadlock detected", "40P01")
        return b"done"

    assert reply_of(qm, conninfo, repository, handler).value == b"done"
    assert executions == [1, 1, 1]


def test_counters_never_outgrow_the_integers_that_carry_them(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    scalar(conninfo, f"select setval('{repository}.incarnation_seq', 3000000000)")
    queue_id = qm.show("raw").queue_id
    with driving(conninfo, repository) as driver:
        last = ops.Claim(incarnation=1, queue_id=queue_id, n=0, turn=program.TURNS, alone=True)
        assert driver.perform(last) == []
    element = qm.dequeue("raw")
    assert element is not None
    assert element.body == b"x"
