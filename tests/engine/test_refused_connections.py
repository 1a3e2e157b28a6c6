"""Connections that a caller may not use, and what is said of them: nothing happened (spec C13)."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from django.db import connection as django_connection
from psycopg.conninfo import make_conninfo
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import onceq
from onceq.engine.schema.migrate import apply_with
from onceq.errors import ConnectionLost, IllegalState, InvalidValue, SchemaMissing
from tests.engine.own_connections import (
    KINDS,
    RAW,
    URL,
    as_it_is,
    atomic,
    by_psycopg,
    by_psycopg_async,
    by_sqlalchemy,
    django_database,
)
from tests.lives import living
from tests.parts import plain

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def repository(repository: str, conninfo: str) -> str:
    """With the queue."""
    with onceq.open(conninfo, repository=repository) as qm:
        qm.declare(RAW)
    return repository


def test_autocommit_is_refused(qm: onceq.QueueManager, conninfo: str) -> None:
    eid = qm.enqueue(RAW, b"stays")
    engine = sqlalchemy.create_engine(
        URL, creator=lambda: psycopg.connect(conninfo), isolation_level="AUTOCOMMIT"
    )
    with (
        plain(conninfo) as connection,
        engine.connect() as over,
        Session(engine) as session,
        django_database(conninfo) as django,
    ):
        for one in (connection, over, session, django, django_connection):
            for call in (
                lambda one=one: onceq.enqueue(one, RAW, b"x", repository=qm.repository),
                lambda one=one: qm.enqueue(RAW, b"x", connection=one),
                lambda one=one: qm.dequeue("raw", connection=one),
            ):
                with pytest.raises(IllegalState, match="begin one"):
                    call()
    engine.dispose()
    assert [(one.eid, one.state) for one in qm.lookup(queue="raw")] == [(eid, "queued")]


def test_autocommit_is_refused_of_async_ones(conninfo: str, repository: str) -> None:
    with by_psycopg_async(conninfo, repository) as caller:
        caller.wait(caller.connection.set_autocommit(True))
        with pytest.raises(IllegalState, match="begin one"):
            caller.enqueue(b"x")
        with pytest.raises(IllegalState, match="begin one"):
            caller.enqueue_by_function(b"x")
        with pytest.raises(IllegalState, match="begin one"):
            caller.dequeue()
        assert caller.wait(caller.qm.show("raw")).depth == 0


def test_a_closed_connection_is_refused(qm: onceq.QueueManager, conninfo: str) -> None:
    eid = qm.enqueue(RAW, b"stays")
    closed = psycopg.connect(conninfo)
    closed.close()
    engine = sqlalchemy.create_engine(URL, creator=lambda: psycopg.connect(conninfo))
    over = engine.connect()
    over.close()
    invalid = engine.connect()
    invalid.invalidate()
    for one in (closed, over, invalid):
        with pytest.raises(ConnectionLost, match="nothing happened"):
            qm.dequeue("raw", connection=one)
        with pytest.raises(ConnectionLost, match="nothing happened"):
            onceq.enqueue(one, RAW, b"x", repository=qm.repository)
    invalid.close()
    engine.dispose()
    assert [(one.eid, one.state) for one in qm.lookup(queue="raw")] == [(eid, "queued")]


def test_connections_of_other_databases_drivers_are_refused(
    qm: onceq.QueueManager, repository: str
) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as plainly,
        engine.connect() as over,
        Session(engine) as session,
        django_database("", **sqlite) as django,
        atomic(),
    ):
        for one in (plainly, over, session, django):
            with pytest.raises(InvalidValue, match=r"is not a connection .* psycopg 3"):
                qm.dequeue("raw", connection=one)
            with pytest.raises(InvalidValue, match=r"is not a connection .* psycopg 3"):
                onceq.enqueue(one, RAW, b"x", repository=repository)
    engine.dispose()
    assert qm.show("raw").depth == 0


def test_async_connections_and_others_are_told_apart(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    engine = create_async_engine(URL)
    with by_psycopg_async(conninfo, repository) as caller:
        for one in (caller.connection, AsyncSession(engine), engine.connect()):
            with pytest.raises(InvalidValue, match="is not a connection"):
                onceq.enqueue(one, RAW, b"x", repository=repository)
            with pytest.raises(InvalidValue, match="is not a connection"):
                qm.enqueue(RAW, b"x", connection=one)
        with pytest.raises(InvalidValue, match="open_async"):
            qm.enqueue(RAW, b"x", connection=caller.connection)
        with pytest.raises(IllegalState, match="not begun"):
            caller.wait(caller.qm.enqueue(RAW, b"x", connection=engine.connect()))
        with psycopg.connect(conninfo) as connection, by_sqlalchemy(conninfo, repository) as other:
            for one in (connection, other.connection, Session(other.connection.engine)):
                with pytest.raises(InvalidValue, match="is not a connection"):
                    caller.wait(caller.qm.enqueue(RAW, b"x", connection=one))
    assert qm.show("raw").depth == 0


@pytest.fixture
def other_database(conninfo: str) -> Generator[str]:
    """Another database of the same server."""
    with plain(conninfo) as connection:
        connection.execute("create database elsewhere")
        yield make_conninfo(conninfo, dbname="elsewhere")
        connection.execute("drop database elsewhere with (force)")


def test_a_connection_to_another_database_takes_nothing(
    qm: onceq.QueueManager, conninfo: str, other_database: str
) -> None:
    """Two repositories of one name, whose numbers of elements and of claims are the same."""
    apply_with(other_database, qm.repository)
    with (
        onceq.open(other_database, repository=qm.repository) as elsewhere,
        living(other_database, qm.repository) as life,
        psycopg.connect(other_database) as connection,
        by_psycopg(conninfo, qm.repository) as here,
    ):
        elsewhere.declare(RAW)
        eids = [one.enqueue(RAW, b"x") for one in (qm, elsewhere)]
        assert life.claim_one("raw").eid == eids[1]
        for _ in range(2):
            with pytest.raises(InvalidValue, match="'elsewhere'"):
                here.qm.dequeue("raw", connection=connection)
        with pytest.raises(InvalidValue, match="another database"):
            here.qm.enqueue(RAW, b"y", connection=connection)
        connection.commit()
        assert [one.read(eid) is not None for one, eid in zip((qm, elsewhere), eids, strict=True)]
        assert (elsewhere.show("raw").depth, qm.show("raw").depth) == (1, 1)
        assert here.dequeue().eid == eids[0]
        here.commit()


@pytest.mark.parametrize("kind", ["psycopg", "psycopg_async"])
def test_a_connection_to_another_database_takes_no_reply(
    qm: onceq.QueueManager, conninfo: str, other_database: str, kind: str
) -> None:
    """The same client, with the same outstanding request, in two repositories of one name."""
    apply_with(other_database, qm.repository)
    with (
        onceq.open(other_database, repository=qm.repository) as elsewhere,
        KINDS[kind](conninfo, qm.repository) as here,
    ):
        elsewhere.declare(RAW)
        clerks: list[Any] = [one.clerk("till", RAW) for one in (here.qm, elsewhere)]
        for clerk, place, wait in zip(
            clerks, (conninfo, other_database), (here.wait, as_it_is), strict=True
        ):
            wait(clerk.connect())
            wait(clerk.send("1", b"x"))
            with living(place, qm.repository) as life:
                life.run(life.claim_one("raw"), place.encode())
        there = here.wait(type(here.connection).connect(other_database))
        for _ in range(2):
            with pytest.raises(InvalidValue, match="'elsewhere'"):
                here.wait(clerks[0].receive(timeout_s=60, connection=there))
        here.wait(there.commit())
        here.wait(there.close())
        assert clerks[1].receive(timeout_s=60).value == other_database.encode()
        reply = here.wait(clerks[0].receive(timeout_s=60, connection=here.connection))
        assert reply.value == conninfo.encode()
        here.commit()
        for clerk, wait in zip(clerks, (here.wait, as_it_is), strict=True):
            wait(clerk.close())


def test_a_database_without_the_repository_is_named(
    qm: onceq.QueueManager, other_database: str
) -> None:
    with psycopg.connect(other_database) as connection:
        with pytest.raises(SchemaMissing, match=f"'elsewhere'.*{qm.repository}"):
            onceq.enqueue(connection, RAW, b"x", repository=qm.repository)
        connection.rollback()
        assert connection.execute("select 1").fetchone() == (1,)
