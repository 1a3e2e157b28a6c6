"""procrastinate: a queue of calls on PostgreSQL.

Safe: as documented, one call at a time, finished rows are kept. Best: what its documentation
offers for speed: concurrent calls in a process, deletion of finished rows, deferring through a
connection that is already open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from importlib.metadata import version

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from psycopg_pool import AsyncConnectionPool

from bench.workers import postgres
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
    EnqueueBatch,
    Place,
    System,
    Timed,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_threads
from bench.workers.crew import Post, timed_run

QUEUE = "bench"
CALL = "bench.handle"
CONCURRENCY = {"best": 4, "safe": 1}
FINISHED = {"best": "always", "safe": "never"}  # when a finished row is deleted
TEXT = BODY.decode()  # arguments are JSON

WEAKER = (
    "the effect commits in a transaction of its own, before another one marks the call as done:"
    " after a crash between the two it is stalled, and run again if someone retries it; no reply."
)
HOW = {
    "best": "clients are threads, each with a connection that its defer is given; servers are"
    " processes, 4 concurrent calls in each, finished rows deleted",
    "safe": "clients are threads that share the app's pool, of one connection each; servers are"
    " processes, one call at a time in each, finished rows kept",
}


def serve(post: Post, place: Place, insert: str) -> float:
    """Execute what waits until nothing is left; return when that was."""
    return asyncio.run(_serve(post, place, insert))


async def _serve(post: Post, place: Place, insert: str) -> float:
    conninfo, concurrency = place.require_conninfo(), CONCURRENCY[place.setting]
    app = App(connector=PsycopgConnector(conninfo=conninfo, min_size=concurrency + 1))
    own = AsyncConnectionPool(conninfo, min_size=concurrency, max_size=concurrency, open=False)

    async def handle(body: str) -> None:
        if insert:
            async with own.connection() as connection:
                await connection.execute(insert, (body.encode(),))

    app.task(name=CALL, queue=QUEUE)(handle)
    async with app.open_async(), own:
        await own.wait()
        await asyncio.to_thread(post.wait_for_go)
        await app.run_worker_async(
            queues=[QUEUE],
            wait=False,
            concurrency=concurrency,
            delete_jobs=FINISHED[place.setting],
            install_signal_handlers=False,
        )
        return time.perf_counter()


class Procrastinate(System):
    """Its schema is installed in the database that is given."""

    def __init__(self, place: Place) -> None:
        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        self.place = place
        self.conninfo = place.require_conninfo()
        app = self._app(1)
        with app.open(), psycopg.connect(self.conninfo) as connection:
            if not postgres.exists(connection, "procrastinate_jobs"):
                app.schema_manager.apply_schema()

    def about(self) -> About:
        return About(
            system="procrastinate",
            version=version("procrastinate"),
            weaker=WEAKER,
            how=HOW[self.place.setting],
        )

    def _app(self, connections: int) -> App:
        connector = SyncPsycopgConnector(
            conninfo=self.conninfo, min_size=connections, max_size=connections
        )
        return App(connector=connector)

    def _waiting(self, connection: psycopg.Connection) -> int:
        waiting = "select count(*) from procrastinate_jobs where status = 'todo'"
        return postgres.number(connection, waiting)

    def enqueue(self, asked: Enqueue) -> Timed:
        defer = self._enqueue_best if self.place.setting == "best" else self._enqueue_safe
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            before = self._waiting(connection)
            timed = defer(asked)
            require_count("deferred", self._waiting(connection) - before, asked.number)
        return timed

    def _enqueue_safe(self, asked: Enqueue) -> Timed:
        app = self._app(asked.clients)
        with app.open():
            defer = app.configure_task(CALL, queue=QUEUE).defer

            def client(number: int) -> None:
                for _ in range(number):
                    defer(body=TEXT)

            numbers = shares(asked.number, asked.clients)
            return Timed(seconds=timed_threads([partial(client, each) for each in numbers]))

    def _enqueue_best(self, asked: Enqueue) -> Timed:
        app = self._app(1)

        def client(connection: psycopg.Connection, number: int) -> None:
            defer = app.configure_task(CALL, queue=QUEUE, connection=connection).defer
            for _ in range(number):
                defer(body=TEXT)

        connections = [
            psycopg.connect(self.conninfo, autocommit=True) for _ in range(asked.clients)
        ]
        try:
            with app.open():
                numbers = shares(asked.number, asked.clients)
                clients = [
                    partial(client, connection, number)
                    for connection, number in zip(connections, numbers, strict=True)
                ]
                return Timed(seconds=timed_threads(clients))
        finally:
            for connection in connections:
                connection.close()

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        app = self._app(1)
        with app.open():
            defer = app.configure_task(CALL, queue=QUEUE).batch_defer
            started = time.perf_counter()
            for size in shares(asked.number, -(-asked.number // asked.batch)):
                defer(*({"body": TEXT} for _ in range(size)))
            return Timed(seconds=time.perf_counter() - started)

    def dequeue(self, asked: Dequeue) -> Timed:
        postgres.empty_effects(self.conninfo)
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("truncate procrastinate_jobs cascade")
            self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
            require_count("waiting", self._waiting(connection), asked.number)
            postgres.settle(connection)
            insert = postgres.EFFECT if asked.user_sql else ""
            seconds = timed_run(serve, [(self.place, insert)] * asked.servers)
            require_count("left", self._waiting(connection), 0)
        postgres.require_effects(self.conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)


if __name__ == "__main__":
    serve_commands(Procrastinate)
