"""What a Spark server's driver logs of its aborts: each once, with its fate. Without Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from onceq import telemetry
from onceq.engine.perform.driver import connect
from onceq.model import ops
from onceq.model.spark_ops import SparkAborts, SparkLastRecord
from onceq.spark.serve.aborts import Aborts
from tests.events import emits
from tests.spark.spark_life import Life
from tests.spark.spark_parts import QUEUE, Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.model.spark_ops import SparkAborted, SparkRequest
    from tests.events import Events
    from tests.spark.spark_life import Reply


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def run(life: Life, *errors: str | None, query: str = "q") -> None:
    """Runs batches of what there is, one after another: done, or all of it with an error."""
    group = 0
    for batch, error in enumerate(errors):
        group = life.claim(group)
        outcome: Reply = (None if error else "ok", error, None)
        staged = life.stage(life.plan(group), batch, query, partial(_same, outcome))
        assert life.commit(staged, batch, query).verdict == "committed"


def _same(outcome: Reply, _: SparkRequest) -> Reply:
    return outcome


def found(life: Life, since: int = 0) -> list[tuple[str | None, int, str, bool]]:
    """Returns rid, attempt, charge and whether it failed, of each abort."""
    told: list[SparkAborted] = life.driver.perform(SparkAborts(name="spark", since=since))
    return [(one.rid, one.attempt, one.charge, one.failed) for one in told]


def test_what_was_aborted_and_done_before_anybody_asked_is_told_with_its_rid(
    repository: Repository,
) -> None:
    life = Life(repository)
    since = life.driver.perform(SparkLastRecord())
    repository.send(1)
    run(life, "once", None)
    assert repository.ask("select outcome from {}.history") == [("done",)]
    assert found(life, since) == [("r0", 1, "charge", False)]


def test_what_failed_is_told_so_whatever_became_of_it_since(repository: Repository) -> None:
    """In its error queue; and run again as another request, so that only history has it."""
    life = Life(repository)
    repository.send(1)
    run(life, "bad", "bad")
    told = [("r0", 1, "charge", False), ("r0", 2, "charge", True)]
    assert found(life) == told
    (row,) = repository.ask("select eid from {}.element where role = 'failed'")
    assert repository.driver.perform(ops.Redrive(eid=row[0])) is not None
    assert repository.ask("select count(*) from {}.element where eid = %s", row[0]) == [(0,)]
    assert found(life) == told
    assert Life(repository, "other").driver.perform(SparkAborts(name="other", since=0)) == []


def test_what_goes_back_as_itself_after_it_failed_has_not_failed_again(
    repository: Repository,
) -> None:
    """An element that owes no reply is redriven with its eid; its former failure is another's."""
    life = Life(repository)
    body = b'{"customer": "a0", "cents": 1}'
    eid = repository.driver.perform(ops.Enqueue(queue=QUEUE, body=body))
    run(life, "bad", "bad")
    assert repository.driver.perform(ops.Redrive(eid=eid)) is not None
    life = Life(repository)
    run(life, "bad again", query="r")
    assert [failed for *_, failed in found(life)] == [False, True, False]


@emits(telemetry.Aborted)
def test_each_is_logged_once_also_one_that_commits_after_a_later_one(
    repository: Repository, events: Events
) -> None:
    life = Life(repository)
    repository.send(2)
    aborts = Aborts(QUEUE, "spark", life.driver)
    (row,) = repository.ask("select server_no from {}.spark_server")
    late = connect(repository.conninfo)
    repository.opened.append(late)
    late.execute("begin")
    insert = (
        f"insert into {repository.name}.attempt (ended_at, server, eid, charge, code)"
        " values (now(), %s, gen_random_uuid(), 'charge', 'late')"
    )
    late.execute(insert.encode(), [row[0]])
    run(life, "bad")
    aborts.tell(life.driver)
    late.execute("commit")
    for _ in range(3):
        aborts.tell(life.driver)
    codes = [one["code"] for one in events.of(telemetry.Aborted)]
    assert codes == ["handler", "handler", "late"]
