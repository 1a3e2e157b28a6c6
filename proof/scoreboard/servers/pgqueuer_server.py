"""pgqueuer: what a dead process held is picked again when its heartbeat is old.

Safest: every table logged, retries counted by its executor for that, and what has failed is held
instead of deleted.
"""

from __future__ import annotations

import asyncio
import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
from pgqueuer.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.workers.postgres import asyncpg_arguments
from proof.scoreboard.servers.base import EFFECT_NUMBERED, HALF_S, LEASE_S, Reports, main

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.scoreboard.servers.base import Asked

ENTRY = "handle"


async def _prepare(asked: Asked) -> None:
    connection = await asyncpg.connect(**asyncpg_arguments(asked.conninfo))
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def _send(asked: Asked) -> None:
    connection = await asyncpg.connect(**asyncpg_arguments(asked.conninfo))
    queries = Queries.from_asyncpg_connection(connection)
    for rid in asked.rids:
        await queries.enqueue(ENTRY, rid.encode())
    await connection.close()


def _registered(asked: Asked, server: Any) -> Callable[[Any], Any]:
    if not asked.is_safest:
        decorator: Callable[[Any], Any] = server.entrypoint(ENTRY, concurrency_limit=1)
        return decorator
    executor: Any = DatabaseRetryEntrypointExecutor
    if asked.limit is not None:
        executor = functools.partial(executor, max_attempts=asked.limit)
    safest: Callable[[Any], Any] = server.entrypoint(
        ENTRY, concurrency_limit=1, executor_factory=executor, on_failure="hold"
    )
    return safest


async def _serve(asked: Asked) -> None:
    arguments = asyncpg_arguments(asked.conninfo)
    connection, own = await asyncpg.connect(**arguments), await asyncpg.connect(**arguments)
    reports = Reports(asked.reports)
    server = QueueManager(Queries.from_asyncpg_connection(connection))

    async def handle(element: Any) -> None:
        rid = element.payload.decode()
        reports.begin(rid)
        await asyncio.sleep(HALF_S)
        await own.execute(EFFECT_NUMBERED, rid)
        await asyncio.sleep(HALF_S)

    _registered(asked, server)(handle)
    await server.run(
        batch_size=1,
        dequeue_timeout=timedelta(seconds=1),
        heartbeat_timeout=timedelta(seconds=LEASE_S),
    )


class Pgqueuer:
    """The system, for `main`."""

    def prepare(self, asked: Asked) -> None:
        """Install its tables."""
        asyncio.run(_prepare(asked))

    def send(self, asked: Asked) -> None:
        """Enqueue one by one."""
        asyncio.run(_send(asked))

    def serve(self, asked: Asked) -> None:
        """Run its server, claiming one at a time."""
        asyncio.run(_serve(asked))


if __name__ == "__main__":
    os.environ["PGQUEUER_DURABILITY"] = "durable"  # as it comes; and the safest there is
    main(Pgqueuer())
