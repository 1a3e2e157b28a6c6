"""What a micro-batch reads does not depend on what the planner has seen of queue and stage.

Both are empty now and then, and then autovacuum notes that a table of many pages has no row:
whatever is in it later is planned as one row, for as long as that note stands. A join that was
planned for one row took half a minute for a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.model.spark_ops import SparkBlame
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceq.model.spark_ops import SparkRequest

N = 1000
TABLES = ("element", "spark_reply", "spark_row", "spark_named")
READ = """
select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables
where schemaname = %s and relname = any (%s)
"""
EACH = 30
"""Rows of these tables that are read for each request: every statement reads it once or twice."""


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    """A repository whose planner has seen its tables empty, with the pages of what was there."""
    made = make_repository(conninfo, repository_name, abort_limit=2)
    life, rids = Life(made), made.send(N)
    requests = life.plan(life.claim(n=N))
    life.commit(life.stage(requests, named=requests))
    assert made.replies().keys() == set(rids)
    for table in TABLES:
        made.do(f"alter table {{}}.{table} set (autovacuum_enabled = off)")
        made.do(f"delete from {{}}.{table}")
        made.do(f"analyze {{}}.{table}")
    seen = made.ask(
        "select relpages > 0 and reltuples = 0 from pg_class where oid = '{}.element'::regclass"
    )
    assert seen == [(True,)]
    yield made
    made.close()


def rows_read(repository: Repository) -> int:
    for connection in (repository.driver.connection, *repository.opened):
        if connection.closed:
            continue
        connection.execute("select pg_stat_force_next_flush()")
        connection.execute("select pg_stat_clear_snapshot()")
    connection = repository.driver.connection
    (row,) = connection.execute(READ, (repository.name, list(TABLES))).fetchall()
    return int(row[0])


def answer(life: Life, requests: Sequence[SparkRequest]) -> None:
    life.commit(life.stage(requests))


def answer_jointly(life: Life, requests: Sequence[SparkRequest]) -> None:
    life.commit(life.stage(requests, named=requests))


def fail(life: Life, requests: Sequence[SparkRequest]) -> None:
    life.commit(life.stage(requests, reply=lambda _: (None, "no", None)))


def miss_one(life: Life, requests: Sequence[SparkRequest]) -> None:
    """All are named, and one is gone meanwhile."""
    life.repository.do(f"delete from {{}}.element where eid = '{requests[0].eid}'")
    life.repository.do(
        "insert into {}.history select (jsonb_populate_record(null::{}.history, to_jsonb(h)"
        f" || jsonb_build_object('eid', '{requests[0].eid}'))).* from {{}}.history h limit 1"
    )
    assert life.commit(life.stage(requests, named=requests)).verdict == "void"


def blame(life: Life, requests: Sequence[SparkRequest]) -> None:
    attempts, _ = life.stage(requests)
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
    life.driver.perform(SparkBlame(**who, attempts=attempts, tables=life.tables))


@pytest.mark.parametrize("end", [answer, answer_jointly, fail, miss_one, blame])
def test_a_batch_reads_each_row_a_few_times_whatever_the_planner_has_seen(
    repository: Repository, end: Callable[[Life, Sequence[SparkRequest]], None]
) -> None:
    life = Life(repository, name="later")
    repository.send(N, first=N)
    before = rows_read(repository)
    requests = life.plan(life.claim(n=N))
    assert len(requests) == N
    claimed = rows_read(repository)
    assert claimed - before < EACH * N
    end(life, requests)
    assert rows_read(repository) - claimed < EACH * N


def test_a_death_looks_at_each_member_once(repository: Repository) -> None:
    life = Life(repository, name="later")
    repository.send(N, first=N)
    life.plan(life.claim(n=N))
    life.end()
    before = rows_read(repository)
    Life(repository, name="later")
    assert rows_read(repository) - before < EACH * N
