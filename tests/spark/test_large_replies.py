"""A reply beyond the limit: its request is aborted alone, in words, and all others are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq.model.queue import Queue
from onceq.spark import Server, each
from tests.spark.large import LARGE, answer
from tests.spark.serving import Order
from tests.spark.spark_parts import QUEUE, Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

TEXTS = Queue(QUEUE, Order, str)


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=1)
    yield made
    made.close()


@pytest.mark.timeout(400)
def test_a_reply_of_a_hundred_megabytes_fails_alone(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(6)
    server = Server(TEXTS, batch=each(answer))
    where: dict[str, Any] = {"repository": repository.name, "spark": spark}
    server.run(repository.conninfo, checkpoint=tmp_path / "checkpoint", once=True, **where)
    assert server.statistics().failures == {}
    replies = repository.replies()
    assert replies.pop(f"r{LARGE}") == ("failed", b"")
    assert replies.keys() == set(rids) - {f"r{LARGE}"}
    assert {outcome for outcome, _ in replies.values()} == {"done"}
    ((code, error),) = repository.ask("select code, error from {}.element where role = 'failed'")
    assert code == "TooLarge"
    assert "the reply has 10000000" in error
    assert "at most 67108864: put what is larger elsewhere" in error
