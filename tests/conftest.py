"""What every test may use: one PostgreSQL for the whole run, a schema for each test.

A test that kills or stops PostgreSQL starts one of its own.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

import onceq
from onceq.engine.embedded import open_embedded
from onceq.engine.migrate import apply_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.engine.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[EmbeddedServer]:
    """The server of this run, in a directory that goes with it.

    Or that of ONCEQ_TESTS_POSTGRESQL, a directory kept for many runs, one after the other.
    """
    kept = os.environ.get("ONCEQ_TESTS_POSTGRESQL")
    if kept is not None:
        with open_embedded(Path(kept)) as server:
            yield server
        return
    with (
        tempfile.TemporaryDirectory(prefix="onceq-tests-") as directory,
        open_embedded(Path(directory) / "postgresql") as server,
    ):
        yield server


@pytest.fixture
def conninfo(postgresql: EmbeddedServer) -> str:
    """How psycopg reaches the server of this run."""
    return postgresql.conninfo


@pytest.fixture
def repository_name(conninfo: str) -> Iterator[str]:
    """A schema name that no other test has; what is in it is dropped afterwards.

    The drop waits at most 10 s for the test's own connections to let go.
    """
    name = f"t_{uuid.uuid4().hex[:16]}"
    yield name
    with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
        connection.execute("set lock_timeout = '10s'")
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> str:
    """The name of a repository of this test's own, with the schema in it."""
    apply_with(conninfo, repository_name)
    return repository_name


@pytest.fixture
def qm(conninfo: str, repository: str) -> Iterator[onceq.QueueManager]:
    """An open queue manager on this test's repository."""
    with onceq.open(conninfo, repository=repository) as opened:
        yield opened
