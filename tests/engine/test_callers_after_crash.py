"""The caller's own connection after the database has fallen; each test has its own PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg

import onceq
from tests.engine.crashes import NAME, RAW, connect_again, kill_postmaster

if TYPE_CHECKING:
    from onceq.engine.embedded import EmbeddedServer


def test_after_a_crash_a_callers_new_connection_is_joined(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    """The connection to compare it with is gone, and nobody has noticed yet."""
    own.enqueue(RAW, b"notes where ours leads", rid="0")
    with psycopg.connect(cluster.conninfo) as before:
        own.enqueue(RAW, b"1", connection=before)
    kill_postmaster(cluster)
    with psycopg.connect(cluster.conninfo) as after:
        own.enqueue(RAW, b"2", connection=after)
    assert own.show("raw").depth == 3


def test_after_a_crash_a_callers_new_async_connection_is_joined(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    own.declare(RAW)

    async def run() -> None:
        url = f"embedded:{cluster.directory}"
        async with onceq.open_async(url, repository=NAME) as qm:
            for body in (b"1", b"2"):
                async with await psycopg.AsyncConnection.connect(cluster.conninfo) as theirs:
                    await qm.enqueue(RAW, body, connection=theirs)
                await asyncio.to_thread(kill_postmaster, cluster)
            connect_again(own)
            assert own.show("raw").depth == 2

    asyncio.run(run())
