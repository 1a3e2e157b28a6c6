"""`Retry`, its wait and its bound; the attempts of a request: one number, wherever it is told."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.cli.requests import as_row
from onceq.errors import InvalidValue, RequestFailed
from onceq.history import check
from onceq.history.events import Aborted, Executed
from proof.harness.ledger import final_state, make_ledger
from tests.parts import rows, serving, wait_until

if TYPE_CHECKING:
    from onceq.history.events import Event

WAIT_S = 60


def test_faults_for_ever_end_alone_and_charged(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Uncharged ten times, then the element runs alone, and is charged: nothing runs for ever."""
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=2, backoff_ms=0)
    calls: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        calls.append(context.rid)
        if request == b"bad":
            raise onceq.Retry("again and again")
        return request

    with (
        serving(conninfo, repository, queue.handled_by(handle), concurrency=2),
        qm.clerk("till", queue) as clerk,
    ):
        reply = clerk.transceive("1", b"bad", timeout_s=60)
    assert (reply.code, reply.attempts) == ("Retry", 2)
    assert len(calls) == 10 + 1 + 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_retry_says_how_long_to_wait_and_costs_no_attempt(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    """The queue's back-off is an hour; what `Retry` says counts; others are served meanwhile."""
    queue = onceq.Queue("raw", bytes, bytes, backoff_ms=3_600_000, backoff_max_ms=3_600_000)
    calls: list[tuple[str, int, float]] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        calls.append((context.rid, context.attempt, time.monotonic()))
        if request == b"busy" and len(calls) == 1:
            raise onceq.Retry("it is busy", after_s=0.5)
        return request

    async def handle_async(request: bytes, context: Any) -> bytes:
        return handle(request, context)

    handler: Any = {"sync": handle, "async": handle_async}[kind]
    with serving(conninfo, repository, queue.handled_by(handler)), qm.clerk("c", queue) as clerk:
        clerk.send("1", b"busy", priority=9)
        wait_until(lambda: bool(calls))
        qm.enqueue(queue, b"other", rid="2")
        reply = clerk.receive(timeout_s=WAIT_S)
        (attempt,) = qm.attempts(qm.lookup("1", state="finished")[0].eid)
    assert [(rid, number) for rid, number, _ in calls] == [("1", 1), ("2", 1), ("1", 1)]
    assert calls[2][2] - calls[0][2] >= 0.5
    assert (reply.value, reply.attempts) == (b"busy", 1)
    assert (attempt.code, attempt.error, attempt.counts) == ("Retry", "it is busy", False)


def test_the_queue_says_how_often_a_retry_is_free(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=1, retry_limit=2, backoff_ms=0)
    calls: list[int] = []

    def handle(_: bytes, context: onceq.Context) -> bytes:
        calls.append(context.attempt)
        raise onceq.Retry("never")

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("c", queue) as clerk:
        assert qm.show("raw").settings.retry_limit == 2
        reply = clerk.transceive("1", b"x", timeout_s=WAIT_S)
        told = qm.attempts(qm.lookup("1", state="held")[0].eid)
    assert (reply.code, reply.attempts, calls) == ("Retry", 1, [1] * 4)
    assert [one.counts for one in told] == [False] * 3 + [True]


@pytest.mark.parametrize("limit", [2, 12])
def test_the_checker_judges_by_the_queues_own_retry_limit(
    qm: onceq.QueueManager, conninfo: str, repository: str, limit: int
) -> None:
    queue = onceq.Queue("raw", bytes, bytes, abort_limit=1, retry_limit=limit, backoff_ms=0)
    make_ledger(conninfo, repository)
    events: list[Event] = []

    def handle(_: bytes, context: onceq.Context) -> bytes:
        events.append(Executed(rid=context.rid, eid=str(context.eid), actor="server"))
        raise onceq.Retry("never")

    with serving(conninfo, repository, queue.handled_by(handle)), qm.clerk("c", queue) as clerk:
        clerk.transceive("1", b"x", timeout_s=WAIT_S)
        eid = qm.lookup("1", state="held")[0].eid
        events += [
            Aborted(rid="1", eid=str(eid), code=str(one.code), excused=not one.counts)
            for one in qm.attempts(eid)
        ]
    final = replace(final_state(conninfo, repository, 1), retry_limit=limit)
    assert check(events, final) == []
    found = check(events, replace(final, retry_limit=limit - 1))
    assert [(one.guarantee, one.rid) for one in found] == [("G7", "1")]
    assert f"tried again {limit + 1} times and not charged" in found[0].text


@pytest.mark.parametrize("after_s", ["5", True, float("nan"), b"5"])
def test_a_wait_that_is_no_number_is_refused(after_s: Any) -> None:
    with pytest.raises(InvalidValue, match=r"Retry\(after_s=\) is a number of seconds, not"):
        onceq.Retry("later", after_s=after_s)


def test_a_wait_is_between_none_and_a_year() -> None:
    assert [onceq.Retry(after_s=s).after_s for s in (-1, 0, 2, float("inf"))] == [0, 0, 2, 31536000]
    assert onceq.Retry("later").after_s is None


# --- attempts -----------------------------------------------------------------------------------

COUNTED: dict[str, tuple[list[int], int, str]] = {
    "done": ([1], 1, "done"),
    "retry, done": ([1, 1], 1, "done"),
    "retry, raise, raise, done": ([1, 1, 2, 3], 3, "done"),
    "raise, raise, raise": ([1, 2, 3], 3, "failed"),
    "raise, retry, raise, raise": ([1, 2, 2, 3], 3, "failed"),
    "reject": ([1], 1, "failed"),
    "raise, reject": ([1, 2], 2, "failed"),
}
"""What the executions of a request do: the attempt of each, how many count, and how it ends."""


@pytest.mark.parametrize("script", COUNTED)
def test_attempts_are_one_number_wherever_they_are_told(
    qm: onceq.QueueManager, conninfo: str, repository: str, script: str
) -> None:
    numbers, counted, outcome = COUNTED[script]
    queue = onceq.Queue("plays", str, str, abort_limit=3, backoff_ms=0)
    seen: list[int] = []

    def play(request: str, context: onceq.Context) -> str:
        seen.append(context.attempt)
        match request.split(", ")[len(seen) - 1]:
            case "retry":
                raise onceq.Retry("later")
            case "raise":
                raise LookupError("no")
            case "reject":
                raise onceq.Reject("never")
            case _:
                return request

    with serving(conninfo, repository, queue.handled_by(play)), qm.clerk("c", queue) as clerk:
        reply = clerk.transceive("1", script, timeout_s=WAIT_S)
        whereabouts = clerk.where()
    (old,) = qm.find(rid="1")
    states = qm.lookup("1")
    assert whereabouts is not None
    assert reply.outcome.value == outcome
    assert seen == numbers
    told = {
        "reply": [reply.attempts],
        "where": [whereabouts.attempts],
        "find": [old.attempts],
        "lookup": [one.attempts for one in states],
        "cli": [as_row(one)["attempts"] for one in states],
        "view": [n for (n,) in rows(conninfo, f"select attempts from {repository}.requests")],
        "attempts": [sum(one.counts for one in qm.attempts(old.eid)) + (outcome == "done")],
    }
    assert {name: set(found) for name, found in told.items()} == {name: {counted} for name in told}
    if outcome == "failed":
        with pytest.raises(RequestFailed, match=rf"after {counted} attempt\(s\)") as failed:
            _ = reply.value
        assert failed.value.attempts == counted


def test_what_never_ran_has_no_attempt(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    queue = onceq.Queue("plays", str, str)
    qm.declare(queue)
    with qm.clerk("c", queue) as clerk:
        clerk.send("1", "x")
        clerk.cancel_last_request()
        assert clerk.receive(timeout_s=WAIT_S).attempts == 0
    assert {one.attempts for one in qm.lookup("1")} == {0}
    assert rows(conninfo, f"select distinct attempts from {repository}.requests") == [(0,)]
