"""Where the clients live: a PostgreSQL, the repository in one database, ledgers in another.

The truth is read by plain SQL, and from a file in which a client puts down what it means to send
before it does anything about it. Nothing here asks the product.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.embedded import open_embedded
from onceq.engine.schema.migrate import apply_with

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.clerk.ledger import Ledger

REPOSITORY = "onceq"
ORDERS = onceq.Queue("orders", str, str)
SETTINGS = {"max_prepared_transactions": "50", "fsync": "off"}
"""Nothing happens to PostgreSQL here, so it need not wait for its disk."""
BACK = "back"
TABLES = "create table {name} (client text, number integer, pid integer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """url: of the repository; other: of the database beside it; place: a directory.

    back: of the repository that goes back.
    """

    url: str
    other: str
    back: str
    place: Path

    def ledger(self, variant: str, client: str) -> Ledger[Any, Any]:
        """Returns the ledger of a client."""
        made: dict[str, Ledger[Any, Any]] = {
            "sqlite": onceq.SqliteLedger(self.place / f"{client}.ledger"),
            "same database": onceq.PostgresLedger(),
            "other database": onceq.PostgresLedger(self.other),
            "queue": onceq.QueueLedger(),
        }
        return made[variant]

    def meant(self, client: str) -> int:
        """Returns the number that the client last meant to send; 0: none yet."""
        path = self.place / f"{client}.meant"
        return int(path.read_text().split()[-1]) if path.exists() else 0

    def mean(self, client: str, number: int) -> None:
        """Writes down what the client means to send."""
        append(self.place / f"{client}.meant", str(number))


def append(path: Path, line: str) -> None:
    """Adds a line to a file, completely, before anything that comes after it."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@contextlib.contextmanager
def prepared_ground(place: Path) -> Generator[Ground]:
    """Runs the PostgreSQL of a trial. When the block begins, this process has no connection."""
    with open_embedded(place / "postgresql", settings=SETTINGS) as server:
        urls: list[str] = []
        for name in ("repository", "other", BACK):
            with psycopg.connect(server.conninfo, autocommit=True) as connection:
                connection.execute(f"create database {name}".encode())
            urls.append(make_conninfo(server.conninfo, dbname=name))
            with psycopg.connect(urls[-1], autocommit=True) as connection:
                for table in ("effects", "processed", "worked"):
                    connection.execute(TABLES.format(name=table).encode())
        repository, other, back = urls
        for url in (repository, back):
            apply_with(url, REPOSITORY)
            with onceq.open(url, repository=REPOSITORY) as qm:
                qm.declare(ORDERS)
        yield Ground(url=repository, other=other, back=back, place=place)


PLACE = (
    f"select case when role = 'reply' then 'C' else 'B' end from {REPOSITORY}.element e"
    f" join {REPOSITORY}.registrant r using (registrant_id) where r.name = %s and e.rid = %s"
    f" union all select 'finished' from {REPOSITORY}.history h"
    f" join {REPOSITORY}.registrant r using (registrant_id) where r.name = %s and h.rid = %s"
)


def truth(
    connection: psycopg.Connection[Any], client: str, number: int, *, is_processed: bool
) -> str:
    """Returns the true state of a request: A to D; or "lost", which is not a state."""
    if is_processed:
        return "D"
    rid = str(number)
    found = connection.execute(PLACE.encode(), [client, rid, client, rid]).fetchall()
    states = {state for (state,) in found}
    for state in ("C", "B"):
        if state in states:
            return state
    return "lost" if states else "A"


def effects_of(ground: Ground, client: str) -> list[int]:
    """Returns the numbers that the server has executed for a client."""
    query = b"select number from effects where client = %s"
    with psycopg.connect(ground.url) as connection:
        return [number for (number,) in connection.execute(query, (client,))]
