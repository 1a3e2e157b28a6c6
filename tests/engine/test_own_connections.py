"""Enqueue and dequeue on every kind of connection that a caller may have (spec C13, Q2)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection as django_connection
from django.db import transaction
from psycopg.rows import dict_row
from psycopg.types.string import TextBinaryLoader
from sqlalchemy.exc import DBAPIError

import onceq
from onceq.errors import ConnectionLost, IllegalState, QueueStopped, StatementRefused
from tests.engine.own_connections import (
    KINDS,
    RAW,
    Caller,
    atomic,
    by_django,
    by_psycopg,
    django_database,
)
from tests.parts import Background, plain, rows, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

SYNC = ["psycopg", "sqlalchemy", "session", "django"]


@pytest.fixture
def repository(repository: str, conninfo: str) -> str:
    """A repository with a table of the user's."""
    with plain(conninfo) as connection, onceq.open(conninfo, repository=repository) as qm:
        connection.execute(f"create table {repository}.effects (n integer)".encode())
        qm.declare(RAW)
    return repository


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, conninfo: str, repository: str) -> Generator[Caller]:
    """A caller of each kind."""
    with KINDS[request.param](conninfo, repository) as made:
        yield made


def effects(conninfo: str, repository: str) -> list[int]:
    return [row[0] for row in rows(conninfo, f"select n from {repository}.effects order by n")]


def bodies(qm: onceq.QueueManager) -> list[bytes]:
    """Takes everything out of the queue."""
    return [one.body for one in iter(lambda: qm.dequeue("raw"), None)]


def test_an_enqueue_and_the_users_writes_are_one(
    qm: onceq.QueueManager, conninfo: str, caller: Caller
) -> None:
    caller.write(1)
    caller.enqueue(b"rolled back")
    caller.rollback()
    caller.write(2)
    caller.enqueue_by_function(b"by function")
    caller.write(3)
    eid = caller.enqueue(b"by method")
    assert qm.read(eid) is None  # not yet
    caller.commit()
    caller.enqueue(b"alone")
    caller.commit()
    assert effects(conninfo, qm.repository) == [2, 3]
    assert bodies(qm) == [b"by function", b"by method", b"alone"]


def test_a_dequeue_a_reply_and_the_users_writes_are_one(
    qm: onceq.QueueManager, conninfo: str, caller: Caller
) -> None:
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        for number, end in enumerate((caller.rollback, caller.commit)):
            element = caller.dequeue()
            assert (element.body, element.aborts) == (b"x", number)
            caller.write(number)
            caller.reply(element, b"signed for")
            assert clerk.outstanding == ["1"]
            end()
        assert clerk.receive(timeout_s=60).value == b"signed for"
    assert effects(conninfo, qm.repository) == [1]
    assert qm.show("raw").depth == 0


def test_the_last_rollback_of_a_dequeue_fails_the_element(
    qm: onceq.QueueManager, conninfo: str, caller: Caller
) -> None:
    qm.enqueue(RAW, b"x")
    for attempt in range(3):
        assert caller.dequeue().aborts == attempt
        caller.rollback()
    assert caller.dequeue(timeout_s=0) is None
    found = f"select aborts, code from {qm.repository}.element"
    assert rows(conninfo, found) == [(3, "rolled_back")]
    assert qm.show("raw.error").held == 1


@pytest.mark.parametrize("kind", SYNC)
def test_a_savepoint_rolled_back_takes_what_was_done_in_it(
    qm: onceq.QueueManager, conninfo: str, kind: str
) -> None:
    with KINDS[kind](conninfo, qm.repository) as caller:
        caller.enqueue(b"before")
        caller.execute("savepoint mine")
        caller.enqueue(b"within")
        caller.write(1)
        caller.execute("rollback to savepoint mine")
        caller.write(2)
        caller.commit()
        assert effects(conninfo, qm.repository) == [2]
        assert bodies(qm) == [b"before"]
        qm.enqueue(RAW, b"taken")
        caller.execute("savepoint mine")
        assert caller.dequeue() is not None
        caller.execute("rollback to savepoint mine")
        caller.commit()
        again = caller.dequeue()
        assert (again.body, again.aborts) == (b"taken", 1)
        caller.commit()
    assert qm.show("raw").depth == 0


def test_a_failed_operation_fails_the_transaction_and_no_other(
    qm: onceq.QueueManager, conninfo: str, caller: Caller
) -> None:
    caller.write(1)
    qm.stop("raw", dequeue=False)
    with pytest.raises(QueueStopped):
        caller.enqueue(b"x")
    with pytest.raises(StatementRefused, match="transaction is aborted"):
        caller.enqueue(b"x")
    caller.rollback()
    qm.start("raw")
    caller.write(2)
    caller.enqueue(b"y")
    caller.commit()
    assert effects(conninfo, qm.repository) == [2]
    assert bodies(qm) == [b"y"]


