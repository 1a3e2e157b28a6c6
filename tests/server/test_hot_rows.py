"""Batches that change the same rows do not wait for each other with locks in hand (S3, G12)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.model import ops
from onceq.server.execution import Width
from tests.parts import LIMIT_S, plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.queue import Handled

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
ACCOUNTS = 5
N = 300


class Wrapped(Exception):
    """What a library makes of the database's errors."""


class Accounts:
    """Rows that everybody changes; the handlers keep what the database refused them."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self.refused: list[str | None] = []
        self.crossing = threading.Barrier(2)
        self.table = f"{repository}.account"
        with plain(conninfo) as connection:
            connection.execute(
                f"create table {self.table} as select n, 0 as booked"
                f" from generate_series(0, {ACCOUNTS - 1}) n".encode()
            )

    def book(self, body: bytes, context: onceq.Context) -> bytes:
        """Changes the row that the body names."""
        update = f"update {self.table} set booked = booked + 1 where n = %s"
        try:
            context.connection.execute(update.encode(), (int(body) % ACCOUNTS,))
        except psycopg.Error as error:
            self.refused.append(error.sqlstate)
            raise
        return b""

    def wrapping(self, body: bytes, context: onceq.Context) -> bytes:
        """As `book`, with errors of its own."""
        try:
            return self.book(body, context)
        except psycopg.Error as error:
            raise Wrapped from error

    def swallowing(self, body: bytes, context: onceq.Context) -> bytes:
        """As `book`, and says that all is well whatever happens."""
        try:
            return self.book(body, context)
        except psycopg.Error:
            return b""


@pytest.fixture
def accounts(conninfo: str, repository: str) -> Accounts:
    return Accounts(conninfo, repository)


def serve_all(
    qm: onceq.QueueManager, conninfo: str, bodies: list[bytes], *handled: Handled[Any, Any]
) -> None:
    """Serves what is sent with a server for each of the handlers; all is done at the first try."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, bodies)
    servers = [onceq.Server([one]) for one in handled]
    threads = [
        threading.Thread(target=one.run, args=(conninfo,), kwargs={"repository": qm.repository})
        for one in servers
    ]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: qm.show("raw").depth == 0)
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.stop()
            thread.join(LIMIT_S)
    ended = rows(conninfo, f"select outcome::text, aborts, count(*) from {qm.repository}.history group by 1, 2")
    assert ended == [("done", 0, len(bodies))]
    assert rows(conninfo, f"select code, error from {qm.repository}.attempt") == []
    booked = scalar(conninfo, f"select sum(booked) from {qm.repository}.account")
    assert booked == len(bodies)


def test_two_batch_servers_on_hot_rows_never_deadlock(
    qm: onceq.QueueManager, conninfo: str, accounts: Accounts
) -> None:
    handled = [RAW.handled_by(accounts.book, batch=50) for _ in range(2)]
    serve_all(qm, conninfo, [str(n * 7).encode() for n in range(N)], *handled)
    assert "40P01" not in accounts.refused


@pytest.mark.parametrize("how", ["book", "wrapping", "swallowing"])
def test_who_waits_for_the_other_lets_go_of_its_locks(
    qm: onceq.QueueManager, conninfo: str, accounts: Accounts, how: str
) -> None:
    """Each has changed one row and wants the other's, whatever its handler makes of the refusal."""
    book: Callable[[bytes, onceq.Context], bytes] = getattr(accounts, how)

    def crossing(body: bytes, context: onceq.Context) -> bytes:
        answer = book(body, context)
        if body in {b"0", b"11"} and not accounts.refused:
            accounts.crossing.wait(LIMIT_S)
        return answer

    handled = [RAW.handled_by(crossing, batch=2) for _ in range(2)]
    serve_all(qm, conninfo, [b"0", b"1", b"11", b"10"], *handled)
    assert set(accounts.refused) == {"55P03"}
