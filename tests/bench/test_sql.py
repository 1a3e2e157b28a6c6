"""The SQL that is timed and counted calls the functions as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import psycopg.conninfo
import pytest

import onceq
from bench import instructions, sql_loops
from bench.workers import raw
from bench.workers.base import BODY
from bench.workers.onceq_worker import init

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE = "bench_sql"
LOOPS = 20


@pytest.fixture(scope="module")
def template(conninfo: str) -> Iterator[str]:
    """A database with a repository; each test has a copy, as numbers that were drawn stay so."""
    own = psycopg.conninfo.make_conninfo(conninfo, dbname=DATABASE)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"create database {DATABASE}".encode())
        init(own)
        with onceq.open(own) as qm:
            qm.declare(onceq.Queue("loop", bytes, bytes))
        with psycopg.connect(own, autocommit=True) as other:
            other.execute(raw.TABLES.encode())
        yield DATABASE
        connection.execute(f"drop database {DATABASE}".encode())


@pytest.fixture
def database(conninfo: str, template: str) -> Iterator[str]:
    copy = f"{template}_copy"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"create database {copy} template {template}".encode())
        yield psycopg.conninfo.make_conninfo(conninfo, dbname=copy)
        connection.execute(f"drop database {copy} (force)".encode())


@pytest.mark.parametrize("name", instructions.CALLS)
def test_what_is_counted_runs(database: str, name: str) -> None:
    with psycopg.connect(database) as connection:
        for line in instructions.statements(instructions.CALLS[name], steps=2, most=LOOPS):
            connection.execute(line.encode())
        connection.rollback()


@pytest.mark.parametrize("name", sql_loops.LOOPS)
def test_what_is_timed_runs(database: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_loops, "CALLS", LOOPS)
    with onceq.open(database) as qm:
        qm.declare(sql_loops.QUEUE)
        qm.enqueue_many(sql_loops.QUEUE, [BODY] * (2 * LOOPS))
    with psycopg.connect(database, autocommit=True) as connection:
        assert sql_loops.timed(connection, sql_loops.LOOPS[name]) > 0
