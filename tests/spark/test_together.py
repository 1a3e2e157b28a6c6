"""Several servers at once: of two queues, of one under two names, beside a native one."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import errors
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model import ops
from onceq.model.queue import Queue, QueueSettings
from onceq.model.spark_ops import SparkBound, SparkOpen
from onceq.spark import Server, ServerSettings, insert
from tests.spark.faulty_source import FaultyServer, book
from tests.spark.serving import ORDERS, Order, Receipt, check_all_done, make_server
from tests.spark.spark_life import Life
from tests.spark.spark_parts import QUEUE, Repository, make_repository
from tests.spark.test_serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
REFUNDS = Queue("refunds", Order, Receipt)
LIMIT_S = 200


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=2)
    yield made
    made.close()


def serve_all(
    servers: Sequence[FaultyServer], spark: SparkSession, repository: Repository, place: Path
) -> list[str]:
    """Let servers serve what is there, each in a thread; return what was to blame for failures."""

    def serve(server: FaultyServer) -> None:
        server.run(
            repository.conninfo,
            repository=repository.name,
            spark=spark,
            checkpoint=place / server.name,
            once=True,
        )

    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(serve, servers, timeout=LIMIT_S))
    failures = {kind for server in servers for kind in server.statistics().failures}
    return sorted(failures - {"ENVIRONMENT"})


def test_two_queues_in_one_session(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(6)
    repository.driver.perform(ops.CreateQueue(queue="refunds", settings=QueueSettings()))
    repository.do("create table {}.refunded (rid text unique, customer text, cents bigint)")
    body = msgspec.json.encode({"customer": "b", "cents": 1})
    repository.driver.perform(ops.EnqueueMany(queue="refunds", bodies=[body] * 4))
    tables = {"booked": insert(into=f"{repository.name}.refunded")}
    refunds = FaultyServer(REFUNDS, batch=refund, tables=tables)
    refunds.faults = str(tmp_path)
    orders = make_server(repository.name, tmp_path)
    assert serve_all([orders, refunds], spark, repository, tmp_path) == []
    check_all_done(repository, rids)
    assert repository.ask("select count(*), min(cents), max(cents) from {}.refunded") == [(4, 1, 1)]


def refund(requests: Any) -> Any:
    return book(requests).select("eid", "reply", "booked")


def test_one_queue_under_two_names(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    rids = repository.send(12)
    servers = [
        make_server(repository.name, tmp_path, name=name, batch_rows=2) for name in ("one", "two")
    ]
    assert serve_all(servers, spark, repository, tmp_path) == []
    check_all_done(repository, rids)


def test_several_queries_serve_as_one_server(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """Each has batches of its own; one that meets a poisonous request harms nobody else's."""
    rids = repository.send(40)
    poison = repository.send(1, first=40, customer="poison")
    options: dict[str, Any] = {"batch_rows": 4}
    options["settings"] = ServerSettings(queries=3, backoff_s=0.01)
    server = make_server(repository.name, tmp_path, **options)
    where: dict[str, Any] = {"repository": repository.name, "spark": spark}
    where["checkpoint"] = tmp_path / "notes"

    def each_has_served() -> bool:
        if not repository.seqs_left():  # one was slow to start: there is work for it, too
            rids.extend(repository.send(12, first=len(rids) + 1))
        served = repository.ask(
            "select s.name from {}.spark_server s where exists"
            " (select from {}.history h where h.server = s.server_no) order by s.name"
        )
        return [name for (name,) in served] == ["spark", "spark/2", "spark/3"]

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.run, repository.conninfo, **where)
        try:
            wait_until(lambda: each_has_served() or serving.done(), 120)
        finally:
            server.stop()
        serving.result()
    assert each_has_served()
    lives = server.statistics().lives
    after = make_server(repository.name, tmp_path, **options)
    after.run(repository.conninfo, once=True, **where)
    assert lives + after.statistics().lives > 2 * 3, "the poison ended a query"
    assert {found.name for found in tmp_path.glob("notes*")} == {"notes", "notes-2", "notes-3"}
    assert repository.ask(
        "select rid, outcome::text, aborts from {}.element"
        " where outcome = 'failed' and role = 'reply'"
    ) == [(*poison, "failed", 2)]
    repository.do("delete from {}.element where outcome = 'failed'")
    repository.do("delete from {}.history where outcome = 'failed'")
    check_all_done(repository, rids)


