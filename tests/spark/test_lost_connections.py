"""A Spark server whose connections are cut, while it waits for requests: its query goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.spark.serving import check_all_done, make_server
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def cut(repository: Repository) -> int:
    """End every session that works on a repository, but the test's; return how many."""
    ends = (
        "select count(*) from pg_stat_activity where pid <> pg_backend_pid()"
        " and query like %s and pg_terminate_backend(pid, 60000)"
    )
    ((count,),) = repository.ask(ends, f"%{repository.name}%")
    return int(count)


def test_cut_off_from_the_database_the_query_goes_on(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(2)
    server = make_server(repository.name, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(
            server.run,
            repository.conninfo,
            repository=repository.name,
            spark=spark,
            checkpoint=tmp_path / "checkpoint",
        )
        try:
            for first in (2, 4):
                wait_until(lambda: repository.seqs_left() == 0)
                wait_waits(repository)
                wait_until(lambda: is_alive(repository))
                assert cut(repository) >= 2  # of the supervisor, and of the query
                rids += repository.send(2, first=first)
            wait_until(lambda: repository.seqs_left() == 0)
            wait_until(lambda: is_alive(repository))
        finally:
            server.stop()
            serving.result(150)
    statistics = server.statistics()
    assert (statistics.lives, dict(statistics.failures)) == (1, {})
    check_all_done(repository, rids)


def wait_waits(repository: Repository) -> None:
    """Wait until the query asks again for requests: the batch before has ended."""
    ((now,),) = repository.ask("select clock_timestamp()")
    asks = (
        "select count(*) from pg_stat_activity where pid <> pg_backend_pid() and query like %s"
        " and query_start > %s"
    )
    wait_until(lambda: repository.ask(asks, f"%{repository.name}%spark_claim%", now) > [(0,)])


def is_alive(repository: Repository) -> bool:
    """Return whether the life lock of the first server is held."""
    held = (
        "select count(*) from pg_locks where locktype = 'advisory' and granted and"
        " classid = '{}.spark_group'::regclass::oid and objid = 1"
    )
    return repository.ask(held) == [(1,)]
