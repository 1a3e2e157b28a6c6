"""The low-water marks and the claim that may be lost: what they save, and what they survive."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq.errors import StatementRefused
from onceq.model import ops
from onceq.model.element import Charge
from tests.lives import Life, living
from tests.parts import driving, install_variant, plain, rows, scalar

if TYPE_CHECKING:
    import uuid
    from collections.abc import Generator

    from onceq.engine.perform.driver import PostgresDriver
    from onceq.model.element import Element

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
OTHER = "onceq_tests_elsewhere"
DEQUEUES = 3000

broken = pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])


class Sweeper:
    """Sweeps as a session does: each time with what it saw the time before."""

    def __init__(self, driver: PostgresDriver, *queue_ids: int) -> None:
        self.driver = driver
        self.queue_ids = list(queue_ids)
        self.seen = ops.Observation(value=0, holders=[])
        self.sweep()

    def sweep(self) -> None:
        self.seen = self.driver.perform(
            ops.Sweep(queue_ids=self.queue_ids, value=self.seen.value, holders=self.seen.holders)
        )


def mark(conninfo: str, repository: str, queue: str = "raw", lane: int = 5) -> int:
    query = (
        "select coalesce(pg_sequence_last_value(low[%s::integer + 1]), 0)"
        f" from {repository}.queue where name = %s order by queue_id desc limit 1"
    )
    return int(scalar(conninfo, query, lane, queue))


def sequences(conninfo: str, repository: str) -> int:
    query = (
        r"select count(*) from pg_sequences where schemaname = %s and sequencename like 'low\_%%'"
    )
    return int(scalar(conninfo, query, repository))


def swept(qm: onceq.QueueManager, driver: PostgresDriver, life: Life) -> Sweeper:
    """Executes three elements and sweeps past them."""
    qm.declare(RAW)
    sweeper = Sweeper(driver, qm.show("raw").queue_id)
    qm.enqueue_many(RAW, [b"1", b"2", b"3"])
    for _ in range(3):
        life.run(life.claim_one("raw"))
    sweeper.sweep()
    sweeper.sweep()
    return sweeper


def claim_of(
    life: Life, queue_id: int, n: int = 1, *, everything: bool = False, may_lose: bool = False
) -> list[Element]:
    return life.driver.perform(
        ops.Claim(
            incarnation=life.incarnation,
            queue_id=queue_id,
            n=n,
            turn=1,
            alone=True,
            everything=everything,
            may_lose=may_lose,
        )
    )


# --- when a mark moves ----------------------------------------------------------------------------


def test_a_sweep_passes_what_is_done(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, driving(conninfo, repository) as driver:
        sweeper = swept(qm, driver, life)
        last = f"select last_value from {repository}.element_seq_seq"
        assert mark(conninfo, repository) == scalar(conninfo, last) + 1
        qm.enqueue(RAW, b"4")
        for _ in range(3):
            sweeper.sweep()
        assert mark(conninfo, repository) == scalar(conninfo, last)
        assert [one.body for one in life.claim("raw", 9)] == [b"4"]


def test_a_transaction_in_another_database_holds_nothing_back(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """It has an xid and a snapshot of the cluster, which the rule of xmin would wait for."""
    with plain(conninfo) as connection:
        if not connection.execute(
            "select from pg_database where datname = %s", (OTHER,)
        ).fetchall():
            connection.execute(f"create database {OTHER}".encode())
    with (
        psycopg.connect(make_conninfo(conninfo, dbname=OTHER)) as elsewhere,
        living(conninfo, repository) as life,
        driving(conninfo, repository) as driver,
    ):
        elsewhere.execute("create table writing (a integer)")
        swept(qm, driver, life)
        assert mark(conninfo, repository) > 3
        elsewhere.rollback()


def test_a_long_insert_here_is_not_passed(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with (
        psycopg.connect(conninfo) as late,
        living(conninfo, repository) as life,
        driving(conninfo, repository) as driver,
    ):
        enqueue = f"select eid from {repository}.enqueue_many('raw', %s, null, false)"
        late.execute(enqueue.encode(), ([b"late"],))
        drawn = scalar(conninfo, f"select last_value from {repository}.element_seq_seq")
        sweeper = swept(qm, driver, life)
        for _ in range(3):
            sweeper.sweep()
        assert mark(conninfo, repository) <= drawn
        late.commit()
        assert [one.body for one in life.claim("raw", 9)] == [b"late"]


def test_a_claim_moves_no_mark(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    """It may be rolled back, and what others insert meanwhile may have lower numbers."""
    qm.declare(RAW)
    with psycopg.connect(conninfo) as late, living(conninfo, repository) as life:
        enqueue = f"select eid from {repository}.enqueue_many('raw', %s, null, false)"
        late.execute(enqueue.encode(), ([b"late"],))
        qm.enqueue(RAW, b"early")
        assert [one.body for one in life.claim("raw", 9)] == [b"early"]
        late.commit()
        assert [one.body for one in life.claim("raw", 9)] == [b"late"]


def test_five_hundred_queues_are_swept_at_once(conninfo: str, repository: str) -> None:
    with plain(conninfo) as connection:
        connection.execute(
            f"insert into {repository}.queue (name, kind)"
            " select 'q' || n, 'request' from generate_series(1, 500) n".encode()
        )
        ids = rows(conninfo, f"select queue_id, name from {repository}.queue order by 1")
        with driving(conninfo, repository) as driver:
            sweeper = Sweeper(driver, *(queue_id for queue_id, _ in ids))
            for _, name in ids:
                connection.execute(
                    f"select {repository}.enqueue_many(%s, %s, null, true)".encode(), (name, [b"x"])
                )
            sweeper.sweep()
            sweeper.sweep()
    assert sequences(conninfo, repository) == 500
    found = rows(
        conninfo,
        f"select pg_sequence_last_value(q.low[6]) = e.turn from {repository}.queue q"
        f" join {repository}.element e using (queue_id)",
    )
    assert found == [(True,)] * 500
    with living(conninfo, repository) as life:
        assert life.claim_one("q1").body == b"x"
        assert life.claim_one("q500").body == b"x"


def test_a_sweep_refuses_an_older_snapshot(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with driving(conninfo, repository) as driver:
        sweeper = Sweeper(driver, qm.show("raw").queue_id)
        driver.connection.execute("begin isolation level repeatable read")
        with pytest.raises(onceq.OnceqError, match="READ COMMITTED"):
            sweeper.sweep()
        driver.perform(ops.Rollback())


# --- what a mark too high would hide --------------------------------------------------------------


def test_a_mark_too_high_is_taken_back(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """As after a restore: a dump's sequences are of a later moment than its rows."""
    with living(conninfo, repository) as life, driving(conninfo, repository) as driver:
        sweeper = swept(qm, driver, life)
        qm.enqueue_many(RAW, [b"hidden", b"too"])
        scalar(conninfo, f"select setval(low[6], 1000) from {repository}.queue where name = 'raw'")
        assert life.claim("raw", 9) == []
        assert [one.body for one in claim_of(life, sweeper.queue_ids[0], 9, everything=True)] == [
            b"hidden",
            b"too",
        ]
        assert mark(conninfo, repository) == 0
        qm.enqueue(RAW, b"next")
        assert [one.body for one in life.claim("raw", 9)] == [b"next"]


