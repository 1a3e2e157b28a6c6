"""Spark's driver killed with -9, while it serves a query with a state and one of joint rows."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from proof.torture.processes import descendants
from tests.parts import wait_until
from tests.spark.driving import begin
from tests.spark.killed_child import joint
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_serving import serve_once
from tests.spark.test_stateful import KEEPING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pyspark.sql import SparkSession

START_S = 200.0
EACH = 6
"""Requests at a time: two of each customer, whom `send` takes in turn."""


@contextlib.contextmanager
def made(conninfo: str, name: str, place: Path) -> Generator[Repository]:
    """A repository with its directory, and orders in it."""
    repository = make_repository(conninfo, name, abort_limit=2)
    (place / name).mkdir()
    repository.send(EACH)
    with contextlib.closing(repository):
        yield repository


def kill(driver: int) -> None:
    """Kill a driver with its Java and all that it has started, as the loss of a machine does."""
    for pid in [driver, *descendants(driver)]:
        with contextlib.suppress(ProcessLookupError):  # its parent's death was its own
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(400)
def test_a_driver_killed_with_a_state_and_with_rows_of_several_requests(
    spark: SparkSession, conninfo: str, repository_name: str, tmp_path: Path
) -> None:
    """One has committed and not noted it, the other is about to: each request counts once."""
    with (
        made(conninfo, f"{repository_name}_k", tmp_path) as keeping,
        made(conninfo, f"{repository_name}_j", tmp_path) as adding,
    ):
        held = [(keeping, "committed"), (adding, "staged")]
        for one, point in held:
            (tmp_path / one.name / f"{point}.pause").touch()
        words = [conninfo, keeping.name, adding.name, str(tmp_path)]
        with begin("tests.spark.killed_child", words, tmp_path) as driver:
            for one, point in held:
                reached = tmp_path / one.name / f"{point}.pause.reached"
                wait_until(reached.exists, START_S)
            kill(driver.pid)
            assert driver.wait() == -signal.SIGKILL
        batch = "select batch_id from {}.spark_server"
        assert keeping.ask(batch) == [(0,)] != adding.ask(batch)
        finish(spark, keeping, tmp_path, **(KEEPING | {"batch_rows": EACH}))
        finish(spark, adding, tmp_path, **joint(adding.name))
        rids = [f"r{n}" for n in range(2 * EACH)]
        firsts = [n if n % EACH < 3 else n - 3 for n in range(len(rids))]
        sums = {rid: b"%d" % (2 * first + 3) for rid, first in zip(rids, firsts, strict=True)}
        assert keeping.replies() == {rid: ("done", total) for rid, total in sums.items()}
        assert adding.replies() == dict.fromkeys(rids, ("done", b"ok"))
        assert adding.totals() == {f"a{n}": sum(range(n, len(rids), 3)) for n in range(3)}


def finish(spark: SparkSession, repository: Repository, place: Path, **options: Any) -> None:
    """Serve by another driver, with the checkpoint that is left, what is there and more."""
    repository.send(EACH, first=EACH)
    assert serve_once(spark, repository, place / repository.name, **options) == {}
    assert repository.ask(
        "select count(*), count(distinct rid), max(aborts) from {}.history where role = 'request'"
    ) == [(2 * EACH, 2 * EACH, 0)]
