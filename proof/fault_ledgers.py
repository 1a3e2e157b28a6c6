"""Clients with a ledger that meet fault points: one program for each kind of ledger.

Used by proof/fault_programs.py. What the client does with a reply is a row beside the ledger, which
commits with it: after any fault each row is there once.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

import onceq
from proof.harness.ledger import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from onceq import LedgerClerk
    from proof.fault_programs import Errand
    from proof.fault_scenes import Left

ORDERS: Final = 4
"""More than the rounds: something must remain to be committed after the last strike."""
CLIENT: Final = "booker"
LIMIT_S: Final = 20.0
PROCESSED: Final = "create table if not exists {} (rid text)"


class _Undone(Exception):
    """The client changes its mind within its transaction."""


def in_sqlite(errand: Errand) -> None:
    """A ledger in a file that also has the client's own table."""
    path = _file(errand.place)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(PROCESSED.format("processed"))
    _book(errand, onceq.SqliteLedger(path), "insert into processed values (?)")


def in_the_database(errand: Errand) -> None:
    """A ledger in the repository's database."""
    _book(errand, onceq.PostgresLedger(), _table(errand.url, errand.repository))


def in_another_database(errand: Errand) -> None:
    """A ledger in a database beside it, whose transactions are prepared."""
    name = _other(errand.repository)
    with psycopg.connect(errand.url, autocommit=True) as connection:
        there = connection.execute("select from pg_database where datname = %s", (name,))
        if there.fetchone() is None:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    url = make_conninfo(errand.url, dbname=name)
    _book(errand, onceq.PostgresLedger(url), _table(url, errand.repository))


def in_a_queue(errand: Errand) -> None:
    """A ledger in a queue of the repository."""
    _book(errand, onceq.QueueLedger(), _table(errand.url, errand.repository))


PROGRAMS: Final[dict[str, Callable[[Errand], None]]] = {
    "ledger_in_sqlite": in_sqlite,
    "ledger_in_the_database": in_the_database,
    "ledger_in_another_database": in_another_database,
    "ledger_in_a_queue": in_a_queue,
}


def _book(errand: Errand, ledger: Any, insert: str) -> None:
    """Sends orders one after the other, each in a life of its own; writes a row for each reply."""
    with errand.open() as qm:
        clerk = qm.clerk(CLIENT, _queue(), ledger=ledger)
        with contextlib.closing(clerk):
            while (number := _begin(clerk, insert)) < ORDERS:
                with contextlib.suppress(_Undone), clerk.transaction() as work:
                    work.connection.execute(insert, ("undone",))
                    raise _Undone
                clerk.send(str(number + 1), Order())
                _process(clerk, insert)


def _begin(clerk: LedgerClerk[Any, Any, Any], insert: str) -> int:
    """Begins a life, and ends what the former left; returns how many orders are done."""
    clerk.connect()
    found = clerk.recover(policy="resubmit")
    if found.rid is not None and not isinstance(found, onceq.Done):
        _process(clerk, insert)
    return int(found.rid or 0)


def _process(clerk: LedgerClerk[Any, Any, Any], insert: str) -> None:
    reply = clerk.receive(timeout_s=LIMIT_S)
    with clerk.transaction() as work:
        work.connection.execute(insert, (reply.rid,))
        work.done(reply)


def _queue() -> Any:
    from proof.fault_programs import QUEUE  # noqa: PLC0415 # it imports this module

    return QUEUE


def _table(url: str, repository: str) -> str:
    """Makes the client's own table if there is none; returns the SQL that inserts a row."""
    name = f"processed_{repository}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PROCESSED.format(name).encode())
    return f"insert into {name} values (%s)"


def _file(place: Path) -> Path:
    return place / "ledger.sqlite"


def _other(repository: str) -> str:
    return f"other_{repository}"


# --- what is there afterwards ---------------------------------------------------------------------


def sqlite_rows(left: Left) -> Iterator[str]:
    """Judges what is in the file."""
    with contextlib.closing(sqlite3.connect(_file(left.place))) as file:
        yield from _judged(left, file.execute("select rid from processed").fetchall())


def rows(left: Left) -> Iterator[str]:
    """Judges what is in the repository's database."""
    yield from _judged(left, _rows_in(left.conninfo, left.repository))


def other_rows(left: Left) -> Iterator[str]:
    """Judges what is in the other database, where nothing may be left prepared."""
    name = _other(left.repository)
    url = make_conninfo(left.conninfo, dbname=name)
    yield from _judged(left, _rows_in(url, left.repository))
    with psycopg.connect(left.conninfo, autocommit=True) as connection:
        query = "select gid from pg_prepared_xacts where database = %s"
        yield from (f"G6: {one} is left prepared" for one in connection.execute(query, (name,)))
        drop = sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
        connection.execute(drop)


def _rows_in(url: str, repository: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(f"select rid from processed_{repository}".encode()).fetchall()


def _judged(left: Left, found: list[Any]) -> Iterator[str]:
    once = Counter(str(number) for number in range(1, ORDERS + 1))
    if (processed := Counter(rid for (rid,) in found)) != once:
        yield f"G5: processed were {dict(processed)}"
    if (effects := Counter(one.rid for one in left.final.effects)) != once:
        yield f"G2, G4: the ledger of effects has {dict(effects)}"
