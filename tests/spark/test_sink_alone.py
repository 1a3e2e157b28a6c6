"""The sink without Spark: what it does while it waits for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from onceq.engine.perform.spark_driver import Route
from onceq.spark.given.options import ServingOptions
from onceq.spark.serve.sink import OnceqStreamWriter, Staged
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS = "select count(*) from pg_stat_activity where application_name = 'the sink'"


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name)
    yield made
    made.close()


def test_nothing_is_open_while_the_first_rows_are_computed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceq.spark.serve.sink._whose", lambda: ("q", 0))
    (rid,) = repository.send(1)
    life = Life(repository)
    (request,) = life.plan(life.claim())
    route = Route(url="", conninfo=repository.conninfo, repository=repository.name)
    options = ServingOptions(
        route=route, server_id=life.who.server_id, epoch=life.who.epoch, tables={}
    )
    writer = OnceqStreamWriter(options, StructType().add("eid", "string").add("reply", "binary"))
    seen: list[Any] = []

    def rows() -> Iterator[Any]:
        seen.extend(repository.ask(SESSIONS))
        yield pa.record_batch({"eid": [str(request.eid)], "reply": [b"ok"]})
        seen.extend(repository.ask(SESSIONS))

    monkeypatch.setenv("PGAPPNAME", "the sink")
    staged = writer.write(rows())
    assert seen == [(0,), (1,)]
    assert isinstance(staged, Staged)
    life.tables = []
    assert life.commit(([staged.attempt], staged.rows)).done == 1
    assert repository.replies() == {rid: ("done", b"ok")}
