"""DBOS: durable workflows on PostgreSQL, here each of one step.

Safe: one workflow at a time, whose SQL runs in a transaction of its datasource, serializable, as
is its default. Best: what its documentation offers for speed: fifty workflows at a time in a
process, and a plain step. A queue waits, at concurrency 0, until the servers are ready.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, SQLAlchemyDatasource
from psycopg_pool import ConnectionPool

from bench.workers import postgres
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
    EnqueueBatch,
    Place,
    RequestReply,
    RoundTrips,
    System,
    Timed,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_calls, timed_threads
from bench.workers.crew import Crew, Post, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = "bench"
WORKFLOW = "bench.handle"
ENQUEUED = {"queue_name": QUEUE, "workflow_name": WORKFLOW}
CONCURRENCY = {"best": 50, "safe": 1}  # of a process
POLL_S = 0.001  # of a queue, and for a result: both have no other way to hear of anything
CONNECTIONS = 10  # for the steps of a process
LOOK_S = 0.001
TEXT = BODY.decode()
OPEN = "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"
DONE = "select count(*) from dbos.workflow_status where status = 'SUCCESS'"

WEAKER = {
    "best": "at least once: the effect commits before the step's checkpoint does; the workflows of"
    " a dead process wait until a process of the same executor id starts; a result is found by"
    " polling.",
    "safe": "the effect commits once, with its checkpoint, but the workflow's claim and end are"
    " transactions of their own; the workflows of a dead process wait until a process of the same"
    " executor id starts; a result is found by polling.",
}
HOW = {
    "best": "clients are threads of one DBOSClient with a connection each; servers are processes,"
    " 50 workflows at a time in each, polling every ms; SQL in a step; results are polled for every"
    " ms",
    "safe": "clients are threads of one DBOSClient with a connection each; servers are processes,"
    " one workflow at a time in each, polling every ms; SQL in a transaction of the datasource;"
    " results are polled for every ms",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know. number: how many there are; 0 to serve until stopped."""

    name: str
    tally: Tally
    number: int
    user_sql: bool


def in_step(pool: Any) -> Callable[[str], None]:
    """Return a function that inserts in a plain step, with a connection of the pool."""

    def insert(body: str) -> None:
        with pool.connection() as connection:
            connection.execute(postgres.EFFECT, (body.encode(),))

    step: Callable[[str], None] = DBOS.step(name="insert")(insert)
    return step


def in_transaction(url: str) -> Callable[[str], None]:
    """Return a function that inserts in a transaction of a datasource, with its checkpoint."""
    source = SQLAlchemyDatasource.create(url)
    statement = sqlalchemy.text("insert into effect (body) values (:body)")

    def insert(body: str) -> None:
        source.sql_session().execute(statement, {"body": body.encode()})

    transaction: Callable[[str], None] = source.transaction(name="insert")(insert)
    return transaction


def serve(post: Post, place: Place, share: Share) -> float:
    """Execute workflows until all are done, or until stopped; return when that was."""
    conninfo = place.require_conninfo()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": postgres.url(conninfo),
            "application_version": "bench",
            "executor_id": share.name,
            "log_level": "ERROR",
        }
    )
    pool = ConnectionPool(
        conninfo,
        min_size=CONNECTIONS,
        max_size=CONNECTIONS,
        kwargs={"autocommit": True},
        open=False,
    )
    if place.setting == "best":
        insert = in_step(pool)
        pool.open(wait=True)
    else:
        insert = in_transaction(postgres.url(conninfo, "postgresql+psycopg"))

    def handle(body: str) -> str:
        if share.user_sql:
            insert(body)
        share.tally.add(1)
        return body

    DBOS.workflow(name=WORKFLOW)(handle)
    DBOS.launch()
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            post.wait_for_go()
            if not share.number:
                post.wait_for_stop()
            while share.tally.total() < share.number or (
                share.number and postgres.number(connection, OPEN)
            ):
                time.sleep(LOOK_S)
            return time.perf_counter()
    finally:
        DBOS.destroy()
        pool.close()


