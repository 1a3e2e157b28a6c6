"""The source and the sink by themselves, in this process: no Spark session, no JVM."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as st

from onceq import errors
from onceq.engine.perform.spark_driver import Route
from onceq.model.spark_ops import SparkRefuse
from onceq.spark.given.options import ServingOptions
from onceq.spark.serve.handlers import told
from onceq.spark.serve.sink import OnceqStreamWriter, Staged
from onceq.spark.source import OnceqStreamReader, Slice, rows_of_a_read
from tests.spark.serving import ORDERS
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 2_500
ANSWER = st.StructType(
    [st.StructField("eid", st.StringType()), st.StructField("reply", st.BinaryType())]
)


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name)
    yield made
    made.close()


@pytest.fixture
def options(repository: Repository) -> ServingOptions:
    life = Life(repository)
    return ServingOptions(
        route=Route(url="", conninfo=repository.conninfo, repository=repository.name),
        server_id=life.who.server_id,
        epoch=life.who.epoch,
        tables={},
    )


def test_the_slices_of_a_group_hold_each_request_once(
    repository: Repository, options: ServingOptions
) -> None:
    rids = repository.send(ROWS)
    reader = OnceqStreamReader(options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    slices = reader.partitions(start, end)
    assert len(slices) == 2
    found = [
        rid for one in slices for batch in reader.read(one) for rid in batch["rid"].to_pylist()
    ]
    assert found == rids
    reader.stop()


def test_what_is_not_of_the_type_is_refused_where_it_is_read(
    repository: Repository, options: ServingOptions
) -> None:
    rids = repository.send(2)
    repository.send(1, first=2, cents="5")
    reader = OnceqStreamReader(replace(options, requests=told(ORDERS)))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    (one,) = reader.partitions(reader.initialOffset(), end)
    assert isinstance(one, Slice)
    for _ in range(2):  # a task that is run again reads the same, and charges nothing
        (batch,) = reader.read(one)
        assert batch["rid"].to_pylist() == rids
        assert batch["request"].to_pylist() == [
            {"customer": "a0", "cents": 0},
            {"customer": "a1", "cents": 1},
        ]
        found = repository.ask("select rid, aborts, code, error from {}.element where aborts > 0")
        (rid, aborts, code, error) = found[0]
        assert (len(found), rid, aborts, code) == (1, "r2", 1, "InvalidValue")
        assert "Expected `int`, got `str` - at `$.cents`" in error
    eids = [repository.eids()["r2"]]
    again = SparkRefuse(group=one.group, eids=eids, codes=["late"], errors=["late"])
    assert repository.driver.perform(again) == 0
    reader.stop()


@pytest.mark.parametrize(
    ("size", "rows", "wanted"),
    [(64 * 200, 64, 10_000), (64 << 20, 64, 8), (0, 64, 10_000), (256 << 20, 1, 1)],
)
def test_large_requests_are_read_few_at_a_time(size: int, rows: int, wanted: int) -> None:
    assert rows_of_a_read(size, rows) == wanted


def test_a_query_that_has_passed_a_group_is_given_the_next(
    repository: Repository, options: ServingOptions
) -> None:
    """What it has passed and not finished goes back to its queue, and into a later group."""
    rids = repository.send(3)
    reader = OnceqStreamReader(options)
    limit = reader.getDefaultReadLimit()
    passed = reader.latestOffset(reader.initialOffset(), limit)
    following = reader.latestOffset(passed, limit)
    assert following["claim"] > passed["claim"]
    (one,) = reader.partitions(passed, following)
    assert [rid for batch in reader.read(one) for rid in batch["rid"].to_pylist()] == rids
    reader.stop()


def test_a_batch_of_which_a_task_has_staged_nothing_is_not_committed(
    repository: Repository, options: ServingOptions
) -> None:
    repository.send(1)
    writer = OnceqStreamWriter(options, ANSWER)
    with pytest.raises(errors.EnvironmentFault, match="staged nothing"):
        writer.commit([Staged(attempt=1, rows=0, query_id="q", batch_id=0), None], 0)
    assert repository.ask("select count(*) from {}.spark_server where batch_id is not null") == [
        (0,)
    ]


def test_a_batch_is_committed_with_all_its_tasks(
    repository: Repository, options: ServingOptions
) -> None:
    rids = repository.send(2)
    life = Life(repository)
    current = ServingOptions(
        route=options.route, server_id=life.who.server_id, epoch=life.who.epoch, tables={}
    )
    requests = life.plan(life.claim())
    staged = [life.stage([request]) for request in requests]
    tasks = [Staged(attempts[0], rows, "q", 0) for attempts, rows in staged]
    OnceqStreamWriter(current, ANSWER).commit(tasks, 0)
    assert repository.replies() == dict.fromkeys(rids, ("done", b"ok"))


def test_a_batch_that_failed_leaves_nothing_staged(
    repository: Repository, options: ServingOptions
) -> None:
    life = Life(repository)
    attempts, rows = life.stage([])
    writer = OnceqStreamWriter(options, ANSWER)
    writer.abort([None, Staged(attempts[0], rows, "q", 0)], 0)
    assert repository.ask("select count(*) from {}.spark_attempt") == [(0,)]
