"""Reads in the caller's own transaction: what they see, and that they lock nothing (spec Q2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

import onceq
from onceq.errors import IllegalState
from onceq.model.element import KillAnswer

RAW = onceq.Queue("raw", bytes, bytes)

READS: dict[str, Callable[..., list[bytes]]] = {
    "read": lambda qm, eid, **on: [one.body for one in [qm.read(eid, **on)] if one is not None],
    "peek": lambda qm, eid, **on: [one.body for one in qm.peek("raw", **on) if one.eid == eid],
    "scan": lambda qm, eid, **on: [one.body for one in qm.scan("raw", **on) if one.eid == eid],
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_read_sees_what_the_callers_transaction_sees(
    qm: onceq.QueueManager, conninfo: str, read: Callable[..., list[bytes]]
) -> None:
    """What it has enqueued itself, which nobody else sees before it commits."""
    qm.declare(RAW)
    with psycopg.connect(conninfo) as connection:
        eid = qm.enqueue(RAW, b"mine", connection=connection)
        assert read(qm, eid, connection=connection) == [b"mine"]
        assert read(qm, eid) == []
        connection.rollback()
        assert read(qm, eid, connection=connection) == []
        connection.rollback()
        connection.autocommit = True
        with pytest.raises(IllegalState, match="in no transaction"):
            read(qm, eid, connection=connection)


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
@pytest.mark.parametrize("level", ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"])
def test_a_read_has_the_isolation_of_the_callers_transaction(
    qm: onceq.QueueManager, conninfo: str, level: str, read: Callable[..., list[bytes]]
) -> None:
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        assert read(qm, eid, connection=connection) == [b"x"]
        assert qm.dequeue("raw") is not None
        seen = read(qm, eid, connection=connection)
        assert seen == ([] if level == "READ_COMMITTED" else [b"x"])


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_read_locks_nothing(
    qm: onceq.QueueManager, conninfo: str, read: Callable[..., list[bytes]]
) -> None:
    """Neither rows nor anything advisory, and whoever wants the element has it at once."""
    qm.declare(RAW)
    eid = qm.enqueue(RAW, b"x")
    with psycopg.connect(conninfo) as connection:
        assert read(qm, eid, connection=connection) == [b"x"]
        locks = connection.execute(
            "select locktype, mode from pg_locks where pid = pg_backend_pid()"
        ).fetchall()
        assert {mode for kind, mode in locks if kind != "virtualxid"} == {"AccessShareLock"}
        assert connection.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
        assert qm.kill(eid, timeout_s=0.0) is KillAnswer.KILLED


def test_a_task_reads_in_its_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)

    async def enqueue_and_read() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as own,
            await psycopg.AsyncConnection.connect(conninfo) as connection,
        ):
            eid = await own.enqueue(RAW, b"mine", connection=connection)
            found = await own.read(eid, connection=connection)
            assert found is not None
            assert [one.eid for one in await own.peek("raw", connection=connection)] == [eid]
            assert await own.read(eid) is None

    asyncio.run(enqueue_and_read())