class Dbos(System):
    """Its tables are in the schema dbos of the database that is given."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.conninfo = place.require_conninfo()
        self.url = postgres.url(self.conninfo)
        DBOS.migrate(self.url)
        self.client = self._client(1)
        self.client.register_queue(QUEUE, worker_concurrency=0, polling_interval_sec=POLL_S)

    def _client(self, connections: int) -> Any:
        return DBOSClient(
            system_database_url=self.url,
            system_database_pool_size=connections,
            system_database_polling_concurrency=0,
        )

    def about(self) -> About:
        return About(
            system="dbos",
            version=version("dbos"),
            weaker=WEAKER[self.place.setting],
            how=HOW[self.place.setting],
        )

    def _count(self, query: Any) -> int:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            return postgres.number(connection, query)

    def _let(self, concurrency: int) -> None:
        """Let each process run that many workflows at a time."""
        self.client.retrieve_queue(QUEUE).set_worker_concurrency(concurrency)

    def enqueue(self, asked: Enqueue) -> Timed:
        client = self._client(asked.clients)

        def run(number: int) -> None:
            for _ in range(number):
                client.enqueue(ENQUEUED, TEXT)

        before = self._count(OPEN)
        try:
            timed_threads([partial(client.enqueue, ENQUEUED, TEXT)] * asked.clients)  # connects
            numbers = shares(asked.number, asked.clients)
            seconds = timed_threads([partial(run, number) for number in numbers])
        finally:
            client.destroy()
        require_count("enqueued", self._count(OPEN) - before, asked.number + asked.clients)
        return Timed(seconds=seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        engine = sqlalchemy.create_engine(postgres.url(self.conninfo, "postgresql+psycopg"))
        before = self._count(OPEN)
        with engine.connect() as connection:
            started = time.perf_counter()
            for size in shares(asked.number, -(-asked.number // asked.batch)):
                with connection.begin():
                    for _ in range(size):
                        self.client.enqueue_in_transaction(connection, ENQUEUED, TEXT)
            seconds = time.perf_counter() - started
        engine.dispose()
        require_count("enqueued", self._count(OPEN) - before, asked.number)
        return Timed(seconds=seconds)

    def _empty(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("truncate dbos.workflow_status cascade")

    def _roles(self, tally: Tally, asked: Dequeue) -> list[tuple[Place, Share]]:
        number, user_sql = asked.number, asked.user_sql
        names = [f"server-{index}" for index in range(asked.servers)]
        return [(self.place, Share(name, tally, number, user_sql)) for name in names]

    def dequeue(self, asked: Dequeue) -> Timed:
        postgres.empty_effects(self.conninfo)
        self._empty()
        self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            postgres.settle(connection)
        tally = Tally()
        with Crew(serve, self._roles(tally, asked)) as crew:
            started = crew.go()
            self._let(CONCURRENCY[self.place.setting])
            try:
                ended = max(crew.results())
            finally:
                self._let(0)
        require_count("executed", tally.total(), asked.number)
        require_count("done", self._count(DONE), asked.number)
        postgres.require_effects(self.conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=ended - started)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        self._empty()
        client = self._client(asked.clients)

        def call() -> None:
            result = client.enqueue(ENQUEUED, TEXT).get_result(polling_interval_sec=POLL_S)
            require_count("length of a result", len(result), len(TEXT))

        each_s: list[float] = []
        tally = Tally()
        roles = self._roles(tally, Dequeue(number=0, servers=asked.servers))
        with Crew(serve, roles) as crew:
            crew.go()
            self._let(CONCURRENCY[self.place.setting])
            try:
                numbers = shares(asked.number, asked.clients)
                seconds = timed_threads([partial(timed_calls, call, n, each_s) for n in numbers])
            finally:
                self._let(0)
            crew.stop()
            crew.results()
        client.destroy()
        require_count("executed", tally.total(), asked.number)
        return RoundTrips(seconds=seconds, each_s=each_s)

    def close(self) -> None:
        self.client.destroy()


if __name__ == "__main__":
    serve_commands(Dbos)
