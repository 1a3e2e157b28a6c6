"""A stateful server in the database: not killed, not taken over, and read again as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onceq import errors
from onceq.model import ops
from onceq.model.element import KillAnswer
from onceq.model.spark_ops import SparkClose, SparkPurge, SparkTakeOver
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_taken_over import wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=3)
    yield made
    made.close()


def begin(repository: Repository, name: str = "spark", *, stateful: bool = True) -> Life:
    return Life(repository, name, stateful=stateful, hold_s=3600)


def purge(life: Life, group: int) -> int:
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
    return life.driver.perform(SparkPurge(**who, group=group))


def close(life: Life) -> int:
    return life.driver.perform(SparkClose(server_id=life.who.server_id, epoch=life.who.epoch))


def held(repository: Repository) -> list[str]:
    """Return the rids of what is held for later batches."""
    rows = repository.ask(
        "select rid from {}.element e join {}.spark_group g on g.group_no = e.claimed_by"
        " where g.held_until > now() order by rid"
    )
    return [row[0] for row in rows]


def test_what_is_claimed_cannot_be_killed(repository: Repository) -> None:
    repository.send(2)
    eids = repository.eids()

    def kill(rid: str) -> KillAnswer:
        return repository.driver.perform(ops.Kill(eid=eids[rid]))

    life = begin(repository)
    requests = life.plan(life.claim(n=1))
    assert (kill("r0"), kill("r1")) == (KillAnswer.TOO_LATE, KillAnswer.KILLED)
    life.commit(life.stage([]))
    assert held(repository) == ["r0"]
    assert kill("r0") is KillAnswer.TOO_LATE
    assert life.commit(life.stage(requests, batch=1), batch=1).done == 1
    assert kill("r0") is KillAnswer.TOO_LATE
    assert {rid: outcome for rid, (outcome, _) in repository.replies().items()} == {
        "r0": "done",
        "r1": "cancelled",
    }


def test_a_replay_reads_the_same_until_its_end_was_noted(repository: Repository) -> None:
    repository.send(5)
    life = begin(repository)
    group = life.claim()
    read = life.plan(group)

    def reply(request: object) -> tuple[str | None, str | None, None]:
        return (None, "no", None) if request == read[1] else ("ok", None, None)

    life.commit(life.stage(read[:3], reply=reply))
    repository.send(1, first=5)
    again = begin(repository)
    assert again.plan(group) == read
    assert again.commit(again.stage([])).verdict == "replay"
    following = again.claim(group)
    assert purge(again, group) == 5
    assert sorted(one.rid for one in again.plan(following)) == ["r1", "r5"]
    assert again.plan(group) == []


def test_a_stateless_server_keeps_nothing(repository: Repository) -> None:
    repository.send(2)
    life = Life(repository)
    group = life.claim()
    life.commit(life.stage(life.plan(group)))
    assert life.plan(group) == []
    assert repository.ask("select count(*) from {}.spark_consumed") == [(0,)]


def test_what_is_held_outlives_a_good_end(repository: Repository) -> None:
    repository.send(3)
    life = begin(repository)
    first = life.plan(life.claim(n=2))
    life.commit(life.stage(first[:1]))
    life.plan(life.claim(1))
    assert close(life) == 1
    assert held(repository) == ["r1"]
    repository.do("update {}.spark_group set held_until = now() - interval '1 day'")
    again = begin(repository)
    assert held(repository) == ["r1"]
    group = again.claim(1)
    assert [one.rid for one in again.plan(group)] == ["r2"]
    assert again.commit(again.stage([first[1]], batch=1), batch=1).done == 1


@pytest.mark.parametrize("how", ["a new query", "a stateless server"])
def test_what_no_state_knows_any_more_is_read_again(repository: Repository, how: str) -> None:
    repository.send(2)
    life = begin(repository)
    group = life.claim()
    life.plan(group)
    life.commit(life.stage([]))
    again = begin(repository, stateful=how == "a new query")
    fresh = again.claim(0 if how == "a new query" else group)
    assert [(one.rid, one.aborts) for one in again.plan(fresh)] == [("r0", 0), ("r1", 0)]
    assert repository.ask("select count(*) from {}.spark_consumed") == [(0,)]


@pytest.mark.parametrize("is_committed", [False, True])
def test_it_is_not_taken_over(repository: Repository, is_committed: bool) -> None:  # noqa: FBT001 - pytest's
    repository.send(2)
    dead = begin(repository, name="dead")
    dead.plan(dead.claim())
    if is_committed:
        dead.commit(dead.stage([]))
    other = Life(repository, "other")
    native = Life(repository, "native").driver
    dead.driver.connection.close()
    wait_gone(repository)
    repository.do("update {}.spark_server set seen_at = seen_at - interval '1 day'")
    assert other.driver.perform(SparkTakeOver(server_id=other.who.server_id, grace_s=0)) == 0
    native.perform(ops.TakeOver(process=uuid4()))
    assert repository.ask("select count(*) from {}.element where claimed_by is null") == [(0,)]


def test_what_had_not_committed_is_halved(repository: Repository) -> None:
    """The state of that batch is computed anew, from the one before."""
    repository.send(4)
    life = begin(repository)
    group = life.claim()
    assert len(life.plan(group)) == 4
    again = begin(repository)
    assert again.claim() == group
    assert len(again.plan(group)) == 2


def test_its_batch_cannot_be_void(repository: Repository) -> None:
    repository.send(2)
    life = begin(repository)
    requests = life.plan(life.claim())
    with pytest.raises(errors.IllegalState, match="requests that are not all finished"):
        life.commit(life.stage(requests[:1], named=requests))
    assert life.commit(life.stage(requests, named=requests)).done == 2


def test_a_former_life_does_not_purge(repository: Repository) -> None:
    life = begin(repository)
    begin(repository)
    with pytest.raises(errors.Fenced):
        purge(life, 1)
