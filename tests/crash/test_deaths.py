"""What a server that dies, stops or freezes leaves behind, and how soon it is taken over."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

import onceq
from proof.harness.fleet import NOT_DRAINED, Fleet, Settings, order_queue, pid_of
from proof.harness.ledger import Order
from proof.harness.orders import recorded
from tests.crash.parts import assert_history, milliseconds_since, now_ns, report
from tests.parts import LIMIT_S, rows, scalar

TAKEN_OVER_MS = 2_000
"""With no lease, a takeover takes milliseconds; this much is for a machine that is busy."""


def wait_alive(fleet: Fleet, conninfo: str, count: int) -> None:
    query = f"select count(*) from {fleet.settings.repository}.servers where alive"
    fleet.wait(lambda: scalar(conninfo, query) == count)


def stopped(fleet: Fleet) -> int | None:
    """Stops the first server as a supervisor does; how it ended."""
    fleet.processes[0].terminate()
    fleet.processes[0].join(LIMIT_S)
    return fleet.processes[0].exitcode


def test_a_takeover_needs_no_lease(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    settings = msgspec.structs.replace(settings, queue={"backoff_ms": 0})
    queue = order_queue(settings.queue)
    qm.declare(queue)
    taken_ms: list[float] = []
    with (
        recorded(qm, "till", queue, Path(settings.files)) as clerk,
        Fleet(settings, size=2) as fleet,
    ):
        wait_alive(fleet, conninfo, 2)
        clerk.send_many([("held", Order("hold"))])
        for death in range(3):
            holder = fleet.wait_executions(death + 1, "held")[-1]
            wait_alive(fleet, conninfo, 2)
            at = now_ns()
            fleet.kill(pid_of(holder))
            again = fleet.wait_executions(death + 2, "held")[-1]
            taken_ms.append(milliseconds_since(again, at))
        fleet.release()
        assert clerk.receive().value.pid == pid_of(fleet.executions("held")[-1])
        clerk.satisfied()
        assert_history(fleet, conninfo)
    report(f"taken over after {', '.join(f'{ms:.0f}' for ms in taken_ms)} ms")
    assert min(taken_ms) < TAKEN_OVER_MS


def test_a_frozen_server_is_bounded_by_the_execution_limit(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    settings = msgspec.structs.replace(settings, queue={"execution_limit_s": 1, "backoff_ms": 0})
    queue = order_queue(settings.queue)
    qm.declare(queue)
    with (
        recorded(qm, "till", queue, Path(settings.files)) as clerk,
        Fleet(settings, size=2) as fleet,
    ):
        wait_alive(fleet, conninfo, 2)
        clerk.send_many([("held", Order("hold"))])
        frozen = pid_of(fleet.wait_executions(1, "held")[0])
        at = now_ns()
        os.kill(frozen, signal.SIGSTOP)
        try:
            again = fleet.wait_executions(2, "held")[1]
            waited_ms = milliseconds_since(again, at)
            fleet.release()
            assert clerk.receive().value.pid == pid_of(again) != frozen
        finally:
            os.kill(frozen, signal.SIGCONT)
        wait_alive(fleet, conninfo, 2)  # it has connected again, and serves on
        for process in fleet.processes:
            if process.pid != frozen:
                os.kill(process.pid or 0, signal.SIGSTOP)
        clerk.send_many([("next", Order())])
        assert clerk.receive().value.pid == frozen
        clerk.satisfied()
        assert_history(fleet, conninfo)
        assert fleet.deaths == 0
    report(f"a frozen server was taken over after {waited_ms:.0f} ms")
    assert 900 < waited_ms < 10_000


def test_a_graceful_stop_under_load_loses_and_charges_nothing(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    settings = msgspec.structs.replace(settings, concurrency=3)
    queue = order_queue({})
    qm.declare(queue)
    with (
        recorded(qm, "till", queue, Path(settings.files), window=100) as clerk,
        Fleet(settings) as fleet,
    ):
        clerk.send_many([(f"r{n}", Order(ms=10)) for n in range(100)])
        for stop in range(3):
            fleet.wait_executions(12 * (stop + 1))
            assert stopped(fleet) == 0
            query = f"select count(*) from {qm.repository}.element where claimed_by is not null"
            assert scalar(conninfo, query) == 0
        assert {clerk_outcome(clerk.receive, fleet) for _ in range(100)} == {"done"}
        clerk.satisfied()
        assert_history(fleet, conninfo)
        assert len(fleet.executions()) == 100  # what had begun was finished
        assert fleet.deaths == 3
    assert rows(conninfo, f"select max(aborts), count(*) from {qm.repository}.history") == [
        (0, 100)
    ]


def clerk_outcome(receive: object, fleet: Fleet) -> str:
    fleet.tend()
    assert callable(receive)
    reply = receive()
    assert isinstance(reply, onceq.Reply)
    return reply.outcome.value


def test_at_its_deadline_a_stop_revokes_what_runs(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    settings = msgspec.structs.replace(settings, stop_timeout_s=0.3, concurrency=2)
    queue = order_queue({})
    qm.declare(queue)
    with (
        recorded(qm, "till", queue, Path(settings.files)) as clerk,
        Fleet(settings) as fleet,
    ):
        clerk.send_many([("held", Order("hold"))])
        fleet.wait_executions(1, "held")
        began = time.monotonic()
        assert stopped(fleet) == NOT_DRAINED
        assert time.monotonic() - began < 10
        again = fleet.wait_executions(2, "held")[1]
        fleet.release()
        assert clerk.receive().value.pid == pid_of(again)
        clerk.satisfied()
        assert_history(fleet, conninfo)
    assert rows(conninfo, f"select max(aborts), count(*) from {qm.repository}.history") == [(0, 1)]
    assert scalar(conninfo, f"select count(*) from {qm.repository}.effects") == 1


@pytest.mark.parametrize("kind", ["book", "hold"])
def test_a_terminated_session_charges_nobody(
    settings: Settings, conninfo: str, qm: onceq.QueueManager, kind: str
) -> None:
    """A connection that breaks is the environment's fault, idle or in the middle of a request."""
    queue = order_queue({})
    qm.declare(queue)
    terminate = (
        f"select count(pg_terminate_backend(backend_pid)) from {qm.repository}.servers where alive"
    )
    with (
        recorded(qm, "till", queue, Path(settings.files)) as clerk,
        Fleet(settings) as fleet,
    ):
        for n in range(3):
            wait_alive(fleet, conninfo, 1)  # the session before it has ended, too
            if kind == "book":
                assert scalar(conninfo, terminate) == 1
                clerk.send_many([(f"r{n}", Order())])
            else:
                (Path(settings.files) / "release").unlink(missing_ok=True)
                clerk.send_many([(f"r{n}", Order("hold"))])
                fleet.wait_executions(1, f"r{n}")
                assert scalar(conninfo, terminate) == 1
                fleet.release()
            assert clerk.receive().outcome.value == "done"
        clerk.satisfied()
        assert_history(fleet, conninfo)
        assert fleet.deaths == 0
    assert rows(conninfo, f"select max(aborts), count(*) from {qm.repository}.history") == [(0, 3)]
