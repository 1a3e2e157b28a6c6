"""Spark servers that died, or were only cut off, and who takes over from them. Without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model import ops
from onceq.model.spark_ops import (
    SparkCommit,
    SparkPlan,
    SparkTakeOver,
)
from tests.parts import wait_until
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = uuid4()


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=3)
    yield made
    made.close()


def test_a_dead_server_is_taken_over_by_a_spark_server_in_halves(repository: Repository) -> None:
    repository.send(4)
    dead = Life(repository, "dead")
    staged = dead.stage(dead.plan(dead.claim()))
    other = Life(repository, "other")
    who = {"server_id": other.who.server_id, "epoch": other.who.epoch}
    assert other.driver.perform(SparkTakeOver(server_id=who["server_id"], grace_s=0)) == 0
    dead.driver.connection.close()
    wait_gone(repository)
    assert other.driver.perform(SparkTakeOver(server_id=who["server_id"], grace_s=3600)) == 0
    assert other.driver.perform(ops.ListTakenOver()) == []
    assert other.driver.perform(SparkTakeOver(server_id=who["server_id"], grace_s=0)) == 4
    check_told(repository, other.driver, "dead")
    group = other.claim()
    assert len(other.plan(group)) == 2
    zombie = SparkDriver(connect(repository.conninfo), repository.name)
    repository.opened.append(zombie.connection)
    late = SparkCommit(
        server_id=dead.who.server_id,
        epoch=dead.who.epoch,
        query_id="q",
        batch_id=0,
        attempts=staged[0],
        rows=staged[1],
        tables=dead.tables,
    )
    assert zombie.perform(late).done == 0


def test_a_native_server_takes_over_from_a_dead_spark_server(repository: Repository) -> None:
    repository.send(4)
    dead = Life(repository)
    dead.plan(dead.claim())
    native, _ = attending(repository, dead.who.queue_id)
    dead.driver.connection.close()
    wait_gone(repository)
    held = "select count(*) from {}.element where claimed_by is not null"
    repository.ask("update {}.element set together = 3 returning 1")  # of a batch that had died
    assert native.perform(ops.TakeOver(process=NATIVE)) == 0
    assert repository.ask(held) == [(4,)]  # not yet: one of its own name may come
    repository.ask("update {}.spark_server set seen_at = seen_at - interval '1 hour' returning 1")
    assert native.perform(ops.TakeOver(process=NATIVE)) == 1  # then it asks what there is to tell
    assert repository.ask(held) == [(0,)]
    check_told(repository, native, "spark")
    suspects = "select distinct lane, aborts, together from {}.element"
    assert repository.ask(suspects) == [(11, 0, None)], "each runs alone, as it did with Spark"


def test_a_native_server_of_another_queue_leaves_a_group_to_spark(repository: Repository) -> None:
    """To Spark, which may take minutes to begin, each suspect would be a batch of its own."""
    repository.send(4)
    dead = Life(repository)
    dead.plan(dead.claim())
    native, slot = attending(repository, dead.who.queue_id + 1)
    dead.driver.connection.close()
    wait_gone(repository)
    repository.ask("update {}.spark_server set seen_at = seen_at - interval '1 hour' returning 1")
    native.perform(ops.TakeOver(process=NATIVE))
    again = Life(repository)
    group = again.claim()
    assert len(again.plan(group)) == 2
    again.driver.connection.close()
    wait_gone(repository)
    repository.ask("update {}.spark_server set seen_at = seen_at - interval '1 hour' returning 1")
    native.perform(ops.Attend(slot=slot, queue_ids=[dead.who.queue_id]))
    native.perform(ops.TakeOver(process=NATIVE))
    lanes = "select lane, count(*) from {}.element group by lane order by lane"
    assert repository.ask(lanes) == [(10, 2), (11, 2)]


def attending(repository: Repository, queue_id: int) -> tuple[SparkDriver, int]:
    """Returns the driver of a native server's session that serves a queue, and its slot."""
    driver = SparkDriver(connect(repository.conninfo), repository.name)
    repository.opened.append(driver.connection)
    begun = driver.perform(ops.OpenIncarnation(process=NATIVE, host="here", pid=1))
    driver.perform(ops.Attend(slot=begun.slot, queue_ids=[queue_id]))
    return driver, begun.slot


def check_told(repository: Repository, survivor: SparkDriver, name: str) -> None:
    """Fails unless what a Spark server held is told of: all of it had begun, and is uncharged."""
    number = repository.ask("select server_no from {}.spark_server where name = %s", name)
    (told,) = survivor.perform(ops.ListTakenOver())
    assert told == ops.TakenOver(
        incarnation=number[0][0],
        process=None,
        host=None,
        pid=None,
        spark_server=name,
        returned=0,
        suspects=4,
        charged=0,
        aborted=[],
    )
    assert survivor.perform(ops.ListTakenOver()) == []


