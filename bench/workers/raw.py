"""The raw statements: what a good user of psycopg writes without any queue library.

INSERT; INSERT of an array; DELETE ... FOR UPDATE SKIP LOCKED with the user's SQL in the same
transaction; requests and replies in two tables, by polling. The setting `best` sends the
statements of a dequeue in two round trips, by pipelining; `safe` is the plain code.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg.sql

from bench.workers.askers import run_clients
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
from bench.workers.crowd import Shared, consumed, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Connection = psycopg.Connection[Any]

TABLES = """
create table incoming (id bigint generated always as identity primary key, body bytea not null);
create table waiting (id bigint generated always as identity primary key, body bytea not null);
create table request (id bigint generated always as identity primary key, client integer not null,
                      body bytea not null);
create table reply (id bigint generated always as identity primary key, client integer not null,
                    body bytea not null);
create index on reply (client, id);
create table effect (body bytea not null)
"""
TAKE = """
delete from waiting where id in
    (select id from waiting order by id limit %s for update skip locked) returning body
"""
TAKE_REQUEST = """
delete from request where id =
    (select id from request order by id limit 1 for update skip locked) returning client, body
"""
TAKE_REPLY = "delete from reply where client = %s returning body"
POLL_S = 0.001
POLL_S_MAX = 0.02
"""A client's pause between looks grows up to this: many that look sooner would only poll."""
WARM_UP = 20
"""Round trips of each client before it is timed."""


def connect(conninfo: str) -> Connection:
    """Return a connection that commits durably, statement by statement."""
    connection = psycopg.connect(conninfo, autocommit=True)
    connection.execute("set synchronous_commit = on")
    return connection


def serve_waiting(index: int, shared: Shared, place: Place, asked: Dequeue) -> None:
    """Be one server: take and execute, a transaction each, until told to stop."""
    shared.on_stop(lambda: None)
    step = pipelined_step if place.setting == "best" else plain_step
    with connect(place.require_conninfo()) as connection:
        shared.begin(index)
        while not shared.is_stopped():
            done = step(connection, asked)
            shared.done[index] += done
            if not done:
                time.sleep(POLL_S)


def plain_step(connection: Connection, asked: Dequeue) -> int:
    """Execute one batch, each statement a round trip; return how many it held."""
    with connection.transaction():
        rows = connection.execute(TAKE, (asked.batch,)).fetchall()
        if asked.user_sql:
            insert_effects(connection, rows)
    return len(rows)


def pipelined_step(connection: Connection, asked: Dequeue) -> int:
    """Execute one batch in two round trips: begin and take; the user's SQL and commit."""
    with connection.pipeline() as pipeline:
        connection.execute("begin")
        taken = connection.execute(TAKE, (asked.batch,))
        pipeline.sync()
        rows = taken.fetchall()
        if asked.user_sql:
            for row in rows:
                connection.execute("insert into effect values (%s)", row)
        connection.execute("commit")
    return len(rows)


