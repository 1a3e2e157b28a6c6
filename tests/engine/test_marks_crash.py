"""The low-water marks and the claim that may be lost, when the database crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from onceq.model import ops
from tests.engine.crashes import (
    NAME,
    RAW,
    connect_again,
    kill_a_backend,
    kill_backend,
    kill_postmaster,
    restart,
)
from tests.lives import Life
from tests.parts import driving, plain, rows, scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    import onceq
    from onceq.engine.embedded import EmbeddedServer
    from onceq.engine.perform.driver import PostgresDriver

MARK = "select coalesce(pg_sequence_last_value(low[6]), 0) from r.queue where name = 'raw'"


def sweep(
    driver: PostgresDriver, own: onceq.QueueManager, seen: ops.Observation | None = None
) -> ops.Observation:
    return driver.perform(
        ops.Sweep(
            queue_ids=[own.show("raw").queue_id],
            value=None if seen is None else seen.value,
            holders=[] if seen is None else seen.holders,
        )
    )


@pytest.mark.parametrize("crash", [kill_postmaster, kill_a_backend])
def test_a_crash_sets_the_marks_back_and_hides_nothing(
    cluster: EmbeddedServer, own: onceq.QueueManager, crash: Callable[[EmbeddedServer], None]
) -> None:
    own.enqueue_many(RAW, [b"done", b"claimed", b"waits"])
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.run(life.claim_one("raw"))
        sweep(driver, own, sweep(driver, own))
        assert scalar(cluster.conninfo, MARK) == 2
        assert life.claim_one("raw").body == b"claimed"
        crash(cluster)
    assert scalar(cluster.conninfo, MARK) == 0
    connect_again(own)
    own.enqueue(RAW, b"later")
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.take_over()
        assert sorted(one.body for one in life.claim("raw", 9)) == [b"later", b"waits"]
        assert [one.body for one in life.claim("raw", 9)] == [b"claimed"]  # a suspect, alone
        sweep(driver, own, sweep(driver, own))
        assert scalar(cluster.conninfo, MARK) > 3


@pytest.mark.parametrize("may_lose", [True, False], ids=["may lose", "durable"])
def test_a_claim_that_a_crash_undid_harmed_nothing(
    cluster: EmbeddedServer, own: onceq.QueueManager, *, may_lose: bool
) -> None:
    own.enqueue(RAW, b"x")
    with plain(cluster.conninfo) as connection:  # else it may reach the disk in time
        connection.execute("alter system set wal_writer_delay = '10s'")
    restart(cluster)
    connect_again(own)
    queue_id = own.show("raw").queue_id
    where = "select lane, aborts, faults, claimed_by is not null from r.element"
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        claim = ops.Claim(
            incarnation=life.incarnation,
            queue_id=queue_id,
            n=1,
            turn=1,
            alone=True,
            may_lose=may_lose,
        )
        assert len(driver.perform(claim)) == 1
        kill_backend(cluster, driver.connection.info.backend_pid)
    assert rows(cluster.conninfo, where) == [(5, 0, 0, not may_lose)]
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.take_over()
        element = life.claim_one("raw")
        assert (element.aborts, element.is_suspect) == (0, not may_lose)
        life.run(element)
    connect_again(own)
    assert [one.outcome for one in own.lookup(eid=element.eid)] == ["done"]


def test_a_prepared_insert_is_not_passed(cluster: EmbeddedServer, own: onceq.QueueManager) -> None:
    """It belongs to no session any more, and may yet commit."""
    with plain(cluster.conninfo) as connection:
        connection.execute("alter system set max_prepared_transactions = 2")
    restart(cluster)
    connect_again(own)
    with psycopg.connect(cluster.conninfo) as caller, driving(cluster.conninfo, NAME) as driver:
        caller.execute("select r.enqueue_many('raw', array['late']::bytea[], null, false)")
        own.enqueue(RAW, b"soon")
        seen = sweep(driver, own)
        caller.execute("prepare transaction 'late'")
        life = Life(driver)
        life.run(life.claim_one("raw"))
        for _ in range(3):
            seen = sweep(driver, own, seen)
        assert scalar(cluster.conninfo, MARK) <= 1
        with plain(cluster.conninfo) as connection:
            connection.execute("commit prepared 'late'")
        assert life.claim_one("raw").body == b"late"
        for _ in range(3):
            seen = sweep(driver, own, seen)
        assert scalar(cluster.conninfo, MARK) == 3
