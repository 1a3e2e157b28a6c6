"""What a Spark commit may finish and apply: only what is its own. Step by step, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name)
    yield made
    made.close()


def test_what_another_holds_by_now_is_not_finished(repository: Repository) -> None:
    repository.send(3)
    life = Life(repository)
    staged = life.stage(life.plan(life.claim()))
    repository.do("update {}.element set claimed_by = null")  # as by a takeover
    other = Life(repository, "other")
    requests = other.plan(other.claim())
    assert life.commit(staged).done == 0
    assert repository.totals() == {}
    assert other.commit(other.stage(requests, query="o"), query="o").done == 3
    assert repository.totals() == {"a0": 0, "a1": 1, "a2": 2}


def test_an_attempt_that_does_not_count_is_not_applied(repository: Repository) -> None:
    """A task that was run twice, of which Spark takes the second."""
    repository.send(3)
    life = Life(repository)
    life.tables = life.tables[1:]  # the totals, which no constraint keeps from a second sum
    requests = life.plan(life.claim())
    life.stage(requests)
    assert life.commit(life.stage(requests)).done == 3
    assert repository.totals() == {"a0": 0, "a1": 1, "a2": 2}


def test_two_replies_to_one_request_are_none(repository: Repository) -> None:
    repository.send(2)
    life = Life(repository)
    life.tables = []
    requests = life.plan(life.claim())
    committed = life.commit(life.stage([*requests, requests[0]]))
    assert (committed.done, committed.returned) == (1, 1)
    assert repository.replies() == {"r1": ("done", b"ok")}


def test_what_has_expired_is_in_no_group(repository: Repository) -> None:
    repository.send(3)
    repository.do("update {}.element set expires_at = now() - interval '1 s' where rid = 'r1'")
    life = Life(repository)
    assert [request.rid for request in life.plan(life.claim())] == ["r0", "r2"]
    assert repository.replies() == {"r1": ("expired", b"")}
