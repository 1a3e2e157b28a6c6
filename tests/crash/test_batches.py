"""Kill -9 of servers at every step of a chained claim, alone and in batches (spec S3, G2, G7)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.ledger import Order
from proof.harness.orders import recorded
from tests.crash.parts import assert_history
from tests.parts import rows, scalar

if TYPE_CHECKING:
    import onceq

REQUESTS = 12
BATCH = 5
STEPS = ("Begin", "Call", "Finish", "Commit")
"""Fault points. Before `Commit`: finished, and the next claimed, and nothing committed. After
`Finish`: all of it committed, and the next not begun."""


POINTS = [
    (batch, step, when) for batch in (1, BATCH) for step in STEPS for when in ("before", "after")
]


@pytest.mark.parametrize(("batch", "step", "when"), POINTS)
def test_a_server_killed_at_every_step_of_a_chained_claim(
    settings: Settings, conninfo: str, qm: onceq.QueueManager, batch: int, step: str, when: str
) -> None:
    point = f"{step}.{when} {3 if step == 'Call' else 2}"
    settings = msgspec.structs.replace(
        settings, queue={"backoff_ms": 0}, batch=batch, dies_at=point
    )
    queue = order_queue(settings.queue)
    qm.declare(queue)
    with recorded(qm, "till", queue, Path(settings.files), window=REQUESTS) as clerk:
        clerk.send_many([(f"r{n}", Order()) for n in range(REQUESTS)])
        with Fleet(settings) as fleet:
            fleet.wait(lambda: qm.show("orders").depth == 0)
            assert {clerk.receive().outcome.value for _ in range(REQUESTS)} == {"done"}
            clerk.satisfied()
            assert fleet.strikes == 1
            assert_history(fleet, conninfo)
            executed = len(fleet.executions())
    charged = rows(conninfo, f"select sum(aborts), count(*) from {qm.repository}.history")
    assert charged[0][0] <= 1, "a death is charged to at most one"
    assert charged[0][1] == REQUESTS
    assert executed <= REQUESTS + batch, "only what was under way ran again"


@pytest.mark.parametrize("kind", ["poison", "sudden"])
def test_a_poison_in_a_batch_kills_no_more_servers_than_it_may(
    settings: Settings, conninfo: str, qm: onceq.QueueManager, kind: str
) -> None:
    """Those of its batch are halved at each death; alone, it is charged, and nobody else is."""
    limit = 3
    settings = msgspec.structs.replace(
        settings, queue={"backoff_ms": 0, "abort_limit": limit}, batch=BATCH
    )
    queue = order_queue(settings.queue)
    qm.declare(queue)
    with recorded(qm, "till", queue, Path(settings.files), window=REQUESTS) as clerk:
        requests = [(f"r{n}", Order()) for n in range(REQUESTS - 1)]
        requests.insert(0 if kind == "sudden" else 3, ("bad", Order(kind)))
        clerk.send_many(requests, expects=None)
        with Fleet(settings) as fleet:
            fleet.wait(lambda: qm.show("orders").depth == 0)
            outcomes = {}
            for _ in requests:
                reply = clerk.receive()
                outcomes[reply.rid] = reply.outcome.value
            clerk.satisfied()
            assert outcomes.pop("bad") == "failed"
            assert set(outcomes.values()) == {"done"}
            assert_history(fleet, conninfo, abort_limit=limit)
            executions = len(fleet.executions("bad"))
    assert limit <= executions <= limit + math.ceil(math.log2(BATCH)) + 1
    innocent = f"select max(aborts) from {qm.repository}.history where rid <> 'bad'"
    assert scalar(conninfo, innocent) == 0
