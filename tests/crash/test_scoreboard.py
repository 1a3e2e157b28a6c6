"""The kill scoreboard (reliability.md): kill -9 of server processes at moments of work.

Default settings, any SQL in the handler, no lease, no recovery service.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import onceq
from onceq.errors import RequestFailed
from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.ledger import Order
from proof.harness.orders import recorded
from tests.crash.parts import assert_history, kill_at_work, report
from tests.parts import rows, scalar

KILLS = 11
EACH = 5
"""So many requests are made at first, and so many more for each kill."""
REQUESTS = EACH * (1 + KILLS)
WORK_MS = 30
SEED = int(os.environ.get("SEED", "1"))


def test_60_requests_and_11_kills(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    report(f"SEED={SEED}")
    files = Path(settings.files)
    queue = order_queue({})
    qm.declare(queue)
    began = time.monotonic()
    left = [(f"r{n}", Order(ms=WORK_MS)) for n in range(REQUESTS)]
    with (
        recorded(qm, "till", queue, files, window=REQUESTS) as clerk,
        Fleet(settings, size=2) as fleet,
    ):

        def send() -> None:
            clerk.send_many([left.pop(0) for _ in range(EACH)])

        send()
        kill_at_work(fleet, KILLS, WORK_MS, random.Random(SEED), send)
        assert not left
        fleet.wait(lambda: fleet.deaths >= KILLS)
        fleet.wait(lambda: qm.show("orders").depth == 0)
        replies = [clerk.receive() for _ in range(REQUESTS)]
        clerk.satisfied()
        assert_history(fleet, conninfo)
        deaths = fleet.deaths
    booked = Counter(rid for (rid,) in rows(conninfo, f"select rid from {qm.repository}.effects"))
    report(f"{KILLS} kills, {len(booked)} booked, {sum(booked.values()) - len(booked)} twice,")
    report(f"{time.monotonic() - began:.1f} s")
    assert {reply.value.rid for reply in replies} == {f"r{n}" for n in range(REQUESTS)}
    assert booked == dict.fromkeys((f"r{n}" for n in range(REQUESTS)), 1)
    assert deaths == KILLS


def test_a_poison_is_executed_to_the_limit_and_the_server_lives_on(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    queue = order_queue({})
    qm.declare(queue)
    files = Path(settings.files)
    with (
        recorded(qm, "evil", queue, files) as evil,
        recorded(qm, "good", queue, files, window=10) as good,
        Fleet(settings) as fleet,
    ):
        evil.send_many([("poison", Order("poison"))])
        good.send_many([(f"before {n}", Order()) for n in range(3)])
        fleet.wait(lambda: qm.show("orders.error").held == 1)
        good.send_many([(f"after {n}", Order()) for n in range(3)])
        fleet.wait(lambda: qm.show("orders").depth == 0)
        reply = evil.receive()
        with pytest.raises(RequestFailed, match="server_died") as failed:
            assert reply.value is None
        assert [good.receive().outcome.value for _ in range(6)] == ["done"] * 6
        evil.satisfied()
        good.satisfied()
        assert len(fleet.executions("poison")) == 5
        assert fleet.deaths == 5
        assert_history(fleet, conninfo)
    assert failed.value.attempts == 5
    assert scalar(conninfo, f"select count(*) from {qm.repository}.effects") == 6
    assert {one.state for one in qm.lookup("poison")} == {"held", "finished", "replied"}


def test_innocents_beside_a_poison_do_not_fail(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    """Several sessions in the one process that dies: nobody knows which request killed it."""
    queue = order_queue({})
    qm.declare(queue)
    files = Path(settings.files)
    several = msgspec.structs.replace(settings, concurrency=4)
    with (
        recorded(qm, "evil", queue, files) as evil,
        recorded(qm, "good", queue, files, window=30) as good,
        Fleet(several) as fleet,
    ):
        good.send_many([(f"a{n}", Order(ms=WORK_MS)) for n in range(10)])
        evil.send_many([("poison", Order("poison", ms=WORK_MS))])
        good.send_many([(f"b{n}", Order(ms=WORK_MS)) for n in range(20)])
        fleet.wait(lambda: qm.show("orders").depth == 0)
        assert evil.receive().outcome is onceq.RequestOutcome.FAILED
        assert {good.receive().outcome for _ in range(30)} == {onceq.RequestOutcome.DONE}
        good.satisfied()
        executions = len(fleet.executions("poison"))
        assert_history(fleet, conninfo)
    report(f"the poison was executed {executions} times")
    assert 5 <= executions <= 8  # a death beside others convicts nobody: then alone
    assert scalar(conninfo, f"select max(aborts) from {qm.repository}.history") == 5
    assert scalar(conninfo, f"select count(*) from {qm.repository}.effects") == 30
