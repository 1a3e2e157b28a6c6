"""Encodings: sessions of ours are in UTF-8 whatever else is set; a database must be, to be made."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import onceq
from onceq.engine.schema import migrate
from onceq.errors import EncodingRefused, IllegalState
from tests.parts import plain, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
TEXT = "Zoë pays 5 €, за чай"


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def elsewhere(request: pytest.FixtureRequest, conninfo: str) -> Generator[str]:
    """A database in another encoding."""
    name = f"other_{uuid.uuid4().hex[:12]}"
    with plain(conninfo) as connection:
        connection.execute(
            f"create database {name} encoding '{request.param}' locale_provider libc"
            " lc_collate 'C' lc_ctype 'C' template template0".encode()
        )
        try:
            yield make_conninfo(conninfo, dbname=name)
        finally:
            connection.execute(f"drop database {name} with (force)".encode())


def test_a_database_that_cannot_hold_every_text_is_refused(elsewhere: str) -> None:
    with pytest.raises(EncodingRefused, match="encoding 'UTF8'"):
        migrate.apply_with(elsewhere, "onceq")
    with plain(elsewhere) as connection:
        assert connection.execute("select to_regnamespace('onceq')").fetchone() == (None,)


def test_a_repository_that_is_in_one_is_not_said_to_be_another_versions(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made before that was refused: it is used, as far as that goes."""
    monkeypatch.setattr(migrate, "check_encoding", lambda _: None)
    migrate.apply_with(elsewhere, "onceq")
    migrate.verify_with(elsewhere, "onceq")
    with onceq.open(elsewhere) as qm:
        qm.declare(RAW)
        qm.enqueue(RAW, b"x", rid="Zoë")
        element = qm.dequeue("raw")
        assert element is not None
        assert element.rid == "Zoë"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_the_environment_does_not_choose_the_encoding(
    conninfo: str, repository: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGCLIENTENCODING, and what the URL says: properties are text, and a server reads them."""
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    seen: list[Any] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(f"set client_encoding = '{encoding}'".encode())
        seen.append(context.properties)
        return request

    for url in (conninfo, make_conninfo(conninfo, client_encoding=encoding)):
        with (
            onceq.open(url, repository=repository) as qm,
            serving(url, repository, RAW.handled_by(handle)),
        ):
            qm.declare(RAW)
            for _ in range(2):
                qm.enqueue(RAW, b"x", properties={"who": TEXT})
            wait_until(lambda: not qm.show("raw").depth)
    assert seen == 4 * [{"who": TEXT}]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_callers_connection_that_cannot_carry_every_text_is_refused(
    qm: onceq.QueueManager, conninfo: str, repository: str, encoding: str
) -> None:
    qm.declare(RAW)
    url = make_conninfo(conninfo, client_encoding=encoding)
    with psycopg.connect(url) as connection:
        connection.execute("select 1")
        with pytest.raises(IllegalState, match=f"client_encoding {encoding}"):
            qm.enqueue(RAW, b"x", connection=connection)
        with pytest.raises(IllegalState, match=f"client_encoding {encoding}"):
            onceq.enqueue(connection, RAW, b"x", repository=repository)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as own:
            with pytest.raises(IllegalState, match=f"client_encoding {encoding}"):
                await onceq.enqueue_async(own, RAW, b"x", repository=repository)

    asyncio.run(main())
    assert qm.show("raw").depth == 0
