"""Statements by libpq itself: what travels, what psycopg does, and a COMMIT that goes along."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.engine.bind.cursors import OwnCursor
from onceq.engine.bind.statement import Binding
from onceq.engine.perform.prepared import PACKERS, Prepared, packed
from tests.parts import plain, rows, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
BIG = 2**62
WAITING = b"select pg_advisory_lock(7, 7)"
VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "\u00e4\U0001f600", "x" * 100_000],
    "bytea": [b"", b"\0\xff", b"x" * 100_000],
    "boolean": [True, False],
    "smallint": [0, -(2**15), 2**15 - 1],
    "integer": [0, -(2**31), 2**31 - 1],
    "bigint": [0, -(2**63), 2**63 - 1, BIG],
    "text[]": [[], ["a"], ["", "\u00e4", "{,}"]],
    "bytea[]": [[], [b""], [b"\0", b"x" * 1000]],
    "integer[]": [[], [1], [1, -2, 3]],
    "bigint[]": [[], [BIG, -BIG]],
}
REFUSED: dict[str, Any] = {
    "text": "a\0b",
    "bytea": "no bytes",
    "smallint": 2**15,
    "integer": 2**31,
    "bigint": 2**63,
    "text[]": ["a", None],
    "integer[]": [2**31],
}


class Arguments:
    """What `packed` is given in place of an Op's binding."""

    def __init__(self, *kinds: str) -> None:
        fields = tuple((f"f{n}", kind) for n, kind in enumerate(kinds))
        self.row = Binding(sql="select {marks}", parameters=fields, decode=list)
        self.text = self.row.text("onceq").encode()


@pytest.fixture
def prepared(conninfo: str) -> Generator[tuple[psycopg.Connection[Any], Prepared]]:
    with plain(conninfo) as connection:
        yield connection, Prepared(OwnCursor(connection))


def asked(
    prepared: tuple[psycopg.Connection[Any], Prepared], text: bytes, *values: bytes | None
) -> Any:
    connection, own = prepared
    with connection.lock:
        return connection.wait(own.ask(text, list(values)))


def test_every_type_is_tried() -> None:
    assert set(VALUES) == set(PACKERS)


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_packed_arrives(
    prepared: tuple[psycopg.Connection[Any], Prepared], kind: str
) -> None:
    given = Arguments(kind)
    for value in [*VALUES[kind], None]:
        values = packed(given.row, [value])
        assert values is not None
        assert asked(prepared, given.text, *values) == [(value,)]


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_left_to_psycopg(kind: str) -> None:
    assert packed(Arguments(kind).row, [REFUSED[kind]]) is None


def test_rare_types_are_left_to_psycopg_unless_there_is_no_value() -> None:
    given = Arguments("text", "timestamptz", "jsonb")
    assert packed(given.row, ["a", None, None]) == [b"a", None, None]
    assert packed(given.row, ["a", dt.datetime.now(dt.UTC), None]) is None


def test_what_is_deallocated_is_prepared_again(
    prepared: tuple[psycopg.Connection[Any], Prepared],
) -> None:
    given = Arguments("text")
    for _ in range(3):
        assert asked(prepared, given.text, b"a") == [("a",)]
        prepared[0].execute("deallocate all")
    prepared[0].execute("begin")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):  # the transaction has failed
        asked(prepared, given.text, b"a")
    prepared[0].execute("rollback")
    assert asked(prepared, given.text, b"a") == [("a",)]


def test_a_rollback_forgets_nothing(prepared: tuple[psycopg.Connection[Any], Prepared]) -> None:
    given = Arguments("text")
    prepared[0].execute("begin")
    asked(prepared, given.text, b"a")
    prepared[0].execute("rollback")
    assert asked(prepared, given.text, b"a") == [("a",)]


# --- a COMMIT that goes along ---------------------------------------------------------------------


@pytest.fixture
def table(conninfo: str, repository: str) -> str:
    name = f"{repository}.noted"
    with plain(conninfo) as connection:
        connection.execute(
            f"create table {name} (n integer, unique (n) deferrable initially deferred)".encode()
        )
    return name


def noted(prepared: tuple[psycopg.Connection[Any], Prepared], table: str, value: str) -> list[Any]:
    """Inserts in a transaction, and commits along; returns the statuses of the commit."""
    connection, own = prepared
    text = f"insert into {table} values (%s::text::integer) returning n".encode()
    connection.execute("begin")
    with connection.lock:
        connection.wait(own.ask_and_commit(text, [value.encode()]))
        return [one.command_status for one in connection.wait(own.committed())]