def insert_effects(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert one row an execution, as a user's handler would."""
    if len(rows) == 1:
        connection.execute("insert into effect values (%s)", rows[0])
    elif rows:
        with connection.cursor() as cursor:
            cursor.executemany("insert into effect values (%s)", rows)


def serve_requests(index: int, shared: Shared, conninfo: str) -> None:
    """Be one server of requests with replies, by polling."""
    shared.on_stop(lambda: None)
    with connect(conninfo) as connection:
        while not shared.is_stopped():
            if not answer_one(connection):
                time.sleep(POLL_S)
            shared.done[index] += 1


def answer_one(connection: Connection, notify: Callable[[int], None] | None = None) -> bool:
    """Execute one request, if there is one; its reply is inserted in the same transaction."""
    with connection.transaction():
        row = connection.execute(TAKE_REQUEST).fetchone()
        if row is None:
            return False
        client, body = row
        connection.execute("insert into effect values (%s)", (body,))
        connection.execute("insert into reply (client, body) values (%s, %s)", (client, b"ok"))
        if notify is not None:
            notify(client)
    return True


class Asking:
    """A client with one request outstanding; polls for the reply."""

    def __init__(self, conninfo: str, number: int) -> None:
        self.connection = connect(conninfo)
        self.number = number
        self.each_s: list[float] = []

    def work(self, times: int) -> None:
        """Make round trips; how long each took is kept."""
        for _ in range(times):
            started = time.perf_counter()
            self.round_trip()
            self.each_s.append(time.perf_counter() - started)

    def round_trip(self) -> None:
        """Send a request and take its reply out, durably."""
        self.connection.execute(
            "insert into request (client, body) values (%s, %s)", (self.number, BODY)
        )
        pause = POLL_S
        while self.take() is None:
            time.sleep(pause)
            pause = min(POLL_S_MAX, pause * 1.5)

    def take(self) -> tuple[Any, ...] | None:
        """Take the reply out, if it is there."""
        return self.connection.execute(TAKE_REPLY, (self.number,)).fetchone()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class Inserting(Asking):
    """A client that inserts, one by one, each in a transaction of its own."""

    def work(self, times: int) -> None:
        """Insert."""
        for _ in range(times):
            self.connection.execute("insert into incoming (body) values (%s)", (BODY,))


@contextlib.contextmanager
def opened(
    numbers: Sequence[int], kind: type[Asking], conninfo: str
) -> Generator[Sequence[Asking]]:
    """Make the clients of these numbers ready."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(kind(conninfo, one))) for one in numbers]


class Raw(System):
    """Tables of its own in a database of its own."""

    serve_requests: Callable[..., None] = staticmethod(serve_requests)
    asking: type[Asking] = Asking

    def __init__(self, place: Place) -> None:
        self.conninfo = place.require_conninfo()
        self.place = place
        self.connection = connect(self.conninfo)
        self.connection.execute(TABLES.encode())

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="raw",
            version=f"psycopg {psycopg.__version__}",
            weaker="no registration, no same-rid check, no attempts, no error queue, no history,"
            " no wake-up",
            how="clients are threads, servers are processes;"
            + (
                " a dequeue is pipelined"
                if self.place.setting == "best"
                else " a statement a round trip"
            ),
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        """INSERT, one by one, each in a transaction of its own."""
        found = run_clients(opened, range(asked.clients), asked.number, 0, Inserting, self.conninfo)
        self._emptied("incoming", asked.number)
        return Timed(seconds=found.seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        """INSERT from an array, one transaction a batch."""
        started = time.perf_counter()
        self._fill("incoming", asked.number, asked.batch)
        seconds = time.perf_counter() - started
        self._emptied("incoming", asked.number)
        return Timed(seconds=seconds)

    def dequeue(self, asked: Dequeue) -> Timed:
        """DELETE ... SKIP LOCKED and the user's SQL, one transaction a batch."""
        self._fill("waiting", asked.number, 1000)
        shared = Shared(asked.servers)
        with serving(serve_waiting, shared, self.place, asked) as servers:
            seconds = consumed(shared, servers, asked.number, lambda: True)
        require_count("rows left", self._count("waiting"), 0)
        self._emptied("effect", asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        """Make round trips: request, execution and reply, each durable."""
        with serving(self.serve_requests, Shared(asked.servers), self.conninfo):
            found = run_clients(
                opened, range(asked.clients), asked.number, WARM_UP, self.asking, self.conninfo
            )
        self._emptied("effect", asked.number + WARM_UP * asked.clients)
        return found

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _fill(self, table: str, number: int, batch: int) -> None:
        statement = f"insert into {table} (body) select unnest(%s::bytea[])"  # our own names
        for size in shares(number, -(-number // batch)):
            self.connection.execute(statement.encode(), ([BODY] * size,))

    def _count(self, table: str) -> int:
        counted = psycopg.sql.SQL("select count(*) from {}").format(psycopg.sql.Identifier(table))
        row = self.connection.execute(counted).fetchone()
        return 0 if row is None else int(row[0])

    def _emptied(self, table: str, expected: int) -> None:
        require_count(f"rows in {table}", self._count(table), expected)
        self.connection.execute(f"truncate {table}".encode())


if __name__ == "__main__":
    serve_commands(Raw)
