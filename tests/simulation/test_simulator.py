"""Seeded schedules keep every guarantee, perform every Op, and are hit by every fault."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from onceq.model import admin_ops, ops, spark_ops
from proof.simulator.chances import FAULTS, Coverage
from proof.simulator.simulator import main, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(600)
"""Thousands of schedules are run before the first test: they take their time beside others."""
SCHEDULES = int(os.environ.get("SCHEDULES", "2000"))
BROKEN_MAX = 20
NOT_SIMULATED = {
    **dict.fromkeys(
        [name for name in vars(spark_ops) if name.startswith("Spark")],
        "Spark's claim groups have no reference in memory: tests/spark, the model, torture",
    ),
    **dict.fromkeys(
        ["BeginReply", "SettleReply", "TakeReply"],
        "what a client does with a reply: tests/clerk, tests/crash/test_processing_kills.py",
    ),
    "CloseClient": "no client of a schedule is gone for good: tests/conformance, tests/engine",
    "ForgetClient": "no client of a schedule is gone for good: tests/conformance, tests/engine",
    **dict.fromkeys(
        ["BeginTagged", "KillTagged", "ReadTagged", "TakeTagged"],
        "tags of reads and kills, and in callers' transactions: tests/engine, tests/conformance",
    ),
    **dict.fromkeys(
        ["EidsOf", "Examine", "ListSessions", "MeasureQueues", "UnknownRid"],
        "an operator's questions, of what PostgreSQL alone has: tests/cli",
    ),
    **dict.fromkeys(
        [
            *("AlterPeriodic", "CreatePeriodic", "DueTicks", "HoldTick", "ListPeriodics", "Now"),
            *("PausePeriodic", "RemovePeriodic", "Tick"),
        ],
        "no schedule lasts for a tick: tests/conformance, proof/fault_ticks.py",
    ),
    **dict.fromkeys(
        ["RetryHeld", "GiveUpHeld"],
        "the checker knows no operator who runs anew what was given up: tests/conformance",
    ),
    "SetTerms": "the checker knows one abort limit: tests/conformance, tests/engine/test_terms.py",
    **dict.fromkeys(
        ["DueRetention", "HoldRetention", "RetentionOwners", "RetireHistory"],
        "no schedule lasts for a day: tests/conformance, proof/fault_retention.py",
    ),
    **dict.fromkeys(
        ["OpenScan", "ScanElements", "ScanKeys"],
        "looks, or locks that others skip, among others who work: tests/engine/test_scan.py",
    ),
    "MayTend": "answered at once, without a step: it asks the process, not the queue manager",
    "Stopping": "answered at once, without a step: it asks the process, not the queue manager",
    **dict.fromkeys(
        ["Post", "Posted"],
        "a Send whose answer is read later: test_one_way; a connect finds none, and none is lost",
    ),
    **dict.fromkeys(
        ["NextDue", "StopWaiting"],
        "of a dequeue that waits; the schedules have the receive: tests/server/test_idle.py",
    ),
    **dict.fromkeys(
        ["Wait", "Sleep", "Rouse"],
        "moves the time, or wakes who sleeps, instead of being performed: no fault can hit it",
    ),
}


def defined_ops() -> set[str]:
    found = {
        value.__name__
        for module in (ops, admin_ops, spark_ops)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ops.Op)
    }
    return found - {"Op"}


@dataclass
class Seen:
    """What all schedules have come to."""

    broken: list[str] = field(default_factory=list[str])
    faults: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    per_s: float = 0.0


@pytest.fixture(scope="module")
def seen() -> Seen:
    found = Seen()
    began = time.process_time()
    for seed in range(SCHEDULES):
        result = simulate(seed)
        found.faults += len(result.faults)
        found.coverage.add(result.coverage)
        found.broken += [f"seed {seed}: {violation}" for violation in result.violations]
        if len(found.broken) >= BROKEN_MAX:
            break
    found.per_s = SCHEDULES / (time.process_time() - began)
    return found


def test_every_schedule_keeps_every_guarantee(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{SCHEDULES} schedules, {seen.per_s:.0f} a second of processor time\n")
    replay = "replay: python -m proof.simulator.simulator --shrink --seed N"
    assert not seen.broken, "\n".join([*seen.broken, replay])
    assert seen.faults > SCHEDULES


def test_every_op_is_simulated_and_every_fault_hits(seen: Seen) -> None:
    """Takes some 1200 schedules."""
    assert sorted(defined_ops() - seen.coverage.ops.keys() - NOT_SIMULATED.keys()) == []
    assert sorted(NOT_SIMULATED.keys() & seen.coverage.ops.keys()) == []
    assert {fault for _, fault in seen.coverage.hits} == set(FAULTS)


def test_what_could_have_been_hit_and_was_not_is_missing() -> None:
    coverage = simulate(1).coverage
    offered = {(one.op, fault) for one in coverage.offers for fault in one.faults}
    assert set(coverage.missing()) == offered - coverage.hits.keys()
    assert coverage.missing()


def test_time_is_virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[object] = []
    here = threading.current_thread()

    def noting(wait: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is here:  # Spark leaves threads of its own that sleep
                slept.append(given)
            return wait(*given, **named)

        return waits

    monkeypatch.setattr(time, "sleep", noting(time.sleep))
    monkeypatch.setattr(threading.Event, "wait", noting(threading.Event.wait))
    for seed in range(40):
        assert simulate(seed).violations == []
        assert slept == []


def test_a_seed_is_one_schedule() -> None:
    assert [simulate(7), simulate(8)] == [simulate(7), simulate(8)]


def test_a_replay_says_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert "Connect(" in said
    assert "1 schedules" in said


def test_many_schedules_are_counted() -> None:
    assert main(["--schedules", "3"]) == 0
