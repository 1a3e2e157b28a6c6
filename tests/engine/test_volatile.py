"""Handlers that declare to write nothing (Q7): what their commits wait for, and what a crash takes.

Each test has a PostgreSQL of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.engine.embedded import open_embedded
from onceq.errors import OperatingError
from onceq.model import ops
from tests.lives import Life
from tests.parts import driving, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from onceq.engine.embedded import EmbeddedServer

RAW = onceq.Queue("raw", bytes, bytes)
VOLATILE = onceq.Queue("fast", bytes, bytes, durable=False)


@pytest.fixture
def cluster(directory: Path) -> Generator[EmbeddedServer]:
    with open_embedded(directory) as server:
        with plain(server.conninfo) as connection:
            connection.execute("drop schema if exists r cascade")
        yield server


@pytest.fixture
def own(cluster: EmbeddedServer) -> Generator[onceq.QueueManager]:
    with onceq.open(f"embedded:{cluster.directory}", repository="r") as manager:
        manager.declare(RAW)
        manager.declare(VOLATILE)
        yield manager


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("queue", "effects", "handler", "wanted"),
    [
        (VOLATILE, False, "select 1", "off"),
        (VOLATILE, True, "select 1", "on"),
        (RAW, False, "select 1", "on"),
        (VOLATILE, False, "set local synchronous_commit = local", "local"),
        (VOLATILE, False, "select from r.enqueue_many('raw', array[''::bytea], null, false)", "on"),
        (
            VOLATILE,
            False,
            "select from r.enqueue_many('fast', array[''::bytea], null, false)",
            "off",
        ),
    ],
)
def test_only_what_is_volatile_and_writes_nothing_commits_asynchronously(
    cluster: EmbeddedServer,
    own: onceq.QueueManager,
    queue: onceq.Queue[bytes, bytes],
    effects: bool,  # noqa: FBT001 # a parameter of pytest
    handler: str,
    wanted: str,
    count: int,
) -> None:
    own.enqueue_many(queue, [b"x"] * count)
    with driving(cluster.conninfo, "r") as driver:
        life = Life(driver)
        claimed = life.claim(queue.name, count)
        begin = ops.Begin(
            slot=life.slot,
            seq=claimed[0].seq if count == 1 else -claimed[0].seq,
            token="1",
            isolation="read committed",
            alone=False,
            effects=effects,
        )
        driver.perform(begin)
        life.execute(handler)
        finish = ops.Finish(
            seqs=[one.seq for one in claimed],
            incarnation=life.incarnation,
            replies=[b""] * count,
            content_type=None,
            token="1",
            effects=effects,
            queue_id=claimed[0].queue_id,
            n=0,
            turn=1,
            alone=True,
        )
        driver.perform(finish)
        level = driver.connection.execute("show synchronous_commit").fetchone()
        driver.perform(ops.Commit())
        assert level == (wanted,)
        after = driver.connection.execute("show synchronous_commit").fetchone()
        assert after == ("on",)


def crash(cluster: EmbeddedServer, own: onceq.QueueManager) -> None:
    os.kill(cluster.postmaster_pid(), signal.SIGKILL)
    cluster.ensure_running()
    with contextlib.suppress(OperatingError):
        own.queues()
    own.connect()


@pytest.mark.parametrize("batch", [1, 10])
def test_a_crash_loses_nothing_durable_and_brings_nothing_volatile_back(
    cluster: EmbeddedServer, own: onceq.QueueManager, batch: int
) -> None:
    """Volatile requests that write nothing, but for some that enqueue a durable one."""
    insert = b"insert into r.kept values (%s)"
    with plain(cluster.conninfo) as connection:
        connection.execute("create table r.kept (what text)")

    def forward(body: bytes, context: onceq.Context) -> bytes:
        if int(body) % 3 == 0:
            onceq.enqueue(context.connection, RAW, body, repository="r")
        return body

    def keep(body: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(insert, (body.decode(),))
        return body

    fast = VOLATILE.handled_by(forward, batch=batch, effects=False)
    slow = RAW.handled_by(keep, batch=batch)
    done = "select count(*) from r.history join r.queue using (queue_id) where name = 'fast'"
    kept_since = "select count(*) from r.kept where what::integer >= %s"
    with serving(f"embedded:{cluster.directory}", "r", fast, slow):
        for life in range(3):
            numbers = [str(300 * life + number).encode() for number in range(300)]
            own.enqueue_many(VOLATILE, numbers)
            wait_until(lambda: scalar(cluster.conninfo, done) >= 1)
            before = scalar(cluster.conninfo, kept_since, 300 * life)
            crash(cluster, own)
            assert scalar(cluster.conninfo, kept_since, 300 * life) >= before
            wait_until(lambda: own.show("fast").depth == own.show("raw").depth == 0)
        own.enqueue(VOLATILE, b"999")
        wait_until(lambda: rows(cluster.conninfo, "select from r.kept where what = '999'") != [])
    kept = [what for (what,) in rows(cluster.conninfo, "select what from r.kept")]
    assert len(kept) == len(set(kept)), "once each"
    assert all(int(what) % 3 == 0 for what in kept)
