"""The traceback of a handler: where it failed is kept with the attempt, without frames of onceq."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import telemetry
from onceq.server.traces import TRACEBACK_BYTES_MAX, cut
from tests.events import emits
from tests.parts import LIMIT_S, rows, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.events import Events

RAW = onceq.Queue("raw", str, str, abort_limit=1, backoff_ms=1)
NUMBERS = onceq.Queue("numbers", int, int, abort_limit=1)
DEEP = 10**6


def lookup(_: Any) -> None:
    try:
        find("4711")
    except KeyError as error:
        raise ValueError("no such order") from error


def find(number: str) -> None:
    raise KeyError(number)


def reject(_: Any) -> None:
    raise onceq.Reject("not today")


def misuse(context: Any) -> None:
    context.connection.commit()


def odd(_: Any) -> None:
    raise ValueError("nul \0 surrogate \udc80")


def long(_: Any) -> None:
    raise ValueError("é" * 40_000)


def several(_: Any) -> None:
    raise ExceptionGroup("two", [ValueError("one"), KeyError("other")])


def recursion(context: Any) -> None:
    recursion(context)


def sql(context: Any) -> None:
    context.connection.execute("select 1 / 0")


FAILURES: dict[str, Callable[[Any], None]] = {
    one.__name__: one for one in (lookup, reject, misuse, odd, long, several, recursion, sql)
}
EXPECTED = {
    "lookup": ("KeyError: '4711'", "direct cause", "in find", "ValueError: no such order"),
    "reject": ("in reject", 'raise onceq.Reject("not today")', "Reject: not today"),
    "misuse": ("in misuse", "context.connection.commit()", "HandlerMisuse"),
    "odd": ("ValueError: nul \\0 surrogate \\udc80",),
    "long": ("in long", "bytes are left out here", "éééé"),
    "several": ("ExceptionGroup: two (2 sub-exceptions)", "ValueError: one", "KeyError: 'other'"),
    "recursion": ("recursion(context)", "more times", "RecursionError"),
    "sql": ("DivisionByZero", "division by zero"),
}


def handle(request: str, context: onceq.Context) -> str:
    """Fails as the request says."""
    FAILURES[request](context)
    return request


async def handle_async(request: str, context: onceq.AsyncContext) -> str:
    """The same; a statement is awaited."""
    if request == "sql":
        await context.connection.execute("select 1 / 0")
    FAILURES[request](context)
    return request


HANDLERS: dict[str, Any] = {
    "sync": RAW.handled_by(handle),
    "batch": RAW.handled_by(handle, batch=8),
    "async": RAW.handled_by(handle_async),
}


def check_kept(name: str, kept: str | None) -> None:
    """Fails unless a traceback says what it must, and nothing of onceq."""
    assert kept is not None, name
    for text in ("Traceback (most recent call last):", "test_traces.py", *EXPECTED[name]):
        assert text in kept, kept
    assert "/onceq/server/" not in kept
    assert "/onceq/engine/" not in kept
    assert len(kept.encode()) <= TRACEBACK_BYTES_MAX


@pytest.mark.parametrize("kind", HANDLERS)
def test_each_failure_leaves_its_traceback(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    with (
        serving(conninfo, repository, HANDLERS[kind]),
        qm.clerk("till", RAW, window=len(EXPECTED)) as clerk,
    ):
        sent = clerk.send_many([(name, name) for name in EXPECTED])
        for name, one in zip(EXPECTED, sent, strict=True):
            reply = clerk.receive(rid=name, timeout_s=LIMIT_S)
            assert reply.outcome is onceq.RequestOutcome.FAILED
            (attempt,) = qm.attempts(one.eid)
            check_kept(name, attempt.traceback)
    told = rows(conninfo, f"select error, body from {repository}.element")
    told += rows(conninfo, f"select error, reply from {repository}.history")
    assert len(told) >= 2 * len(EXPECTED)
    assert "Traceback" not in str(told)  # it never travels to the client


def test_what_cannot_be_decoded_leaves_none(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """No handler was running: the text of the failure says it all."""
    with serving(conninfo, repository, NUMBERS.handled_by(lambda request, _: request)):
        eid = qm.enqueue(onceq.Queue("numbers", bytes, int), b"no number")
        wait_until(lambda: bool(qm.attempts(eid)))
    (attempt,) = qm.attempts(eid)
    assert (attempt.code, attempt.traceback) == ("InvalidValue", None)


class Secretive(msgspec.Struct):
    """A type whose own decoding fails, and quotes what it was given."""

    card: str

    def __post_init__(self) -> None:
        raise LookupError(self.card)


@emits(telemetry.Aborted)
def test_what_a_type_raises_while_it_is_decoded_is_kept_and_not_logged(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    """No handler has chosen these words: they may quote the request."""
    cards = onceq.Queue("cards", Secretive, type(None), abort_limit=1)
    with serving(conninfo, repository, cards.handled_by(lambda _, __: None)):
        eid = qm.enqueue(onceq.Queue("cards", dict, type(None)), {"card": "4000"})
        events.wait_for(telemetry.Aborted, eid=eid)
    (attempt,) = qm.attempts(eid)
    assert attempt.traceback is not None
    assert "LookupError: 4000" in attempt.traceback
    assert "'4000'" not in str(events.all)
    assert "LookupError: 4000" not in str(events.all)


@pytest.mark.parametrize(
    "text", ["a" * 20_000, "é" * 20_000, "line\n" * 9_000, "x\n" + "y" * 50_000]
)
def test_a_long_one_is_cut_in_its_middle(text: str) -> None:
    kept = cut(text)
    assert len(kept.encode()) <= TRACEBACK_BYTES_MAX
    head, gap, tail = kept.partition("\n  ... ")
    assert text.startswith(head)
    assert text.endswith(tail.partition(" ...\n")[2])
    assert gap
    assert len(kept) > len(head) + len(tail.partition("\n")[2])
    assert cut("short") == "short"
