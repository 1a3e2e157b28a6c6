"""pgqueuer: a queue on PostgreSQL, whose servers claim in bulk.

Safe: it claims one at a time, all tables logged. Best: what its guide to tuning says: it claims
at least ten at a time, and its log is not crash-safe ("balanced"; the queue itself is). Both run
asyncpg on uvloop, as its own command line does, and have its settings of autovacuum.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import uvloop
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

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
from bench.workers.clients import timed_together
from bench.workers.crew import Post, timed_run

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTRY = "bench"
CLAIMED_MIN = {"best": 10, "safe": 1}
HANDLERS = {"best": 4, "safe": 1}  # connections that handlers have for the user's SQL
DURABILITY = {"best": "balanced", "safe": "durable"}
WAITING = "select count(*) from pgqueuer"

WEAKER = (
    "the effect commits in a transaction of its own, before another one takes the element off the"
    " queue, for several at once: what was done since is done again after a crash, once the"
    " heartbeat is 30 s old; no reply."
)
HOW = {
    "best": "clients are asyncio tasks with a connection each; servers are processes that claim"
    " max(10, batch) at a time, with 4 connections for handlers; the queue is logged, its log not",
    "safe": "clients are asyncio tasks with a connection each; servers are processes that claim"
    " `batch` at a time, with 1 connection for handlers; all tables are logged",
}


async def _keep(_connection: object) -> None:
    """Leave a connection as it is when it goes back to the pool: saves a round trip."""


def serve(post: Post, place: Place, claimed: int, insert: str) -> float:
    """Execute what waits until nothing is left; return when the last of it was logged."""
    ended: float = uvloop.run(_serve(post, place, claimed, insert))
    return ended


async def _serve(post: Post, place: Place, claimed: int, insert: str) -> float:
    arguments = postgres.asyncpg_arguments(place.require_conninfo())
    size = HANDLERS[place.setting]
    async with asyncpg.create_pool(**arguments, min_size=size, max_size=size, reset=_keep) as own:
        connection = await asyncpg.connect(**arguments)
        queries = Queries.from_asyncpg_connection(connection)
        ended = [time.perf_counter()]
        log = queries.log_jobs

        async def noted(finished: Sequence[Any]) -> None:
            await log(finished)
            ended[0] = time.perf_counter()

        async def handle(element: Any) -> None:
            if insert:
                await own.execute(insert, element.payload)

        vars(queries).update(log_jobs=noted)  # in front of the method of that name
        server = QueueManager(queries)
        server.entrypoint(ENTRY)(handle)
        try:
            await asyncio.to_thread(post.wait_for_go)
            await server.run(batch_size=claimed, mode=QueueExecutionMode.drain)
        finally:
            await connection.close()
        return ended[0]


class Pgqueuer(System):
    """Its tables are installed in the database that is given."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.conninfo = place.require_conninfo()
        self.arguments = postgres.asyncpg_arguments(self.conninfo)
        os.environ["PGQUEUER_DURABILITY"] = DURABILITY[place.setting]
        uvloop.run(self._install())

    async def _install(self) -> None:
        connection = await asyncpg.connect(**self.arguments)
        try:
            queries = Queries.from_asyncpg_connection(connection)
            if not await queries.schema_is_installed():
                await queries.install()
                await queries.optimize_autovacuum()
        finally:
            await connection.close()

    def about(self) -> About:
        return About(
            system="pgqueuer",
            version=version("pgqueuer"),
            weaker=WEAKER,
            how=HOW[self.place.setting],
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            before = postgres.number(connection, WAITING)
            seconds = uvloop.run(self._enqueue(asked))
            found = postgres.number(connection, WAITING) - before
        require_count("enqueued", found, asked.number)
        return Timed(seconds=seconds)

    async def _enqueue(self, asked: Enqueue) -> float:
        async def client(queries: Any, number: int) -> None:
            for _ in range(number):
                await queries.enqueue(ENTRY, BODY)

        async with AsyncExitStack() as ends:
            clients: list[Any] = []
            for number in shares(asked.number, asked.clients):
                connection = await asyncpg.connect(**self.arguments)
                ends.push_async_callback(connection.close)
                clients.append(client(Queries.from_asyncpg_connection(connection), number))
            return await timed_together(clients)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        return Timed(seconds=uvloop.run(self._enqueue_batch(asked)))

    async def _enqueue_batch(self, asked: EnqueueBatch) -> float:
        connection = await asyncpg.connect(**self.arguments)
        try:
            queries = Queries.from_asyncpg_connection(connection)
            started = time.perf_counter()
            for size in shares(asked.number, -(-asked.number // asked.batch)):
                await queries.enqueue([ENTRY] * size, [BODY] * size, [0] * size)
            return time.perf_counter() - started
        finally:
            await connection.close()

    def dequeue(self, asked: Dequeue) -> Timed:
        postgres.empty_effects(self.conninfo)
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("truncate pgqueuer, pgqueuer_log, pgqueuer_statistics")
            self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
            require_count("waiting", postgres.number(connection, WAITING), asked.number)
            postgres.settle(connection)
            claimed = max(CLAIMED_MIN[self.place.setting], asked.batch)
            insert = postgres.EFFECT_NUMBERED if asked.user_sql else ""
            seconds = timed_run(serve, [(self.place, claimed, insert)] * asked.servers)
            require_count("left", postgres.number(connection, WAITING), 0)
        postgres.require_effects(self.conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)


if __name__ == "__main__":
    serve_commands(Pgqueuer)
