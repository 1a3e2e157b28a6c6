"""Rows computed from several requests: they count only if all of these are finished with them."""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import NAMED, REPLIES, ROWS, SparkDriver
from onceq.model import ops
from onceq.model.element import KillAnswer
from onceq.model.spark_ops import SparkAttempt, SparkCommitted
from onceq.spark import add
from onceq.spark.serve import encode
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository
from tests.spark.test_serving import serve_once, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from onceq.model.spark_ops import SparkRequest

pytestmark = pytest.mark.timeout(400)
TOTALS = pa.struct([("customer", pa.string()), ("cents", pa.int64())])
COLUMNS = ("eid", "eids", "reply", "error", "totals")


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


def asks(request: SparkRequest) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(request.body)
    return found


def answered(request: SparkRequest, error: str | None = None) -> tuple[Any, ...]:
    return (str(request.eid), None, None if error else b"ok", error, None)


def summed(requests: Sequence[SparkRequest]) -> Iterator[tuple[Any, ...]]:
    """Yield one row of the totals for each customer, computed from all of its requests."""
    for customer in sorted({asks(request)["customer"] for request in requests}):
        own = [request for request in requests if asks(request)["customer"] == customer]
        cents = sum(asks(request)["cents"] for request in own)
        eids = [str(request.eid) for request in own]
        yield (None, eids, None, None, {"customer": customer, "cents": cents})


def record_batch(rows: Sequence[tuple[Any, ...]]) -> Any:
    types = (pa.string(), pa.list_(pa.string()), pa.binary(), pa.string(), TOTALS)
    columns = zip(zip(*rows, strict=True), types, strict=True)
    return pa.record_batch([pa.array(some, kind) for some, kind in columns], names=COLUMNS)


def staged(life: Life, rows: Sequence[tuple[Any, ...]], batch: int = 0) -> tuple[list[int], int]:
    """Stage what a batch function returned, as the sink does."""
    found = record_batch(rows)
    who = {"server_id": life.who.server_id, "epoch": life.who.epoch}
    with life.driver.staging(SparkAttempt(**who, query_id="q", batch_id=batch)) as stage:
        stage.copy(REPLIES, *encode.replies(found, stage.attempt))
        stage.copy(NAMED, *encode.named(found, stage.attempt))
        for lines in encode.table_rows(found, stage.attempt, ["totals"]):
            stage.copy(ROWS, *lines)
    into = f"{life.repository.name}.totals"
    life.tables = [add("customer", "cents", into=into).for_sql("totals", 1, ["customer", "cents"])]
    return [stage.attempt], stage.rows


def test_rows_of_several_requests_count_when_all_are_finished(
    repository: Repository, life: Life
) -> None:
    rids = repository.send(7)
    requests = life.plan(life.claim())
    rows = [*map(answered, requests), *summed(requests)]
    assert life.commit(staged(life, rows)) == SparkCommitted(
        verdict="committed", done=7, failed=0, returned=0
    )
    assert repository.totals() == {"a0": 0 + 3 + 6, "a1": 1 + 4, "a2": 2 + 5}
    assert repository.replies() == dict.fromkeys(rids, ("done", b"ok"))
    assert repository.ask("select count(*) from {}.spark_named") == [(0,)]


def test_a_kill_in_between_voids_the_batch_and_charges_nobody(
    repository: Repository, life: Life
) -> None:
    repository.send(4)
    eid = repository.eids()["r3"]
    group = life.claim()
    requests = life.plan(group)
    late = staged(life, [*(answered(one, "no") for one in requests[:1]), *summed(requests)])
    assert repository.driver.perform(ops.Kill(eid=eid)) is KillAnswer.KILLED
    assert life.commit(late) == SparkCommitted(verdict="void", done=0, failed=0, returned=0)
    assert repository.totals() == {}
    assert repository.ask(
        "select rid, aborts, claimed_by from {}.element where role = 'request' order by seq"
    ) == [(f"r{n}", 0, None) for n in range(3)]
    assert life.commit(late).verdict == "replay"
    requests = life.plan(life.claim(group))
    rows = [*map(answered, requests), *summed(requests)]
    assert life.commit(staged(life, rows, 1), 1).done == 3
    assert repository.totals() == {"a0": 0, "a1": 1, "a2": 2}
    assert repository.replies()["r3"][0] == "cancelled"


@pytest.mark.parametrize("killed", ["r0", "r1"])
def test_a_reply_of_several_needs_the_one_it_answers_and_the_others(
    repository: Repository, life: Life, killed: str
) -> None:
    repository.send(3)
    requests = life.plan(life.claim())
    buyer, seller, other = requests
    reply = (str(buyer.eid), [str(seller.eid)], b"met", None, None)
    late = staged(life, [reply, answered(seller), answered(other)])
    repository.driver.perform(ops.Kill(eid=repository.eids()[killed]))
    assert life.commit(late).verdict == "void"
    assert repository.replies().keys() == {killed}


