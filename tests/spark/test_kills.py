"""The Spark server's driver and its database killed with kill -9, at the points of a batch."""

from __future__ import annotations

import dataclasses
import signal
from typing import TYPE_CHECKING

import pytest

from onceq.engine.embedded import open_embedded
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from tests.spark.driving import drive
from tests.spark.serving import check_all_done, make_server
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

STRUCK = ("claimed", "staged", "committed")
"""One point after each durable step; all of them are struck in the proof."""
REQUESTS = 100
"""So many that what every death halves is never one alone, which would be charged."""


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_a_driver_killed_after_each_step(repository: Repository, tmp_path: Path) -> None:
    rids = repository.send(REQUESTS)
    for point in STRUCK:
        (tmp_path / f"{point}.kill").touch()
        code, _ = drive(repository, tmp_path)
        assert code == -signal.SIGKILL, (tmp_path / "errors").read_text()
        assert (tmp_path / f"{point}.kill.reached").exists()
        done = repository.replies().keys()
        assert done <= set(rids)
        assert bool(done) == (point == "committed"), point
    # A task that fails is run again within its batch: no failure of the query.
    (tmp_path / "write").touch()
    code, printed = drive(repository, tmp_path, "local[2,3]")
    assert (code, printed.strip()) == (0, "failures {}"), (tmp_path / "errors").read_text()
    assert (tmp_path / "write.reached").exists()
    check_all_done(repository, rids)
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("point", "allowed"),
    [
        ("claimed", [set()]),
        ("staged", [{"ENVIRONMENT"}]),
        ("concluded", [{"ENVIRONMENT"}, set()]),
    ],
)
def test_a_database_killed_in_a_batch(
    spark: SparkSession, tmp_path: Path, point: str, allowed: list[set[str]]
) -> None:
    """What was staged is lost with it; before that, the query goes on.

    It does, too, when the backend that commits is quicker than the news of its postmaster's death.
    """
    with open_embedded(tmp_path / "postgresql") as server:
        before = make_repository(server.conninfo, "shop", abort_limit=1)
        rids = before.send(4)
        before.close()
        (tmp_path / "pids").write_text(str(server.postmaster_pid()))
        (tmp_path / f"{point}.database").touch()
        serving = make_server("shop", tmp_path)
        serving.run(
            f"embedded:{tmp_path / 'postgresql'}",
            repository="shop",
            spark=spark,
            checkpoint=tmp_path / "checkpoint",
            once=True,
        )
        assert (tmp_path / f"{point}.database.reached").exists()
        assert serving.statistics().failures.keys() in allowed
        server.ensure_running()
        driver = SparkDriver(connect(server.conninfo), "shop")
        after = dataclasses.replace(before, conninfo=server.conninfo, driver=driver, opened=[])
        check_all_done(after, rids)
        after.close()