@broken
def test_the_marks_of_a_destroyed_queue_go_when_no_claim_reads_them(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """A claim whose snapshot is older than the end of the queue still reads its marks."""
    if broken:
        install_variant(
            conninfo,
            repository,
            "drop_marks",
            ("- interval '1 minute' and low <> '{}' loop", "+ interval '1 minute' loop"),
            ("- interval '1 minute' and low <> '{}';", "+ interval '1 minute';"),
        )
    with living(conninfo, repository) as life, driving(conninfo, repository) as other:
        sweeper = swept(qm, other, life)
        queue_id = qm.show("raw").queue_id
        life.driver.connection.execute("begin isolation level repeatable read")
        life.execute("select 1")
        qm.destroy("raw")
        with pytest.raises(StatementRefused) if broken else contextlib.nullcontext():
            assert claim_of(life, queue_id) == []
        life.rollback()
        sweeper.sweep()
        assert sequences(conninfo, repository) == (0 if broken else 1)
        ago = f"update {repository}.queue set destroyed_at = destroyed_at - interval '2 min'"
        scalar(conninfo, f"{ago} where destroyed_at is not null returning 1")
        qm.declare(RAW)
        qm.destroy("raw")
        assert sequences(conninfo, repository) == 0
        assert claim_of(life, queue_id) == []


# --- what marks save ------------------------------------------------------------------------------


def entries_read(conninfo: str, repository: str, driver: PostgresDriver) -> int:
    """Returns how many entries of the index of ready elements have been read so far."""
    driver.connection.execute("select pg_stat_force_next_flush()")
    query = (
        "select idx_tup_read from pg_stat_user_indexes where schemaname = %s and indexrelname = %s"
    )
    return int(scalar(conninfo, query, repository, "element_ready"))


@broken
def test_claims_do_not_step_over_the_dead(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """Under an old snapshot nothing that was removed leaves the index. Counted, not timed."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"x"] * (DEQUEUES // 2))
    qm.enqueue_many(RAW, [b"x"] * (DEQUEUES // 2 + 10))
    with (
        psycopg.connect(conninfo) as old,
        living(conninfo, repository) as life,
        driving(conninfo, repository) as driver,
    ):
        old.execute("set transaction isolation level repeatable read")
        old.execute("select 1")
        sweeper = Sweeper(driver, qm.show("raw").queue_id)
        read: list[int] = []
        for _ in range(DEQUEUES // 100):
            for element in life.claim("raw", 100):
                conclude = f"select {repository}.conclude_one(%s, %s, 'done')"
                life.driver.connection.execute(conclude.encode(), (element.seq, life.incarnation))
            if not broken:
                sweeper.sweep()
                sweeper.sweep()
            entries_read(conninfo, repository, driver)  # what the sweeper read is counted, too
            before = entries_read(conninfo, repository, life.driver)
            life.driver.connection.execute("begin")
            assert len(claim_of(life, sweeper.queue_ids[0])) == 1
            life.driver.connection.execute("rollback")
            read.append(entries_read(conninfo, repository, life.driver) - before)
    if broken:
        assert read[-1] > DEQUEUES * 0.9
    else:
        assert max(read) < 50


# --- the claim that a crash may undo --------------------------------------------------------------


@contextlib.contextmanager
def beginning(driver: PostgresDriver) -> Generator[None]:
    driver.connection.execute("begin")
    try:
        yield
    finally:
        driver.connection.execute("rollback")


def commit_is(driver: PostgresDriver) -> str:
    row = driver.connection.execute("show synchronous_commit").fetchone()
    assert row is not None
    return str(row[0])


def idle_claim(life: Life, qm: onceq.QueueManager) -> list[Element]:
    return claim_of(life, qm.show("raw").queue_id, may_lose=True)


def test_an_idle_claim_need_not_wait_for_the_disk(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        with beginning(life.driver):
            assert len(idle_claim(life, qm)) == 1
            assert commit_is(life.driver) == "off"
        with beginning(life.driver):
            assert len(life.claim("raw")) == 1
            assert commit_is(life.driver) == "on"
        assert len(idle_claim(life, qm)) == 1
        assert commit_is(life.driver) == "on"  # of its transaction alone


@broken
def test_a_claim_beside_other_work_is_durable(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """The setting is the transaction's: the claim would make what was written before it weaker."""
    qm.declare(RAW)
    eid: uuid.UUID = qm.enqueue(RAW, b"x")
    if broken:
        alone = " and pg_current_xact_id_if_assigned() is null"
        install_variant(conninfo, repository, "claim", (alone, ""))
        install_variant(conninfo, repository, "claim_one", (alone, ""))
    with living(conninfo, repository) as life, beginning(life.driver):
        life.execute(f"update {repository}.element set priority = 3 where eid = '{eid}'")
        assert len(idle_claim(life, qm)) == 1
        assert commit_is(life.driver) == ("off" if broken else "on")


@broken
def test_the_claim_of_what_has_failed_is_durable(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """It may bring the database down: then it must be known that it had been claimed."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    if broken:
        install_variant(
            conninfo,
            repository,
            "claim",
            ("where got > 0 and abs(at_lane) >= 10 /* due */", "where false"),
        )
    with living(conninfo, repository) as life:
        life.abort(life.claim_one("raw"))
        with beginning(life.driver):
            assert len(idle_claim(life, qm)) == 1
            assert commit_is(life.driver) == ("off" if broken else "on")


def test_a_suspect_is_claimed_durably(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        life.abort(life.claim_one("raw"), Charge.SUSPECT)
        with beginning(life.driver):
            assert len(idle_claim(life, qm)) == 1
            assert commit_is(life.driver) == "on"
