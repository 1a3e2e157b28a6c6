"""The programs in docs/spark.md, as they stand there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from onceq.spark import Server, add
from tests.examples.pages import text_of, write_files
from tests.spark.serving import ORDERS
from tests.spark.spark_parts import Repository, make_repository

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


@pytest.fixture
def programs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The modules of the page, also where Spark's workers import them."""
    monkeypatch.syspath_prepend(tmp_path)
    names = write_files(text_of("docs/spark.md"), tmp_path)
    for name in names:
        spark.sparkContext.addPyFile(str(tmp_path / name))
    return {name: importlib.import_module(name.removesuffix(".py")) for name in names}


def serve(server: Server, spark: SparkSession, repository: Repository) -> None:
    url = make_conninfo(repository.conninfo, options=f"-csearch_path={repository.name}")
    server.run(url, repository=repository.name, spark=spark, once=True)


def test_the_programs_of_the_page(
    spark: SparkSession, repository: Repository, programs: dict[str, Any]
) -> None:
    assert sorted(programs) == ["adding.py", "booking.py"]
    repository.do("alter table {}.booked alter customer drop not null")
    booked = repository.send(3)
    (rejected,) = repository.send(1, first=3, cents=-1)
    serve(programs["booking.py"].server, spark, repository)
    replies = repository.replies()
    assert replies.pop(rejected)[0] == "failed"
    assert replies == dict.fromkeys(booked, ("done", b'"booked"'))
    assert repository.ask("select rid, cents from {}.booked order by rid") == [
        ("r0", 0),
        ("r1", 1),
        ("r2", 2),
    ]
    added = repository.send(6, first=4)
    tables = {"totals": add("customer", "cents")}
    serve(Server(ORDERS, batch=programs["adding.py"].add_up, tables=tables), spark, repository)
    assert repository.totals() == {"a0": 6 + 9, "a1": 4 + 7, "a2": 5 + 8}
    assert {rid: repository.replies()[rid] for rid in added} == dict.fromkeys(
        added, ("done", b"added")
    )
