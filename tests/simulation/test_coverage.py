"""Every Op of the product is performed in simulations, and every fault hits."""

from __future__ import annotations

from onceq.model import admin_ops, ops, spark_ops
from onceq.testing.misfortune import FAULTS, Coverage
from onceq.testing.simulator import simulate

SEEDS = 1200
NOT_SIMULATED = {
    **dict.fromkeys(
        [name for name in vars(spark_ops) if name.startswith("Spark")],
        "Spark's claim groups have no reference in memory: tests/spark, the model, torture",
    ),
    **dict.fromkeys(
        ["Act", "BeginReply", "SettleReply", "TakeReply"],
        "what a client does with a reply: tests/clerk, tests/crash/test_processing_kills.py",
    ),
    **dict.fromkeys(
        ["BeginWork", "Identify"], "a client's ledger: tests/clerk, the part clients of the proof"
    ),
    **dict.fromkeys(
        ["FindRequests", "ListAttempts"], "they only read what is past: tests/conformance"
    ),
    "Stopping": "answered at once, without a step: it asks the process, not the queue manager",
    **dict.fromkeys(["Post", "Posted"], "a Send whose answer is read later: test_one_way"),
    "Wait": "moves the time instead of being performed: no fault can hit it",
}


def defined_ops() -> set[str]:
    found = {
        value.__name__
        for module in (ops, admin_ops, spark_ops)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ops.Op)
    }
    return found - {"Op"}


def test_every_op_is_simulated_and_every_fault_hits() -> None:
    coverage = Coverage()
    for seed in range(SEEDS):
        coverage.add(simulate(seed).coverage)
    assert sorted(defined_ops() - coverage.ops.keys() - NOT_SIMULATED.keys()) == []
    assert sorted(NOT_SIMULATED.keys() & coverage.ops.keys()) == []
    assert {fault for _, fault in coverage.hits} == set(FAULTS)


def test_what_could_have_been_hit_and_was_not_is_missing() -> None:
    coverage = simulate(1).coverage
    offered = {(one.op, fault) for one in coverage.offers for fault in one.faults}
    assert set(coverage.missing()) == offered - coverage.hits.keys()
    assert coverage.missing()
