"""The Spark server's functions in the database, without Spark: claim groups, tag, charges."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model import ops
from onceq.model.element import KillAnswer
from onceq.model.spark_ops import (
    SparkBound,
    SparkClose,
    SparkCommitted,
    SparkDiscard,
    SparkRequest,
)
from tests.parts import plain
from tests.spark.spark_life import Life, Reply
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=3)
    yield made
    made.close()


@pytest.fixture
def life(repository: Repository) -> Iterator[Life]:
    made = Life(repository)
    yield made
    made.end()


def test_a_batch_moves_requests_to_replies_history_and_tables(
    repository: Repository, life: Life
) -> None:
    rids = repository.send(7)
    group = life.claim()
    requests = life.plan(group)
    assert [request.rid for request in requests] == rids
    assert {request.registrant for request in requests} == {"till"}
    assert life.commit(life.stage(requests)) == SparkCommitted(
        verdict="committed", done=7, failed=0, returned=0
    )
    assert repository.replies() == dict.fromkeys(rids, ("done", b"ok"))
    assert [row[0] for row in repository.booked()] == rids
    assert repository.totals() == {"a0": 0 + 3 + 6, "a1": 1 + 4, "a2": 2 + 5}
    assert repository.ask("select count(*) from {}.history where outcome = 'done'") == [(7,)]
    timed = "enqueued_at < started_at and started_at < finished_at"
    assert repository.ask(f"select count(*) from {{}}.history where {timed}") == [(7,)]
    for table in ("spark_attempt", "spark_reply", "spark_row", "spark_group"):
        assert repository.ask("select count(*) from {}." + table) == [(0,)]
    assert life.claim(group) == group


def test_what_the_client_sees_is_as_from_a_native_server(
    repository: Repository, life: Life
) -> None:
    (rid,) = repository.send(1)
    eid = repository.eids()[rid]
    life.commit(life.stage(life.plan(life.claim())))
    client = repository.client
    receive = ops.Receive(who=client.who, s_rid=rid, s_no=1, skip=[])
    (reply,) = repository.driver.perform(receive)
    assert (reply.rid, reply.body, reply.correlation_id) == (rid, b"ok", str(eid))


def test_a_commit_that_comes_again_is_a_replay(repository: Repository, life: Life) -> None:
    repository.send(3)
    group = life.claim()
    requests = life.plan(group)
    life.commit(life.stage(requests))
    again = Life(repository)
    assert again.claim() == 0
    assert again.plan(group) == []
    assert again.commit(life_staged := again.stage([])).verdict == "replay"
    assert life_staged[1] == 0
    assert repository.totals() == {"a0": 0, "a1": 1, "a2": 2}


def test_a_deleted_checkpoint_is_another_query_and_goes_on(
    repository: Repository, life: Life
) -> None:
    repository.send(3)
    life.commit(life.stage(life.plan(life.claim()), batch=4), batch=4)
    repository.send(3, first=3)
    again = Life(repository)
    group = again.claim()
    committed = again.commit(again.stage(again.plan(group), query="r"), query="r")
    assert (committed.verdict, committed.done) == ("committed", 3)


def test_an_older_checkpoint_is_refused(repository: Repository, life: Life) -> None:
    group = 0
    for batch in range(3):
        repository.send(1, first=batch)
        group = life.claim(group)
        life.commit(life.stage(life.plan(group), batch=batch), batch=batch)
    repository.send(1, first=3)
    again = Life(repository)
    requests = again.plan(again.claim(1))
    with pytest.raises(errors.FileMismatch, match="older than the registration"):
        again.commit(again.stage(requests, batch=1), batch=1)
    assert repository.seqs_left() == 1


def test_a_checkpoint_of_elsewhere_is_refused(repository: Repository, life: Life) -> None:
    repository.send(1)
    with pytest.raises(errors.FileMismatch, match="another server or repository"):
        life.claim(start=10_000)


def test_the_former_life_is_fenced(repository: Repository, life: Life) -> None:
    repository.send(2)
    requests = life.plan(life.claim())
    staged = life.stage(requests)
    newer = Life(repository)
    for call in (
        life.claim,
        lambda: life.plan(1),
        lambda: life.stage([]),
        lambda: life.commit(staged),
        lambda: life.driver.perform(SparkClose(server_id=life.who.server_id, epoch=life.who.epoch)),
    ):
        with pytest.raises(errors.Fenced, match="is over"):
            call()
    assert repository.replies() == {}
    assert (
        newer.driver.perform(SparkClose(server_id=newer.who.server_id, epoch=newer.who.epoch)) == 2
    )


def test_killed_between_read_and_commit_is_in_no_total(repository: Repository, life: Life) -> None:
    repository.send(6)
    eid = repository.eids()["r5"]
    staged = life.stage(life.plan(life.claim()))
    assert repository.driver.perform(ops.Kill(eid=eid)) is KillAnswer.KILLED
    assert life.commit(staged).done == 5
    assert repository.totals() == {"a0": 0 + 3, "a1": 1 + 4, "a2": 2}
    assert [row[0] for row in repository.booked()] == ["r0", "r1", "r2", "r3", "r4"]
    assert repository.replies()["r5"][0] == "cancelled"
    assert repository.driver.perform(ops.Kill(eid=eid)) is KillAnswer.KILLED


def test_taken_over_between_read_and_commit_is_in_no_total(
    repository: Repository, life: Life
) -> None:
    repository.send(6)
    staged = life.stage(life.plan(life.claim()))
    repository.do("update {}.element set claimed_by = null, lane = 10 /* due */ where rid = 'r4'")
    repository.do("update {}.element set not_before = now() where rid = 'r4'")
    other = Life(repository, "other")
    assert other.commit(other.stage(other.plan(other.claim()), query="o"), query="o").done == 1
    assert life.commit(staged).done == 5
    assert repository.totals() == {"a0": 0 + 3, "a1": 1 + 4, "a2": 2 + 5}


def test_an_error_is_an_abort_and_the_others_commit(repository: Repository, life: Life) -> None:
    repository.send(3)

    def reply(request: SparkRequest) -> Reply:
        return (None, "no stock", None) if request.rid == "r1" else ("ok", None, None)

    group = 0
    fates = []
    for batch in range(3):
        group = life.claim(group)
        staged = life.stage(life.plan(group), batch=batch, reply=reply)
        committed = life.commit(staged, batch=batch)
        fates.append((committed.done, committed.returned, committed.failed))
    assert fates == [(2, 1, 0), (0, 1, 0), (0, 0, 1)]
    assert repository.replies()["r1"] == ("failed", b"")
    held = repository.ask("select rid, aborts, error from {}.element where role = 'failed'")
    assert held == [("r1", 3, "no stock")]
    assert repository.totals() == {"a0": 0, "a2": 2}


def test_a_rejected_request_fails_at_once(repository: Repository, life: Life) -> None:
    repository.send(1)
    staged = life.stage(life.plan(life.claim()), reply=lambda _: (None, "negative", True))
    assert life.commit(staged).failed == 1
    assert repository.ask("select code, error from {}.element where role = 'reply'") == [
        ("rejected", "negative")
    ]


def test_two_replies_none_and_one_to_an_unknown_eid(repository: Repository, life: Life) -> None:
    repository.send(4)
    requests = life.plan(life.claim())
    stranger = dataclasses.replace(requests[0], eid=uuid4())
    staged = life.stage([requests[0], requests[1], requests[1], stranger])
    committed = life.commit(staged)
    assert (committed.done, committed.returned, committed.failed) == (1, 3, 0)
    codes = repository.ask("select rid, code from {}.element where role = 'request' order by rid")
    assert codes == [("r1", "doubled"), ("r2", "unanswered"), ("r3", "unanswered")]
    assert repository.totals() == {"a0": 0}


def test_a_reply_in_a_later_batch_finishes_what_was_held(repository: Repository) -> None:
    life = Life(repository, hold_s=3600)
    repository.send(2)
    first = life.plan(life.claim())
    assert life.commit(life.stage(first[:1])).returned == 0
    repository.send(1, first=2)
    second = life.plan(life.claim(1))
    assert [request.rid for request in second] == ["r2"]
    assert life.commit(life.stage([first[1], *second], batch=1), batch=1).done == 2
    assert repository.seqs_left() == 0
    assert repository.ask("select count(*) from {}.spark_group") == [(0,)]


def test_held_too_long_is_an_abort(repository: Repository) -> None:
    life = Life(repository, hold_s=3600)
    repository.send(1)
    life.commit(life.stage(life.plan(life.claim())[:0]))
    repository.do("update {}.spark_group set held_until = now()")
    group = life.claim(1)
    assert [request.aborts for request in life.plan(group)] == [1]


def test_rows_lost_from_the_stage_void_the_commit(repository: Repository, life: Life) -> None:
    repository.send(2)
    staged = life.stage(life.plan(life.claim()))
    life.driver.perform(SparkDiscard(attempts=staged[0]))
    with pytest.raises(errors.EnvironmentFault, match="went down in between"):
        life.commit(staged)
    assert repository.seqs_left() == 2


def test_a_group_that_was_not_begun_is_returned_whole(repository: Repository, life: Life) -> None:
    repository.send(5)
    group = life.claim()
    again = Life(repository)
    assert again.claim() == group
    assert len(again.plan(group)) == 5


@pytest.mark.parametrize("poison", [0, 6, 12])
def test_poison_costs_log_n_plus_limit_lives_and_harms_nobody_else(
    repository: Repository, poison: int
) -> None:
    rids = repository.send(13)
    lives = start = batch = 0
    while repository.seqs_left() and lives < 40:
        life = Life(repository)
        lives += 1
        for _ in range(40):
            group = life.claim(start)
            if group == start:
                break
            requests = life.plan(group)
            if any(request.rid == f"r{poison}" for request in requests):
                break
            life.commit(life.stage(requests, batch=batch), batch=batch)
            start, batch = group, batch + 1
        assert lives <= 1 + 4 + 3
    outcomes = {rid: outcome for rid, (outcome, _) in repository.replies().items()}
    assert outcomes == {rid: "failed" if rid == f"r{poison}" else "done" for rid in rids}
    failed = repository.ask("select rid, aborts from {}.element where role = 'failed'")
    assert failed == [(f"r{poison}", 3)]
    assert repository.ask("select max(aborts) from {}.history where outcome = 'done'") == [(0,)]


def test_an_innocent_end_charges_and_halves_nothing_ten_times(repository: Repository) -> None:
    repository.send(1)
    for _ in range(11):
        life = Life(repository, innocent=True)
        assert [request.aborts for request in life.plan(life.claim())] == [0]
    Life(repository, innocent=True).end()
    (row,) = repository.ask("select aborts, lane from {}.element where role = 'request'")
    assert row == (1, 11)


def test_available_now_takes_what_was_there(repository: Repository, life: Life) -> None:
    repository.send(4)
    bound = life.driver.perform(SparkBound())
    repository.send(4, first=4)
    group = life.claim(n=3, bound=bound)
    # Not committed, and yet the query has passed it: released, and claimed again.
    again = life.claim(group, bound=bound)
    assert [request.rid for request in life.plan(again)] == ["r0", "r1", "r2", "r3"]
    assert life.claim(again, n=0, bound=0) == again


def test_the_sweep_leaves_live_attempts(repository: Repository, life: Life) -> None:
    repository.send(2)
    requests = life.plan(life.claim())
    orphan = life.stage(requests[:1])
    live = life.stage(requests)
    other = Life(repository, "other")
    others = other.stage([], query="o")
    repository.send(1, first=2)
    life.commit(live)
    left = {row[0] for row in repository.ask("select attempt from {}.spark_attempt")}
    assert left == set(others[0])
    assert repository.ask("select count(*) from {}.spark_reply") == [(0,)]
    assert orphan[0][0] not in left


def test_native_servers_and_spark_share_a_queue(repository: Repository, life: Life) -> None:
    rids = repository.send(6)
    driver = SparkDriver(connect(repository.conninfo), repository.name)
    repository.opened.append(driver.connection)
    native = driver.perform(ops.OpenIncarnation(process=uuid4(), host="here", pid=1))
    claim = ops.Claim(
        incarnation=native.incarnation, queue_id=life.who.queue_id, n=2, turn=1, alone=True
    )
    assert len(driver.perform(claim)) == 2
    group = life.claim()
    requests = life.plan(group)
    assert [request.rid for request in requests] == rids[2:]
    # What looks for dead native servers leaves claim groups alone.
    assert driver.perform(ops.TakeOver(process=uuid4())) in (0, 1)
    assert len(life.plan(group)) == 4
    driver.perform(ops.CloseIncarnation(incarnation=native.incarnation))
    assert life.commit(life.stage(requests)).done == 4
    rest = life.plan(life.claim(group))
    assert [request.rid for request in rest] == rids[:2]


def test_what_is_fresh_and_what_came_back_are_claimed_first_in_turn(
    repository: Repository, life: Life
) -> None:
    """What is always due again does not keep the fresh ones waiting, nor they it."""
    repository.send(2)
    first: list[str] = []
    group = 0
    for batch in range(4):
        group = life.claim(group, n=1)
        requests = life.plan(group)
        first += [request.rid for request in requests]
        repository.send(1, first=2 + batch)
        life.commit(life.stage(requests, batch, reply=lambda _: (None, "always", None)), batch)
        repository.do("update {}.element set turn = 1 where lane = 10 /* due */")
    assert first == ["r0", "r1", "r0", "r2"]


def test_what_the_environment_failed_is_run_again_uncharged(
    repository: Repository, life: Life
) -> None:
    repository.send(1)
    staged = life.stage(life.plan(life.claim()), reply=lambda _: (None, "away", None))
    repository.do("update {}.spark_reply set retry = true, code = 'Retry'")
    assert life.commit(staged).returned == 1
    fate = "select e.aborts, faults, charge, t.code from {}.element e join {}.attempt t using (eid)"
    assert repository.ask(fate) == [(0, 1, "environment", "Retry")]


@pytest.mark.parametrize(
    ("after_s", "waits_s"), [("90", 90), ("null", 0), ("-5", 0), ("'NaN'", 31_536_000)]
)
def test_a_retry_says_how_long_its_request_waits(
    repository: Repository, life: Life, after_s: str, waits_s: int
) -> None:
    repository.send(1)
    staged = life.stage(life.plan(life.claim()), reply=lambda _: (None, "busy", None))
    repository.do(f"update {{}}.spark_reply set retry = true, after_s = {after_s}")
    assert life.commit(staged).returned == 1
    due = "select round(extract(epoch from not_before - ended_at)) from {}.element join {}.attempt"
    assert repository.ask(f"{due} using (eid)") == [(waits_s,)]


def test_a_server_has_one_number_in_all_its_lives(repository: Repository, life: Life) -> None:
    """In history and in the attempts: by an answer, an error, nothing at all, and its own death."""
    first, failed, _ = repository.send(3)
    requests = life.plan(life.claim())
    replies = {first: ("ok", None, None), failed: (None, "no", None)}
    answered = [request for request in requests if request.rid in replies]
    life.commit(life.stage(answered, reply=lambda request: replies[request.rid]))
    repository.send(1, first=3)
    alone = Life(repository)
    alone.plan(alone.claim(n=1))
    last = Life(repository)
    assert last.who.server_id == life.who.server_id
    codes = repository.ask("select code from {}.attempt order by code")
    assert codes == [("handler",), ("server_died",), ("unanswered",)]
    query = "select server from {}.history union select server from {}.attempt"
    assert repository.ask(query) == repository.ask("select server_no from {}.spark_server")


def test_what_is_refused_of_an_empty_batch_is_nobodys(repository: Repository) -> None:
    """It was halved for ever: nothing has no half."""
    narrow = f"select {repository.name}.spark_narrow('{{}}', '{{1}}', null, null)"
    with plain(repository.conninfo) as connection:
        connection.execute("set statement_timeout = '10s'")
        [([found],)] = connection.execute(narrow.encode()).fetchall()
    assert found["eid"] is None
    assert "cannot extract elements from an object" in found["error"]