def test_a_kill_under_way_at_the_commit_is_waited_for(repository: Repository, life: Life) -> None:
    repository.send(4)
    requests = life.plan(life.claim())
    late = staged(life, [*map(answered, requests), *summed(requests)])
    pid = life.driver.connection.info.backend_pid
    with ThreadPoolExecutor() as pool:
        with repository.driver.connection.transaction():
            repository.driver.perform(ops.Kill(eid=requests[3].eid))
            committing = pool.submit(life.commit, late)
            wait_until(
                lambda: repository.ask("select 1 where cardinality(pg_blocking_pids(%s)) > 0", pid)
            )
        assert committing.result().verdict == "void"
    assert repository.totals() == {}


def test_an_error_in_a_row_of_several_is_charged_to_its_request(
    repository: Repository, life: Life
) -> None:
    repository.send(3)
    group = 0
    for batch in range(3):
        group = life.claim(group)
        requests = life.plan(group)
        fates = [answered(one, "no" if one.rid == "r1" else None) for one in requests]
        committed = life.commit(staged(life, [*fates, *summed(requests)], batch), batch)
        assert (committed.verdict, committed.done) == ("void", 0)
    assert repository.totals() == {}
    group = life.claim(group)
    requests = life.plan(group)
    rows = [*map(answered, requests), *summed(requests)]
    assert [one.aborts for one in requests] == [0, 0]
    assert life.commit(staged(life, rows, 3), 3).done == 2
    assert repository.totals() == {"a0": 0, "a2": 2}
    held = repository.ask("select rid, aborts, error from {}.element where role = 'failed'")
    assert held == [("r1", 3, "no")]


def test_what_is_named_and_not_answered_is_charged(repository: Repository, life: Life) -> None:
    repository.send(2)
    requests = life.plan(life.claim())
    rows = [answered(requests[0]), *summed(requests)]
    assert life.commit(staged(life, rows)).verdict == "void"
    left = repository.ask("select rid, aborts, code from {}.element where role = 'request'")
    assert sorted(left) == [("r0", 0, None), ("r1", 1, "unanswered")]


@pytest.mark.parametrize("whose", ["nobody's", "one that waits", "one that ended long ago"])
def test_what_the_batch_has_not_read_is_an_error(
    repository: Repository, life: Life, whose: str
) -> None:
    """Else it would be void for ever."""
    (old,) = repository.send(1)
    eid = repository.eids()[old]
    life.commit(life.stage(life.plan(life.claim())))
    repository.do("update {}.history set finished_at = finished_at - interval '1 hour'")
    (waiting, read) = repository.send(2, first=1)
    eids = {"nobody's": uuid4(), "one that ended long ago": eid}
    eids |= {"one that waits": repository.eids()[read]}
    requests = life.plan(life.claim(1, n=1))
    assert [one.rid for one in requests] == [waiting]
    rows = [*map(answered, requests), (None, [str(eids[whose])], None, None, None)]
    with pytest.raises(errors.IllegalState, match="which this batch has not read"):
        life.commit(staged(life, rows, 1), 1)
    assert repository.seqs_left() == 2


def test_what_ended_long_ago_in_a_long_batch_was_read_by_it(
    repository: Repository, life: Life
) -> None:
    """The server has given signs of life ever since, which say nothing of what it has read."""
    repository.send(2)
    requests = life.plan(life.claim())
    late = staged(life, [answered(requests[0]), *summed(requests)])
    killed = repository.driver.perform(ops.Kill(eid=requests[1].eid))
    assert killed is KillAnswer.KILLED
    repository.do("update {}.history set finished_at = finished_at - interval '1 hour'")
    repository.do("update {}.spark_group set begun_at = begun_at - interval '2 hours'")
    assert life.commit(late).verdict == "void"
    assert repository.totals() == {}


def test_rows_lost_from_what_is_named_void_the_commit(repository: Repository, life: Life) -> None:
    repository.send(2)
    requests = life.plan(life.claim())
    late = staged(life, [*map(answered, requests), *summed(requests)])
    repository.do("delete from {}.spark_named")
    with pytest.raises(errors.EnvironmentFault, match="went down in between"):
        life.commit(late)