def test_a_query_of_several_that_is_fenced_ends_all_and_loses_nothing(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    server = make_server(repository.name, tmp_path, settings=ServerSettings(queries=2))
    where: dict[str, Any] = {"repository": repository.name, "spark": spark}
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.run, repository.conninfo, **where)
        first = "select from {}.spark_server where epoch = 1"
        wait_until(lambda: len(repository.ask(first)) == 2, 120)
        repository.driver.perform(SparkOpen(name="spark/2", queue=QUEUE))
        try:
            wait([serving], 120)
        finally:
            if not serving.done():
                server.stop()
        with pytest.raises(errors.Fenced, match="spark/2"):
            serving.result()
    assert not repository.ask("select from {}.spark_group")
    rids = repository.send(6)
    lives = server.statistics().lives
    server.run(repository.conninfo, once=True, **where)
    assert server.statistics().lives >= lives + 2
    assert not server._counted[1], "it keeps counts of its runs, and nothing else"
    check_all_done(repository, rids)


def test_the_queries_of_a_server_have_names_and_one_owner_of_its_state() -> None:
    with pytest.raises(errors.InvalidValue, match="state has one owner"):
        ServerSettings(queries=2, stateful=True)
    with pytest.raises(errors.InvalidValue, match="queries"):
        ServerSettings(queries=0)
    settings = ServerSettings(queries=11)
    with pytest.raises(errors.InvalidName, match="Spark server"):
        Server(ORDERS, batch=book, name="n" * 198, settings=settings)


def test_beside_a_native_server(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    """Both take from one queue, and what each request does is done once."""
    booked, totals = f"{repository.name}.booked", f"{repository.name}.totals"

    def handle(order: Order, context: onceq.Context) -> Receipt:
        row = (context.rid, order.customer, order.cents)
        insert = f"insert into {booked} values (%s, %s, %s)"
        context.connection.execute(insert.encode(), row)
        more = "on conflict (customer) do update set cents = t.cents + excluded.cents"
        add = f"insert into {totals} as t values (%s, %s) {more}"
        context.connection.execute(add.encode(), row[1:])
        return Receipt(order.cents)

    orders = Queue(QUEUE, Order, Receipt, abort_limit=2, backoff_ms=0, backoff_max_ms=0)
    native = onceq.Server([orders.handled_by(handle, batch=5)])
    rids = repository.send(400)
    where = {"repository": repository.name}
    thread = threading.Thread(target=native.run, args=(repository.conninfo,), kwargs=where)
    spark_s = make_server(repository.name, tmp_path, batch_rows=50)
    with ThreadPoolExecutor() as pool:
        serving = pool.submit(serve_all, [spark_s], spark, repository, tmp_path)
        taken = "select 1 from {}.spark_group"
        wait_until(lambda: repository.ask(taken) or serving.done())
        thread.start()
        assert serving.result(LIMIT_S) == []
    wait_until(lambda: repository.seqs_left() == 0)
    native.stop()
    thread.join(LIMIT_S)
    check_all_done(repository, rids)


def test_what_is_sent_meanwhile_does_not_keep_it_from_ending(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    before = repository.send(5)
    sent = list(before)
    is_over = threading.Event()

    def produce() -> None:
        producer = dataclasses.replace(repository, driver=SparkDriver(opened(), repository.name))
        while not is_over.wait(0.02):
            sent.extend(producer.send(1, first=len(sent)))

    def opened() -> Any:
        repository.opened.append(connect(repository.conninfo))
        return repository.opened[-1]

    def batch(requests: Any) -> Any:
        """Books, once two more were sent: the second after it was set what is to be served."""
        before = len(sent)
        wait_until(lambda: len(sent) >= before + 2)
        return book(requests)

    with ThreadPoolExecutor() as pool:
        producing = pool.submit(produce)
        wait_until(lambda: len(sent) > len(before))
        try:
            server = make_server(repository.name, tmp_path, batch_rows=3, batch=batch)
            assert serve_all([server], spark, repository, tmp_path) == []
        finally:
            is_over.set()
        producing.result(LIMIT_S)
    assert repository.replies().keys() >= set(before)
    assert repository.seqs_left() > 0, "it ended only when nothing was left"
    server = make_server(repository.name, tmp_path)
    assert serve_all([server], spark, repository, tmp_path) == []
    check_all_done(repository, sent)


def test_a_producer_that_commits_late_is_not_lost(repository: Repository) -> None:
    """Its element has a lower number than those that Spark has taken before it was there."""
    late = dataclasses.replace(
        repository, driver=SparkDriver(connect(repository.conninfo), repository.name)
    )
    repository.opened.append(late.driver.connection)
    with late.driver.connection.transaction():
        late.driver.perform(
            ops.Enqueue(queue=ORDERS.name, body=b"{}", rid="late", own_transaction=False)
        )
        (soon,) = repository.send(1)
        life = Life(repository)
        group = life.claim()
        requests = life.plan(group)
        assert [one.rid for one in requests] == [soon]
        life.commit(life.stage(requests))
        bound = life.driver.perform(SparkBound())
    assert [one.rid for one in life.plan(life.claim(group, bound=bound))] == ["late"]
    seqs = repository.ask("select min(enqueued_at) from {}.element where rid = 'late'")
    assert seqs[0][0] < requests[0].enqueued_at
