"""The hot path against the raw statements that it cannot do without.

Send against a raw INSERT; one at a time through the native server's Program, with one user
INSERT, against DELETE ... SKIP LOCKED with the same user INSERT; request and reply against the
two together. Raw does no registration, epoch, same-rid check, attempts, history or marker.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import uuid
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.pairs import Case, pair
from onceq.engine.connection import Link
from onceq.server.handlers import sync_call
from onceq.server.program import Served, ServerSession, serve

if TYPE_CHECKING:
    from collections.abc import Generator

BODY = b"x" * 200
SLICE = 400
ECHO = onceq.Queue("echo", bytes, bytes)

RAW = """
create table raw_queue (id bigint generated always as identity primary key, body bytea);
create table effect (body bytea)
"""


def handle(body: bytes, context: onceq.Context) -> bytes:
    """Does the user's one INSERT, and replies."""
    context.connection.execute("insert into effect values (%s)", (body,))
    return b"ok"


class Bench:
    """A repository, a raw connection and a clerk."""

    def __init__(self, qm: onceq.QueueManager) -> None:
        self.qm = qm
        self.raw: psycopg.Connection[Any] = psycopg.connect(qm.located.conninfo, autocommit=True)
        self.raw.execute(RAW.encode())
        qm.declare(ECHO)
        self.clerk = qm.clerk("bench", ECHO, window=100_000).connect()
        self.numbers = count()

    def send(self, number: int = SLICE) -> None:
        """Sends, one by one, each stable before the next."""
        for _ in range(number):
            self.clerk.send(str(next(self.numbers)), BODY)

    def raw_send(self, number: int = SLICE) -> None:
        """Inserts, one by one, each in a transaction of its own."""
        for _ in range(number):
            self.raw.execute("insert into raw_queue (body) values (%s)", (BODY,))

    def serve(self, number: int = SLICE) -> None:
        """Serves that many requests, one transaction each."""
        stop = threading.Event()
        done = count(1)

        def counted(body: bytes, context: onceq.Context) -> bytes:
            if next(done) >= number:
                stop.set()
            return handle(body, context)

        calls = {"echo": sync_call(ECHO.handled_by(counted), psycopg.Error)}
        link = Link(self.qm.located, self.qm.repository, calls=calls, stop=stop)
        link.reconnect()
        served = (Served("echo", "read committed"),)
        link.run(serve(ServerSession(process=uuid.uuid4(), host="bench", pid=0, served=served)))
        link.close()

    def raw_serve(self, number: int = SLICE) -> None:
        """Deletes and inserts the effect, one transaction each."""
        for _ in range(number):
            with self.raw.transaction():
                row = self.raw.execute(
                    "delete from raw_queue where id = (select id from raw_queue order by id"
                    " limit 1 for update skip locked) returning body"
                ).fetchone()
                self.raw.execute("insert into effect values (%s)", row)

    def drain(self) -> None:
        """Receives and acknowledges what waits."""
        while self.clerk.outstanding:
            replies = self.clerk.receive_many(10_000, timeout_s=60)
            self.clerk.acknowledge([reply.rid for reply in replies])


@contextlib.contextmanager
def bench() -> Generator[Bench]:
    """A fresh repository in a directory that goes away."""
    with (
        tempfile.TemporaryDirectory(prefix="onceq-bench-") as directory,
        onceq.open(f"embedded:{directory}/data") as qm,
    ):
        one = Bench(qm)
        yield one
        one.clerk.close()
        one.raw.close()


def main() -> None:
    """Prints the pairs."""
    with bench() as one:
        pair(
            "send, one client",
            Case("onceq send", SLICE, one.send),
            Case("raw insert", SLICE, one.raw_send),
            target=0.88,
        )
        pair(
            "serve one at a time, with user SQL",
            Case("onceq serve", SLICE, one.serve),
            Case("raw delete and insert", SLICE, one.raw_serve),
            target=0.85,
        )
        one.drain()


if __name__ == "__main__":
    main()
