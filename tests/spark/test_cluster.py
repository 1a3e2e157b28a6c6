"""Executors as processes of their own, killed with -9; and where they find the database."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from onceq.engine.embedded.locate import locate
from onceq.engine.perform.spark_driver import Route, executor_driver, spark_driver
from onceq.errors import CannotConnect, InvalidValue
from onceq.model.spark_ops import SparkOpen
from onceq.spark.given.options import ServingOptions
from onceq.spark.given.route import EXECUTOR_URL, find_route
from onceq.spark.source import OnceqStreamReader
from tests.spark.driving import drive, submit
from tests.spark.serving import check_all_done
from tests.spark.spark_parts import QUEUE, Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTER = "local-cluster[2,1,1024]"
NOBODY = "host=127.0.0.1 port=1 connect_timeout=1"


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_executors_killed_while_they_read_and_when_they_have_staged(
    repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(400)
    for point in ("read", "staged"):
        (tmp_path / f"{point}.executor").touch()
    code, printed = drive(repository, tmp_path, CLUSTER)
    said = (tmp_path / "errors").read_text()
    assert code == 0, said
    assert (tmp_path / "read.executor.reached").exists()
    assert (tmp_path / "staged.executor.reached").exists()
    assert printed.strip() == "failures {}", said  # Spark ran the tasks again, on new executors
    check_all_done(repository, rids)
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]
    assert repository.ask("select count(*) from {}.spark_reply") == [(0,)]


@pytest.mark.timeout(900)
def test_a_server_submitted_with_spark_submit(repository: Repository, tmp_path: Path) -> None:
    rids = repository.send(20)
    code, printed = submit(repository, tmp_path, "local-cluster[1,1,1024]")
    assert code == 0, (tmp_path / "errors").read_text()
    assert printed.strip() == "served on local-cluster[1,1,1024]"
    check_all_done(repository, rids)


def found(repository: Repository, *, local: bool = True) -> Route:
    with (
        contextlib.closing(locate(repository.conninfo)) as located,
        find_route(located, repository.name, local=local) as route,
    ):
        return route


def test_executors_have_a_url_of_their_own(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTOR_URL, NOBODY)
    route = found(repository)
    options = ServingOptions.from_spark(
        ServingOptions(route=route, server_id=1, epoch=1, tables={}).to_spark()
    )
    assert options.route.executors == NOBODY
    with spark_driver(route):
        pass
    with pytest.raises(CannotConnect), executor_driver(options.route):
        pass


def test_tasks_connect_as_executors_do_and_the_driver_as_itself(repository: Repository) -> None:
    repository.send(3)
    who = repository.driver.perform(SparkOpen(name="s", queue=QUEUE))
    where = Route(
        url="", conninfo=NOBODY, repository=repository.name, executors=repository.conninfo
    )
    spoken = ServingOptions(route=where, server_id=who.server_id, epoch=who.epoch, tables={})
    here = Route(url="", conninfo=repository.conninfo, repository=repository.name)
    planner = OnceqStreamReader(
        ServingOptions(route=here, server_id=who.server_id, epoch=who.epoch, tables={})
    )
    end = planner.latestOffset({"claim": 0}, planner.getDefaultReadLimit())
    slices = planner.partitions({"claim": 0}, end)
    planner.stop()
    reader = OnceqStreamReader(spoken)
    assert sum(batch.num_rows for cut in slices for batch in reader.read(cut)) == 3
    with pytest.raises(CannotConnect):
        reader.partitions({"claim": 0}, end)


def test_a_password_for_executors_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTOR_URL, "host=db password=secret")
    with pytest.raises(InvalidValue, match=f"{EXECUTOR_URL} holds a password") as caught:
        found(repository)
    assert "secret" not in str(caught.value)


def test_without_one_executors_connect_as_the_driver_does(repository: Repository) -> None:
    assert EXECUTOR_URL not in os.environ
    with executor_driver(found(repository)) as driver:
        assert driver.connection.execute("select 1").fetchone() == (1,)