def test_a_commit_goes_along(
    prepared: tuple[psycopg.Connection[Any], Prepared], table: str, conninfo: str
) -> None:
    for value in "123":
        assert noted(prepared, table, value) == [b"COMMIT"]
        assert prepared[0].info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert rows(conninfo, f"select n from {table} order by n") == [(1,), (2,), (3,)]


def test_what_fails_is_not_committed(
    prepared: tuple[psycopg.Connection[Any], Prepared], table: str, conninfo: str
) -> None:
    prepared[0].execute("begin")
    prepared[0].execute(f"insert into {table} values (7)".encode())
    with pytest.raises(psycopg.DataError):
        noted(prepared, table, "no number")
    assert prepared[0].info.transaction_status == psycopg.pq.TransactionStatus.INERROR
    prepared[0].execute("rollback")
    assert rows(conninfo, f"select n from {table}") == []
    assert noted(prepared, table, "1") == [b"COMMIT"]


def test_a_commit_that_fails_says_so(
    prepared: tuple[psycopg.Connection[Any], Prepared], table: str, conninfo: str
) -> None:
    noted(prepared, table, "1")
    connection, own = prepared
    text = f"insert into {table} values (%s::text::integer) returning n".encode()
    connection.execute("begin")
    with connection.lock:
        assert connection.wait(own.ask_and_commit(text, [b"1"])) == [(1,)]
        (result,) = connection.wait(own.committed())
    assert result.status == psycopg.pq.ExecStatus.FATAL_ERROR
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert rows(conninfo, f"select n from {table}") == [(1,)]


FORGETTING = {
    "all": "deallocate all",
    "a rollback": "savepoint s; rollback to savepoint s",
    "a drop": "create temp table t (n integer); drop table t",
}


@pytest.mark.parametrize("statement", FORGETTING.values(), ids=FORGETTING)
def test_what_makes_psycopg_deallocate_is_no_fault(
    qm: onceq.QueueManager, conninfo: str, repository: str, statement: str
) -> None:
    qm.declare(RAW)
    executions: list[int] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.attempt)
        for one in statement.split(";"):
            context.connection.execute(one.encode())
        return request

    for _ in range(4):
        qm.enqueue(RAW, b"x")
    with serving(conninfo, repository, RAW.handled_by(handle)) as server:
        wait_until(lambda: server.statistics().done == 4)
    assert executions == [1] * 4
    assert rows(conninfo, f"select charge from {repository}.attempt") == []


@pytest.mark.parametrize("ended", ["", "commit; begin; "], ids=["its own", "another"])
def test_what_is_deallocated_unseen_is_rejected(
    qm: onceq.QueueManager, conninfo: str, repository: str, ended: str
) -> None:
    """Nobody can say whether the transaction is still the one that the handler was given."""
    qm.declare(RAW)
    executions: list[int] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.attempt)
        if request == b"bad":
            text = ended + "do $$ begin execute 'deallocate all'; end $$"
            context.connection.execute(text.encode())
        return request

    for body in (b"good", b"bad", b"good"):
        qm.enqueue(RAW, body)
    with serving(conninfo, repository, RAW.handled_by(handle)) as server:
        wait_until(lambda: server.statistics().done == 2)
    assert executions == [1, 1, 1]
    attempts = rows(conninfo, f"select charge, code from {repository}.attempt")
    assert attempts == [("reject", "HandlerMisuse")]


def test_a_session_that_is_ended_in_its_finish_says_why(
    conninfo: str, prepared: tuple[psycopg.Connection[Any], Prepared]
) -> None:
    """The COMMIT that comes after must not hide it: an operator sees only this."""
    connection, statements = prepared
    pid = connection.info.backend_pid
    with ThreadPoolExecutor(1) as thread, plain(conninfo) as holder:
        holder.execute(WAITING)
        connection.pgconn.exec_(b"begin")
        asked = thread.submit(connection.wait, statements.ask_and_commit(WAITING, []))
        waits = "select exists (select from pg_locks where pid = %s and not granted)"
        wait_until(lambda: holder.execute(waits, (pid,)).fetchone() == (True,))
        holder.execute("select pg_terminate_backend(%s)", (pid,))
        with pytest.raises(psycopg.errors.AdminShutdown, match="administrator command"):
            asked.result(60)
