"""What a Spark commit may finish and apply: only what is its own. Step by step, without Spark."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from onceq import errors
from onceq.model import ops
from onceq.model.element import Lane
from onceq.model.spark_ops import SparkBound, SparkLeft, SparkRequest
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


def test_each_client_gets_the_reply_to_its_own_request(repository: Repository) -> None:
    """Two clients, in one batch."""
    other = dataclasses.replace(
        repository, client=repository.driver.perform(ops.Connect(name="other till"))
    )
    repository.send(2)
    other.send(2, first=2)
    life = Life(repository)
    life.tables = []
    requests = life.plan(life.claim())
    assert life.commit(life.stage(requests)).done == 4
    waiting = repository.ask(
        "select registrant, rid, correlation_id from {}.requests where role = 'reply'"
    )
    asked = [(one.registrant, one.rid, str(one.eid)) for one in requests]
    assert sorted(waiting) == sorted(asked)


def test_a_commit_is_durable_whatever_the_session_says(repository: Repository) -> None:
    repository.send(1)
    life = Life(repository)
    staged = life.stage(life.plan(life.claim()))
    with life.driver.connection.transaction():
        life.driver.connection.execute(b"set local synchronous_commit = off")
        assert life.commit(staged).done == 1
        (setting,) = life.driver.connection.execute(b"show synchronous_commit").fetchall()
    assert setting == ("on",)


def test_what_has_expired_is_in_no_group(repository: Repository) -> None:
    repository.send(3)
    repository.do("update {}.element set expires_at = now() - interval '1 s' where rid = 'r1'")
    life = Life(repository)
    assert [request.rid for request in life.plan(life.claim())] == ["r0", "r2"]
    assert repository.replies() == {"r1": ("expired", b"")}


def test_what_is_left_for_a_query_that_has_ended(repository: Repository) -> None:
    life = Life(repository)
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}

    def is_left() -> bool:
        return life.driver.perform(SparkLeft(**who, bound=bound))

    def refuse(_: SparkRequest) -> tuple[str | None, str | None, bool | None]:
        return None, "not now", False

    bound = life.driver.perform(SparkBound())
    repository.send(2)
    assert not is_left()
    bound = life.driver.perform(SparkBound())
    assert is_left()
    group = life.claim(n=1)
    assert is_left()
    life.commit(life.stage(life.plan(group)))
    assert is_left()
    repository.do("update {}.queue set backoff_max_ms = 3600000, backoff_ms = 3600000")
    second = life.claim(group)
    assert is_left()
    life.commit(life.stage(life.plan(second), batch=1, reply=refuse), batch=1)
    assert repository.ask("select aborts, lane from {}.element where role = 'request'") == [(1, 10)]
    assert not is_left()
    for lane in (Lane.DUE, Lane.SUSPECT):
        repository.do(f"update {{}}.element set lane = {lane}, turn = 0 where lane > 9 /* fresh */")
        assert is_left()
    repository.do("update {}.queue set dequeue_started = false")
    assert not is_left()
    Life(repository)
    with pytest.raises(errors.Fenced):
        is_left()
