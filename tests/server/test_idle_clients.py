"""Clients that wait cost next to nothing, statements counted; each is told in time (G12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import onceq
from onceq.engine.wake.waiting import LONGEST_RUNG_S
from onceq.errors import ReceiveTimeout
from onceq.model import ops
from onceq.model.element import RequestOutcome
from tests.parts import LIMIT_S, Background, scalar, serving, wait_until
from tests.server.quiet import count_for, counted, let_nobody_look

RAW = onceq.Queue("raw", bytes, bytes)
PER_SECOND_MAX = 2.0


def echo(request: bytes, _: onceq.Context) -> bytes:
    return request


def test_a_clerk_that_waits_makes_two_statements_a_second_at_most(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        with pytest.raises(ReceiveTimeout):
            clerk.receive(timeout_s=1.0)
        with counted(monkeypatch) as statements:
            waiting = Background(partial(clerk.receive, timeout_s=LIMIT_S))
            wait_until(lambda: statements["Receive"] >= 5)  # it looks ever more seldom
            made, took_s = count_for(2 * LONGEST_RUNG_S, statements)
        with serving(conninfo, repository, RAW.handled_by(echo)):
            assert waiting.result().value == b"x"
    assert made.total() <= PER_SECOND_MAX * took_s
    assert made.total() <= took_s / LONGEST_RUNG_S + 1


def test_a_request_that_nobody_serves_expires_at_its_moment(
    qm: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_nobody_look(monkeypatch, "reply", "receive")
    qm.declare(RAW)
    with qm.clerk("till", RAW) as clerk:
        due = datetime.now(UTC) + timedelta(seconds=1.2)
        clerk.send("1", b"x", expires_at=due)
        reply = clerk.receive(timeout_s=LIMIT_S)
        late_s = (datetime.now(UTC) - due).total_seconds()
    assert reply.outcome is RequestOutcome.EXPIRED
    assert late_s >= 0


# --- those who dequeue ----------------------------------------------------------------------------


def test_a_dequeue_that_waits_makes_two_statements_a_second_at_most_and_is_rung(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.declare(RAW)
    with counted(monkeypatch) as statements:
        waiting = Background(partial(qm.dequeue, "raw", timeout_s=LIMIT_S))
        wait_until(lambda: statements["Dequeue"] >= 6)  # it looks ever more seldom
        made, took_s = count_for(2 * LONGEST_RUNG_S, statements)
        assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 1
        assert let_nobody_look(monkeypatch, "dequeue").wait(LIMIT_S)
        with onceq.open(conninfo, repository=repository) as other:
            eid = other.enqueue(RAW, b"x")
        found = waiting.result()
    assert found is not None
    assert found.eid == eid, "by its ring: nobody looks by then"
    assert made.total() <= PER_SECOND_MAX * took_s
    assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 0


def test_whoever_gave_up_is_rung_no_more(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    assert qm.dequeue("raw", timeout_s=0.1) is None
    assert scalar(conninfo, f"select count(*) from {repository}.dequeuer") == 0
    held = "select count(*) from pg_locks where locktype = 'advisory' and classid = %s::regclass"
    assert scalar(conninfo, held, f"{repository}.element_ready") == 0


def test_a_dequeuer_that_died_is_not_rung_for_another(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with onceq.open(conninfo, repository=repository) as dead, dead._link.borrowed() as link:
        assert link.perform(ops.Dequeue(queue="raw", sleep=True)) is None
        link.close()
    known = f"select array_agg(backend_pid) from {repository}.dequeuer"
    (dead_pid,) = scalar(conninfo, known)
    with onceq.open(conninfo, repository=repository) as other:
        waiting = Background(partial(other.dequeue, "raw", timeout_s=LIMIT_S))
        wait_until(lambda: dead_pid not in scalar(conninfo, known))  # another is there instead
        qm.enqueue(RAW, b"x")
        assert waiting.result() is not None
    assert scalar(conninfo, known) is None


def test_what_becomes_due_is_dequeued_at_its_moment(
    qm: onceq.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_nobody_look(monkeypatch, "dequeue")
    qm.declare(RAW)
    due = datetime.now(UTC) + timedelta(seconds=1.0)
    qm.enqueue(RAW, b"x", not_before=due)
    assert qm.dequeue("raw", timeout_s=LIMIT_S) is not None
    assert datetime.now(UTC) >= due
