"""What the tests of ledgers share: each kind of ledger, and a second database for one of them."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.embedded import open_embedded
from tests.lives import living
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from onceq.clerk.ledger import Ledger
    from onceq.model.element import Element

LEDGERS = ("sqlite", "same database", "other database", "queue")


@contextlib.contextmanager
def preparing(directory: Path) -> Generator[str]:
    """A PostgreSQL that takes prepared transactions, for the time of a block."""
    with open_embedded(directory, settings={"max_prepared_transactions": "50"}) as server:
        yield server.conninfo


@pytest.fixture(scope="session")
def other_postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with preparing(tmp_path_factory.mktemp("other") / "postgresql") as conninfo:
        yield conninfo


@dataclass(frozen=True)
class Ground:
    """A repository with a queue, and the places of ledgers."""

    qm: onceq.QueueManager
    url: str
    conninfo: str
    other: str
    place: Path

    def forget(self, rid: str) -> None:
        """Takes a request out of the repository, as a failover that lost it does."""
        tables = {"element": "rid", "history": "rid", "registration": "sent_rid"}
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for table, column in tables.items():
                name = f"{self.qm.repository}.{table}"
                connection.execute(f"delete from {name} where {column} = %s".encode(), [rid])

    def serve_one(self, body: bytes = b"reply") -> None:
        """Serves one request, once it is there."""
        with living(self.conninfo, self.qm.repository) as life:
            claimed: list[Element] = []

            def is_claimed() -> bool:
                claimed.extend(life.claim("raw"))
                return bool(claimed)

            wait_until(is_claimed)
            life.run(claimed[0], body)

    def ledger(self, kind: str) -> Ledger[Any, Any]:
        made: dict[str, Ledger[Any, Any]] = {
            "sqlite": onceq.SqliteLedger(self.place / "ann.ledger"),
            "same database": onceq.PostgresLedger(),
            "other database": onceq.PostgresLedger(self.other),
            "queue": onceq.QueueLedger(),
        }
        return made[kind]


@pytest.fixture
def ground(
    repository: str, conninfo: str, other_postgresql: str, tmp_path: Path
) -> Iterator[Ground]:
    """Ledgers in PostgreSQL have a schema of the test's own, by the search path."""
    name = f"l_{uuid.uuid4().hex[:12]}"
    for where in (conninfo, other_postgresql):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"create schema {name}".encode())
    here, other = (
        make_conninfo(where, options=f"-c search_path={name}")
        for where in (conninfo, other_postgresql)
    )
    with onceq.open(here, repository=repository) as qm:
        qm.declare(onceq.Queue("raw", bytes, bytes))
        yield Ground(qm, here, conninfo, other, tmp_path)
    for where in (conninfo, other_postgresql):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"drop schema {name} cascade".encode())


@pytest.fixture(params=LEDGERS)
def ledger(request: pytest.FixtureRequest, ground: Ground) -> Ledger[Any, Any]:
    return ground.ledger(request.param)
