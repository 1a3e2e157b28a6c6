"""The circuit breaker of a queue: who tells of a pause, and that it ends by itself (Q4, G12)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import onceq
from onceq import telemetry
from tests.cli.parts import Cli
from tests.events import emits
from tests.parts import scalar, serving, wait_until

if TYPE_CHECKING:
    import pytest

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, backoff_max_ms=0, retry_limit=1000)


@emits(telemetry.QueuePaused)
def test_a_queue_pauses_and_goes_on(
    qm: onceq.QueueManager, conninfo: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server says so, once a pause; nobody starts it again; then claims are plain as ever."""
    works = threading.Event()
    calls: list[bytes] = []

    def book(body: bytes, _context: onceq.Context) -> bytes:
        calls.append(body)
        if not works.is_set():
            raise onceq.Retry("the printer does not answer")
        return body

    qm.declare(RAW)
    qm.enqueue(RAW, b"1")
    with caplog.at_level(logging.WARNING), serving(conninfo, qm.repository, RAW.handled_by(book)):
        wait_until(lambda: "queue_paused queue=raw pause_s=2 faults=11" in caplog.text)
        assert "queue_paused queue=raw pause_s=1 faults=10" in caplog.text
        assert len(calls) == 11
        assert caplog.text.count("queue_paused") == 2
        assert qm.show("raw").dequeue_started
        works.set()
        wait_until(lambda: qm.show("raw").depth == 0)
        paused = f"select paused_until from {qm.repository}.queue where name = 'raw'"
        wait_until(lambda: scalar(conninfo, paused) is None)
    assert len(calls) == 12


def test_a_pause_is_shown(qm: onceq.QueueManager, conninfo: str) -> None:
    """By `queue show`, `top`, the metrics and `explain`; `queue start` ends it."""

    def book(_body: bytes, _context: onceq.Context) -> bytes:
        raise onceq.Retry("the printer does not answer")

    cli = Cli(conninfo, qm.repository)
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"1")
    with serving(conninfo, qm.repository, RAW.handled_by(book)):
        wait_until(lambda: qm.show("raw").paused_until is not None)
    forever = f"update {qm.repository}.queue set paused_until = now() + interval '1 hour'"
    scalar(conninfo, forever + " where name = 'raw' returning true")
    assert cli.json("queue", "show", "raw").item["paused_until"] is not None
    assert "paused" in cli("top", "--once").out
    assert [one.paused_until is None for one in qm.load().queues] == [False]
    assert 'onceq_queue_paused{queue="raw"} 1' in qm.metrics().text()
    why = qm.explain(eid=eid).answer
    assert why is not None
    assert why.name == "paused"
    cli("queue", "start", "raw", "--dequeue")
    assert qm.show("raw").paused_until is None
    assert qm.dequeue("raw") is not None
