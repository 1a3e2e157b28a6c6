"""The kinds of connection that a caller may have, all driven alike."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import django
import psycopg
import sqlalchemy
from django.conf import settings as django_settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import onceq

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=3)
URL = "postgresql+psycopg://"
atomic: Any = transaction.atomic


def as_it_is(value: Any) -> Any:
    return value


@dataclass(kw_only=True)
class Caller:
    """A queue manager and a user's own connection. wait: what makes an answer of an awaitable."""

    qm: Any
    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    wait: Callable[[Any], Any] = field(default=as_it_is)

    def enqueue(self, body: bytes, **attributes: Any) -> Any:
        return self.wait(self.qm.enqueue(RAW, body, connection=self.connection, **attributes))

    def enqueue_by_function(self, body: bytes, repository: str | None = None) -> Any:
        enqueue: Any = onceq.enqueue if self.wait is as_it_is else onceq.enqueue_async
        there = repository or self.qm.repository
        return self.wait(enqueue(self.connection, RAW, body, repository=there))

    def dequeue(self, timeout_s: float = 10) -> Any:
        return self.wait(self.qm.dequeue("raw", timeout_s=timeout_s, connection=self.connection))

    def reply(self, element: Any, body: bytes) -> None:
        self.wait(self.qm.reply(self.connection, element, body))

    def write(self, number: int) -> None:
        """What the user does in the transaction."""
        self.execute(f"insert into {self.qm.repository}.effects values ({number})")


@contextlib.contextmanager
def waiting(conninfo: str, repository: str) -> Generator[tuple[Any, Callable[[Any], Any]]]:
    """An async queue manager, and what waits for what it is asked."""
    with asyncio.Runner() as runner:
        opened = onceq.open_async(conninfo, repository=repository)
        yield runner.run(opened.__aenter__()), runner.run
        runner.run(opened.__aexit__(None, None, None))


@contextlib.contextmanager
def by_psycopg(conninfo: str, repository: str) -> Generator[Caller]:
    with (
        onceq.open(conninfo, repository=repository) as qm,
        contextlib.closing(psycopg.connect(conninfo)) as connection,
    ):
        yield Caller(
            qm=qm,
            connection=connection,
            execute=lambda text: connection.execute(text.encode()),
            commit=connection.commit,
            rollback=connection.rollback,
        )


@contextlib.contextmanager
def by_psycopg_async(conninfo: str, repository: str) -> Generator[Caller]:
    with waiting(conninfo, repository) as (qm, wait):
        connection = wait(psycopg.AsyncConnection.connect(conninfo))
        yield Caller(
            qm=qm,
            connection=connection,
            execute=lambda text: wait(connection.execute(text.encode())),
            commit=lambda: wait(connection.commit()),
            rollback=lambda: wait(connection.rollback()),
            wait=wait,
        )
        wait(connection.close())


@contextlib.contextmanager
def by_sqlalchemy(conninfo: str, repository: str, of: Any = None) -> Generator[Caller]:
    engine = sqlalchemy.create_engine(URL, creator=lambda: psycopg.connect(conninfo))
    try:
        with (
            onceq.open(conninfo, repository=repository) as qm,
            (of or sqlalchemy.Engine.connect)(engine) as connection,
        ):
            yield Caller(
                qm=qm,
                connection=connection,
                execute=lambda text: connection.execute(sqlalchemy.text(text)),
                commit=connection.commit,
                rollback=connection.rollback,
            )
    finally:
        engine.dispose()


def by_session(conninfo: str, repository: str) -> Any:
    return by_sqlalchemy(conninfo, repository, Session)


@contextlib.contextmanager
def by_sqlalchemy_async(conninfo: str, repository: str, of: Any = None) -> Generator[Caller]:
    engine = create_async_engine(
        URL, async_creator=lambda: psycopg.AsyncConnection.connect(conninfo)
    )
    with waiting(conninfo, repository) as (qm, wait):
        connection = engine.connect() if of is None else of(engine)
        wait(connection.__aenter__())
        yield Caller(
            qm=qm,
            connection=connection,
            execute=lambda text: wait(connection.execute(sqlalchemy.text(text))),
            commit=lambda: wait(connection.commit()),
            rollback=lambda: wait(connection.rollback()),
            wait=wait,
        )
        wait(connection.__aexit__(None, None, None))
        wait(engine.dispose())


def by_session_async(conninfo: str, repository: str) -> Any:
    return by_sqlalchemy_async(conninfo, repository, AsyncSession)


class Atomic:
    """Django's atomic blocks, as if they were a connection's commit and rollback."""

    def __init__(self) -> None:
        self.block: Any = None

    def begin(self) -> None:
        self.block = atomic()
        self.block.__enter__()

    def commit(self) -> None:
        block, self.block = self.block, None
        block.__exit__(None, None, None)

    def rollback(self) -> None:
        transaction.set_rollback(True)
        self.commit()


@contextlib.contextmanager
def django_database(conninfo: str, **settings: Any) -> Generator[Any]:
    """Django's default connection, to this database."""
    if not django_settings.configured:
        django_settings.configure(USE_TZ=True, TIME_ZONE="Pacific/Auckland")
        django.setup()
    given = conninfo_to_dict(conninfo)
    names = {"host": "HOST", "port": "PORT", "user": "USER", "dbname": "NAME"}
    database = {names[key]: value for key, value in given.items() if key in names}
    engine = {"ENGINE": "django.db.backends.postgresql"}
    connections.settings = connections.configure_settings(
        {"default": {**engine, **database, **settings}}
    )
    try:
        yield connections["default"]
    finally:
        connections["default"].close()
        del connections["default"]


@contextlib.contextmanager
def by_django(conninfo: str, repository: str) -> Generator[Caller]:
    """Each commit and each rollback begins another atomic block, as a psycopg connection does."""
    with onceq.open(conninfo, repository=repository) as qm, django_database(conninfo) as connection:
        block = Atomic()
        block.begin()

        def execute(text: str) -> Any:
            with connection.cursor() as cursor:
                return cursor.execute(text)

        def commit() -> None:
            try:
                block.commit()
            finally:
                block.begin()

        def rollback() -> None:
            block.rollback()
            block.begin()

        yield Caller(
            qm=qm, connection=connection, execute=execute, commit=commit, rollback=rollback
        )
        block.rollback()


KINDS: dict[str, Callable[[str, str], contextlib.AbstractContextManager[Caller]]] = {
    "psycopg": by_psycopg,
    "psycopg_async": by_psycopg_async,
    "sqlalchemy": by_sqlalchemy,
    "session": by_session,
    "sqlalchemy_async": by_sqlalchemy_async,
    "session_async": by_session_async,
    "django": by_django,
}
