"""What is done and what remains of it: orders, their handler, and the ledger of effects.

Used by the crash tests and by torture. The handler does what the order says and writes one row for
it into the ledger, which has no unique key, so that a second effect shows. Each execution is
recorded before anything else. Never cleans up after itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import msgspec

from onceq.engine.perform.driver import connect
from onceq.engine.sessions import session
from onceq.engine.sessions.faults import DatabaseError
from onceq.history.events import Effect, Executed, FinalState, Place
from onceq.history.events.files import EFFECTS_NAME, PLACES_NAME, StoredFinal, save_final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from psycopg import Connection

    from onceq import Context
    from onceq.history.events import Recorder

EFFECTS = "effects"
COLUMNS = "key text, rid text, eid text, pid integer"
ROWS_AT_ONCE = 10_000
_PLACE_FIELDS = [one.name for one in dataclasses.fields(Place) if one.name != "is_volatile"]


class Order(msgspec.Struct):
    """What the handler is to do. key: what the client orders, by its own number; empty: the rid.

    kind: book; sudden and poison die with their server, before and after the effect; fail raises.
    ms: how long the work takes.
    """

    kind: str = "book"
    ms: float = 0
    key: str = ""


class Receipt(msgspec.Struct):
    """A reply: which rid it answers, and by which process."""

    rid: str
    pid: int


class LedgerHandler:
    """Does what an order says, in the server's own process."""

    def __init__(self, recorder: Recorder, repository: str) -> None:
        self._recorder = recorder
        columns = "key, rid, eid, pid"
        self._insert = f"insert into {repository}.{EFFECTS} ({columns}) values (%s, %s, %s, %s)"

    def __call__(self, order: Order, context: Context) -> Receipt:
        """Records the execution, writes the effect, and does the work."""
        self._recorder.record(
            Executed(
                rid=context.rid,
                eid=str(context.eid),
                attempt=context.attempt,
                pid=os.getpid(),
                backend=backend_of(context),
            )
        )
        self.before(order, context)
        arguments = (order.key or context.rid, context.rid, str(context.eid), os.getpid())
        context.connection.execute(self._insert.encode(), arguments)
        self.after(order)
        return Receipt(context.rid, os.getpid())

    def before(self, order: Order, _context: Context) -> None:
        """Does what comes before the effect."""
        if order.kind == "sudden":
            os.kill(os.getpid(), signal.SIGKILL)
        if order.kind == "fail":
            raise ValueError("told to fail")

    def after(self, order: Order) -> None:
        """Does what comes after the effect, and before the commit."""
        if order.kind == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        if order.ms:
            time.sleep(order.ms / 1000)  # the work: what a kill interrupts


def backend_of(context: Context) -> int:
    """Returns the process of PostgreSQL that serves this execution; 0: the connection has ended."""
    connection = context.connection
    return 0 if connection.closed else connection.info.backend_pid


def is_together(context: Context) -> bool:
    """Returns whether this execution is one of a batch: if it raises, all are undone, uncharged."""
    return context.connection.info.parameter_status(session.MARK) == "on"


def make_ledger(conninfo: str, repository: str) -> None:
    """Makes the ledger of effects, without a unique key, so that a double shows."""
    ask(conninfo, f"create table {repository}.{EFFECTS} ({COLUMNS})")


def ask(conninfo: str, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of a query, on a connection of its own, in autocommit.

    Raises CannotConnect; and as an Op does, InDoubt above all, when it breaks off.
    """
    with contextlib.closing(connect(conninfo)) as connection:
        try:
            cursor = connection.execute(query.encode(), parameters or None)
            return [] if cursor.description is None else cursor.fetchall()
        except DatabaseError as error:
            raise session.failure(error, connection, committing=True) from error


def final_state(conninfo: str, repository: str, abort_limit: int | None = 5) -> FinalState:
    """Returns the final state, for the history checker."""
    places, effects = (ask(conninfo, query) for query in _queries(repository))
    return FinalState(
        places=tuple(_place(row) for row in places),
        effects=tuple(_effect(row) for row in effects),
        abort_limit=abort_limit,
    )


def store_final_state(
    conninfo: str, repository: str, folder: Path, stated: FinalState
) -> StoredFinal:
    """Writes what is there in the end beside the events, row by row, however much it is.

    stated: all of it but the rows.
    """
    save_final(stated, folder)
    places, effects = _queries(repository)
    with contextlib.closing(connect(conninfo)) as connection, connection.transaction():
        _store(connection, places, folder / PLACES_NAME, _place)
        _store(connection, effects, folder / EFFECTS_NAME, _effect)
    return StoredFinal.open(folder)


def _queries(repository: str) -> tuple[str, str]:
    columns = ", ".join("eid::text" if name == "eid" else name for name in _PLACE_FIELDS)
    return (
        f"select {columns} from {repository}.requests",  # our own names
        f"select key, rid, eid from {repository}.{EFFECTS}",  # as above
    )


def _place(row: Sequence[Any]) -> Place:
    return Place(**dict(zip(_PLACE_FIELDS, row, strict=True)))


def _effect(row: Sequence[Any]) -> Effect:
    key, rid, eid = row
    return Effect(key=key, rid=rid, eid=eid)


def _store(
    connection: Connection[Any], query: str, path: Path, made: Callable[[Sequence[Any]], Any]
) -> None:
    encoder = msgspec.json.Encoder()
    with connection.cursor(name="final") as cursor, path.open("wb") as file:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            file.write(encoder.encode_lines([made(row) for row in rows]))