def test_an_autocommit_connection_in_a_transaction_will_do(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    with plain(conninfo) as connection:
        with connection.transaction():
            onceq.enqueue(connection, RAW, b"x", repository=qm.repository)
        assert connection._notice_handlers == []
        with connection.transaction():
            assert qm.dequeue("raw", connection=connection) is not None
    assert qm.show("raw").depth == 0


@pytest.mark.parametrize("kind", ["psycopg", "psycopg_async", "session", "session_async"])
def test_a_connection_that_breaks_loses_the_whole_transaction(
    qm: onceq.QueueManager, conninfo: str, kind: str
) -> None:
    qm.enqueue(RAW, b"stays")
    with KINDS[kind](conninfo, qm.repository) as caller:
        assert caller.dequeue() is not None
        caller.write(1)
        caller.enqueue(b"x")
        query = f"select pid from pg_stat_activity where query like '%{qm.repository}.enqueue%'"
        ((pid,),) = rows(conninfo, f"{query} and state = 'idle in transaction'")
        scalar(conninfo, "select pg_terminate_backend(%s, 60000)", pid)
        for _ in range(2):  # first the loss is noticed, then it is known
            with pytest.raises(ConnectionLost, match="nothing happened"):
                caller.enqueue(b"y")
        with contextlib.suppress(psycopg.Error, DBAPIError):
            caller.rollback()
        assert effects(conninfo, qm.repository) == []
        if kind.startswith("session"):  # which then takes another connection of its pool
            assert caller.dequeue().aborts == 1
            caller.commit()
            assert qm.show("raw").depth == 0


def test_django_says_when_its_connection_was_lost_in_a_block(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    with by_django(conninfo, qm.repository) as caller:
        caller.write(1)
        caller.connection.close()
        with pytest.raises(ConnectionLost, match="nothing happened"):
            caller.enqueue(b"x")


def test_a_failed_atomic_block_is_refused(qm: onceq.QueueManager, conninfo: str) -> None:
    with django_database(conninfo) as connection:
        with atomic():
            onceq.enqueue(connection, RAW, b"kept", repository=qm.repository)
            with contextlib.suppress(ZeroDivisionError), atomic(savepoint=False):
                raise ZeroDivisionError
            with pytest.raises(IllegalState, match="atomic block"):
                onceq.enqueue(connection, RAW, b"x", repository=qm.repository)
        with atomic():
            onceq.enqueue(connection, RAW, b"outer", repository=qm.repository)
            with contextlib.suppress(ZeroDivisionError), atomic():
                onceq.enqueue(connection, RAW, b"inner", repository=qm.repository)
                raise ZeroDivisionError
    assert bodies(qm) == [b"outer"]


def test_what_runs_on_commit_is_outside_the_transaction(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    seen: list[Any] = []

    def after() -> None:
        seen.append(qm.show("raw").depth)  # it is there by now
        with pytest.raises(IllegalState, match="begin one"):
            onceq.enqueue(django_connection, RAW, b"late", repository=qm.repository)
        with atomic():
            onceq.enqueue(django_connection, RAW, b"another", repository=qm.repository)

    with django_database(conninfo), atomic():
        onceq.enqueue(django_connection, RAW, b"first", repository=qm.repository)
        transaction.on_commit(after)
    assert seen == [1]
    assert bodies(qm) == [b"first", b"another"]


def test_what_is_registered_on_the_connection_changes_nothing(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    with by_psycopg(conninfo, qm.repository) as caller:
        for kind in ("uuid", "jsonb", "timestamptz", "bytea", "text", "int8"):
            caller.connection.adapters.register_loader(kind, TextBinaryLoader)
        caller.connection.row_factory = dict_row
        caller.connection.cursor_factory = psycopg.ClientCursor
        eid = caller.enqueue(b"\0x", properties={"a": [1]})
        assert eid.version is not None
        caller.commit()
        element = caller.dequeue()
        assert (element.eid, element.body, element.properties) == (eid, b"\0x", {"a": [1]})
        caller.commit()
    assert qm.show("raw").depth == 0


def test_a_connection_that_prepares_nothing_prepares_nothing_of_ours(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    for threshold, prepared in ((None, 0), (5, 1)):
        with psycopg.connect(conninfo, prepare_threshold=threshold) as connection:
            onceq.enqueue(connection, RAW, b"x", repository=qm.repository)
            found = connection.execute("select count(*) from pg_prepared_statements").fetchone()
            assert found == (prepared,)


def test_a_transaction_that_woke_a_server_cannot_be_prepared(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """PostgreSQL refuses what has notified; who sleeps is notified."""
    server = onceq.Server([RAW.handled_by(lambda body, _: body)])
    running = Background(lambda: server.run(conninfo, repository=qm.repository))
    try:
        wait_until(lambda: server.statistics().rung + server.statistics().polled > 0)
        with contextlib.closing(psycopg.connect(conninfo)) as connection:
            connection.tpc_begin("mine")
            onceq.enqueue(connection, RAW, b"x", repository=qm.repository)
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
                connection.tpc_prepare()
    finally:
        server.stop()
    assert running.result()
    assert qm.lookup(queue="raw") == []