def test_a_server_that_lost_its_session_lives_on_in_another(repository: Repository) -> None:
    repository.send(4)
    cut_off = Life(repository, "cut off")
    cut_off.plan(cut_off.claim())
    cut_off.driver.connection.close()
    wait_gone(repository)
    again = SparkDriver(connect(repository.conninfo), repository.name)
    repository.opened.append(again.connection)
    tend = SparkTakeOver(server_id=cut_off.who.server_id, grace_s=3600)
    assert [again.perform(tend), again.perform(tend)] == [0, 0]
    other = Life(repository, "other")
    take_over = SparkTakeOver(server_id=other.who.server_id, grace_s=0)
    assert other.driver.perform(take_over) == 0
    again.connection.close()
    wait_gone(repository)
    assert other.driver.perform(take_over) == 4


def test_a_server_that_lives_is_seen_also_when_every_lock_is_free(repository: Repository) -> None:
    """As after a restart of the database, when another comes first."""
    repository.send(4)
    living, other = Life(repository, "living"), Life(repository, "other")
    living.plan(living.claim())
    repository.do("update {}.spark_server set seen_at = seen_at - interval '1 hour'")
    living.driver.perform(SparkTakeOver(server_id=living.who.server_id, grace_s=60))
    living.driver.connection.close()
    wait_gone(repository)
    take_over = SparkTakeOver(server_id=other.who.server_id, grace_s=60)
    assert other.driver.perform(take_over) == 0
    repository.do("update {}.spark_server set seen_at = seen_at - interval '1 hour'")
    assert other.driver.perform(take_over) == 4


def test_a_takeover_that_commits_late_does_not_set_the_groups_back(repository: Repository) -> None:
    repository.send(1)
    life = Life(repository)
    group = life.claim()
    repository.do(f"update {{}}.spark_server set last_group = {group + 5}")
    gather = "select {}.spark_gather(%s, array[]::bigint[], null, false)"
    ((late,),) = repository.ask(gather, life.who.server_id)
    assert late < group + 5
    assert repository.ask("select last_group from {}.spark_server") == [(group + 5,)]


def test_a_plan_is_durable_each_time(repository: Repository) -> None:
    """The query outlives a crash of the database: its commit must be about its own group."""
    repository.send(2)
    life = Life(repository)
    first = life.claim(n=1)
    life.plan(first)
    second = life.claim(first, n=1)
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
    with life.driver.connection.transaction():
        life.driver.connection.execute(b"set local synchronous_commit = off")
        life.driver.perform(SparkPlan(**who, group=second))
        (setting,) = life.driver.connection.execute(b"show synchronous_commit").fetchall()
    assert setting == ("on",)


def wait_gone(repository: Repository) -> None:
    """Waits until the dead session holds its lock no more."""
    held = (
        "select count(*) from pg_locks where locktype = 'advisory' and"
        " classid = '{}.spark_group'::regclass::oid and objid = 1"
    )
    wait_until(lambda: repository.ask(held) == [(0,)])


def test_what_a_server_staged_that_never_came_back_is_removed(repository: Repository) -> None:
    repository.send(2)
    dead = Life(repository, "dead")
    dead.stage(dead.plan(dead.claim()))
    other = Life(repository, "other")
    staged = "select (select count(*) from {}.spark_attempt), (select count(*) from {}.spark_reply)"
    for days, left in ((0, (1, 2)), (2, (0, 0))):
        repository.do(
            f"update {{}}.spark_server set seen_at = seen_at - interval '{days} days'"
            " where name = 'dead'"
        )
        other.driver.perform(SparkTakeOver(server_id=other.who.server_id, grace_s=60))
        assert repository.ask(staged) == [left]


def test_what_a_crash_took_is_not_answered_by_the_batch_that_had_read_it(
    conninfo: str, repository_name: str
) -> None:
    """Volatile: the life of the database is over, as its unlogged table shows after a crash."""
    made = make_repository(conninfo, repository_name, durable=False)
    made.send(2)
    life = Life(made)
    group = life.claim()
    staged = life.stage(life.plan(group))
    made.do("truncate {}.life")
    assert life.commit(staged).done == 0  # nobody else has asked for the life until then
    assert made.replies() == {}
    made.send(1, first=2)
    staged = life.stage(life.plan(life.claim(start=group)))
    assert life.commit(staged, batch=1).done == 1
    assert set(made.replies()) == {"r2"}
    assert made.ask("select count(*) from {}.element where life is null") == [(0,)]
    made.close()