@pytest.mark.parametrize("seed", range(12))
def test_totals_are_the_sum_over_what_was_executed(repository: Repository, seed: int) -> None:
    """Whatever is killed, taken over or answered with an error between reading and commit."""
    chance = random.Random(seed)
    life = Life(repository)
    repository.send(9)
    group = batch = 0
    while repository.seqs_left() and batch < 60:
        group = life.claim(group, n=chance.randint(1, 9))
        requests = life.plan(group)
        rows = [answered(one, "no" if chance.random() < 0.15 else None) for one in requests]
        late = staged(life, [*rows, *summed(requests)], batch) if rows else life.stage([], batch)
        disturb(repository, requests, chance)
        committed = life.commit(late, batch)
        assert committed.verdict in ("committed", "void")
        batch += 1
    sent = {f"r{n}": (f"a{n % 3}", n) for n in range(9)}
    executed: dict[str, int] = {}
    for rid, (outcome, _) in repository.replies().items():
        customer, cents = sent[rid]
        if outcome == "done":
            executed[customer] = executed.get(customer, 0) + cents
    assert repository.replies().keys() == sent.keys()
    assert repository.totals() == executed
    assert batch < 60


def disturb(
    repository: Repository, requests: Sequence[SparkRequest], chance: random.Random
) -> None:
    """Kill some requests of a batch, and give some back as a takeover does."""
    for request in requests:
        fate = chance.random()
        if fate < 0.05:
            repository.driver.perform(ops.Kill(eid=request.eid))
        elif fate < 0.15:
            back = "update {}.element set claimed_by = null, lane = 10 /* due */"
            repository.do(f"{back}, not_before = now(), turn = 0 where eid = '{request.eid}'")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, None, None, None, None), "a row has no eid"),
        ((None, [], None, None, None), "a row has no eid"),
        ((None, ["e", None], None, None, None), "null in column 'eids'"),
        ((None, ["e"], b"ok", None, None), "a value in column 'reply', but no eid"),
        ((None, ["e"], None, "no", None), "a value in column 'error', but no eid"),
    ],
)
def test_rows_of_nobody_are_refused(row: tuple[Any, ...], says: str) -> None:
    found = record_batch([row])

    def encoded() -> list[encode.Lines]:
        answers = [encode.replies(found, 1), encode.named(found, 1)]
        return [*answers, *encode.table_rows(found, 1, ["totals"])]

    with pytest.raises(errors.InvalidValue, match=says):
        encoded()


def by_customer(requests: DataFrame, each: Any = None) -> DataFrame:
    """Answer each order, and add up each customer's in one row."""
    order = sf.col("request")
    rows = requests.select("eid", "rid", order.customer.alias("customer"), "request.cents")
    return rows.groupBy("customer").applyInArrow(each or one_customer, JOINT)


JOINT = (
    "eid string, eids array<string>, reply string, totals struct<customer: string, cents: bigint>"
)


def one_customer(orders: Any) -> Any:
    """Return an answer for each of a customer's orders, and one row of what they come to."""
    eids = orders.column("eid").to_pylist()
    total = {
        "customer": orders.column("customer")[0].as_py(),
        "cents": sum(orders.column("cents").to_pylist()),
    }
    rows = [{"eid": eid, "eids": None, "reply": "ok", "totals": None} for eid in eids]
    rows.append({"eid": None, "eids": eids, "reply": None, "totals": total})
    schema = [("eid", pa.string()), ("eids", pa.list_(pa.string())), ("reply", pa.string())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*schema, ("totals", TOTALS)]))


def test_spark_adds_up_by_customer(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(7)
    tables = {"totals": add("customer", "cents", into=f"{repository.name}.totals")}
    failures = serve_once(spark, repository, tmp_path, batch=by_customer, tables=tables)
    assert failures.keys() <= {"ENVIRONMENT"}
    assert repository.totals() == {"a0": 0 + 3 + 6, "a1": 1 + 4, "a2": 2 + 5}
    assert repository.replies() == dict.fromkeys(rids, ("done", b"ok"))


def test_spark_goes_on_after_a_void_batch(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """A request is killed after it was read, and is in a sum: the others are summed again."""
    rids = repository.send(7)
    victim, where, name = repository.eids()["r3"], repository.conninfo, repository.name
    once = tmp_path / "not yet"
    once.touch()

    def killing(orders: Any) -> Any:
        if once.exists():
            once.unlink(missing_ok=True)
            with contextlib.closing(connect(where)) as connection:
                SparkDriver(connection, name).perform(ops.Kill(eid=victim))
        return one_customer(orders)

    def batch(requests: DataFrame) -> DataFrame:
        return by_customer(requests, killing)

    tables = {"totals": add("customer", "cents", into=f"{name}.totals")}
    failures = serve_once(spark, repository, tmp_path, batch=batch, tables=tables)
    assert failures.keys() <= {"ENVIRONMENT"}
    assert repository.totals() == {"a0": 0 + 6, "a1": 1 + 4, "a2": 2 + 5}
    replies = repository.replies()
    assert replies.pop("r3")[0] == "cancelled"
    assert replies == dict.fromkeys(set(rids) - {"r3"}, ("done", b"ok"))
    assert repository.ask("select max(aborts) from {}.history") == [(0,)]
    (tag,) = repository.ask("select batch_id from {}.spark_server")
    assert tag[0] >= 1, "the void batch has a number of its own"
