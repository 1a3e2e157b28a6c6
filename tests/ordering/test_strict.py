"""A queue in strict order under late commits, aborts, deaths and kills (Q8)."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.errors import InvalidValue
from onceq.model.spark_ops import SparkEnqueue, SparkOpen
from onceq.model.stream_ops import RelayOpen
from proof.harness.fleet import Fleet, Settings
from proof.harness.ledger import Order, Receipt, make_ledger
from proof.ordering.part import run_seeds
from proof.ordering.schedules import KINDS
from tests.parts import rows

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.model.ops import Op

SCHEDULES = 200
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_overtaken_and_never_two_run(
    qm: onceq.QueueManager, conninfo: str, repository: str, part: int
) -> None:
    """200 schedules: never two in flight, and what was sent before another began runs first."""
    assert qm is not None
    tally = run_seeds(conninfo, repository, range(part, SCHEDULES, PARTS))
    assert tally.wrong == {}
    assert tally.schedules == SCHEDULES / PARTS
    assert [kind for kind in KINDS if tally.did[kind] == 0] == []


def test_one_sent_earlier_that_commits_later_does_not_run_beside(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Not while the claim of the later one is not committed, nor afterwards."""
    queue = onceq.Queue("orders", bytes, bytes, order="strict")
    qm.declare(queue)
    claim = f"select eid from {repository}.claim(1, %s, 1, 0, true)".encode()
    number = (qm.show("orders").queue_id,)
    with psycopg.connect(conninfo) as earlier, psycopg.connect(conninfo) as claiming:
        qm.enqueue(queue, b"earlier", connection=earlier)
        later = qm.enqueue(queue, b"later")
        assert claiming.execute(claim, number).fetchall() == [(later,)]
        earlier.commit()
        assert rows(conninfo, claim.decode(), *number) == []
        claiming.commit()
        assert rows(conninfo, claim.decode(), *number) == []


def test_what_breaks_the_order_by_other_ways_is_refused(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A Spark server, a relay, and rows in bulk with a priority or a delay."""
    qm.declare(onceq.Queue("orders", bytes, bytes, order="strict"))
    row = partial(
        SparkEnqueue,
        registrant_id=None,
        epoch=None,
        queue="orders",
        send_no=0,
        rids=["1"],
        bodies=[b"1"],
        content_type=None,
    )
    refused: dict[str, Op[Any]] = {
        "Spark serves many": SparkOpen(name="spark", queue="orders"),
        "a relay takes many": RelayOpen(name="r", queue="orders", topic="t", session="s"),
        "takes no priority": row(priorities=[5]),
        "delays nothing": row(not_before=[1]),
    }
    with contextlib.closing(connect(conninfo)) as connection:
        driver = SparkDriver(connection, repository)
        for why, op in refused.items():
            with pytest.raises(InvalidValue, match=f'"orders" is in strict order, and {why}'):
                driver.perform(op)
        assert qm.show("orders").depth == 0
        assert driver.perform(row()) == 1


def test_the_first_claims_of_two_strict_queues_do_not_wait_for_each_other(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Neither has elements that live as long as the database, or expire."""
    claim = f"select eid from {repository}.claim(1, %s, 1, 0, true)".encode()
    with contextlib.ExitStack() as stack:
        for name in ("one", "other"):
            queue = onceq.Queue(name, bytes, bytes, order="strict")
            qm.declare(queue)
            eid = qm.enqueue(queue, b"")
            claiming = stack.enter_context(psycopg.connect(conninfo))
            claiming.execute("set lock_timeout = '5s'")
            number = qm.show(name).queue_id
            assert claiming.execute(claim, (number,)).fetchall() == [(eid,)]


def test_servers_killed_at_any_time_keep_the_order(
    qm: onceq.QueueManager, conninfo: str, repository: str, tmp_path: Path
) -> None:
    """Two processes serve, and die by kill -9: what ends, ends as it was sent."""
    make_ledger(conninfo, repository)
    queue = onceq.Queue("orders", Order, Receipt, order="strict", backoff_ms=0)
    qm.declare(queue)
    rids = [f"r{n}" for n in range(60)]
    for rid in rids:
        qm.enqueue(queue, Order(ms=5), rid=rid)
    chance = random.Random(1)
    settings = Settings(
        url=conninfo,
        repository=repository,
        files=str(tmp_path),
        concurrency=2,
        queue={"order": "strict", "backoff_ms": 0},
    )
    query = f"select rid from {repository}.history order by finished_at"

    def are_done(least: int) -> bool:
        return len(rows(conninfo, query)) >= least

    with Fleet(settings, size=2) as fleet:
        for done in (10, 25, 40):
            fleet.wait(partial(are_done, done))
            victim = chance.choice(fleet.processes).pid
            assert victim is not None
            fleet.kill(victim)
        fleet.wait(partial(are_done, len(rids)))
        assert fleet.deaths >= 3
    assert [row[0] for row in rows(conninfo, query)] == rids


def test_an_order_is_one_that_there_is() -> None:
    with pytest.raises(InvalidValue, match="order is one of"):
        onceq.Queue("orders", bytes, bytes, order="alphabetical")
