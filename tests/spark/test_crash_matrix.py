"""A query with a state, and one with rows of several requests: a death after each durable step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.spark import add
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_joint import by_customer
from tests.spark.test_serving import serve_once
from tests.spark.test_stateful import KEEPING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
KINDS = ("claimed.exit", "write", "staged.exit", "committed.exit")
"""A process exits, or its step fails: after each durable step of a batch, and while it stages."""
EACH = 6
"""Requests sent before each death: two of each customer, whom `send` takes in turn."""


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def die_everywhere(
    spark: SparkSession, repository: Repository, place: Path, **options: Any
) -> list[str]:
    """Serve some requests for each way to die, which comes once; return all their rids."""
    rids: list[str] = []
    for number, kind in enumerate(KINDS):
        rids += repository.send(EACH, first=EACH * number)
        (place / kind).touch()
        assert serve_once(spark, repository, place, **options) == {"CRASH": 1}, kind
        assert (place / f"{kind}.reached").exists()
        assert repository.replies().keys() == set(rids), kind
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]
    return rids


def test_a_state_counts_each_request_once(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """Each pair's sum says that its first was in the state, once, when its second came."""
    rids = die_everywhere(spark, repository, tmp_path, **KEEPING)
    firsts = [n if n % EACH < 3 else n - 3 for n in range(len(rids))]
    sums = {rid: b"%d" % (2 * first + 3) for rid, first in zip(rids, firsts, strict=True)}
    assert repository.replies() == {rid: ("done", total) for rid, total in sums.items()}


def test_a_sum_of_several_requests_counts_each_once(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    tables = {"totals": add("customer", "cents", into=f"{repository.name}.totals")}
    rids = die_everywhere(spark, repository, tmp_path, batch=by_customer, tables=tables)
    assert repository.totals() == {f"a{n}": sum(range(n, len(rids), 3)) for n in range(3)}
    assert repository.replies() == dict.fromkeys(rids, ("done", b"ok"))
