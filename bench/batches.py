"""Servers that take what waits into one transaction, against one request a transaction.

Through the native server's Program, on one session, with requests that owe a reply and wait
already: a handler without SQL (echo), and one with one user INSERT. What is fixed: the machine,
the repository, the bodies, the order of the slices.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import uuid
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import psycopg

import onceq
from bench.pairs import Case, pair
from onceq.engine.connection import Link
from onceq.server.handlers import sync_call
from onceq.server.program import Served, ServerSession, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

BODY = b"x" * 200
ECHO = onceq.Queue("echo", bytes, bytes)
SLICES = {1: 400, 10: 2_000, 100: 5_000}
ROUNDS = 6
"""Those of a pair, and the one that warms up."""


def echo(body: bytes, _context: onceq.Context) -> bytes:
    """Replies."""
    return body


def insert(body: bytes, context: onceq.Context) -> bytes:
    """Does the user's one INSERT, and replies."""
    context.connection.execute("insert into effect values (%s)", (body,))
    return body


class Bench:
    """A repository with requests that wait."""

    def __init__(self, qm: onceq.QueueManager) -> None:
        self.qm = qm
        with psycopg.connect(qm.located.conninfo, autocommit=True) as connection:
            connection.execute("create table effect (body bytea)")
        qm.declare(ECHO)
        self.clerk = qm.clerk("bench", ECHO, window=100_000).connect()
        self.numbers = count()

    def fill(self, number: int) -> None:
        """Sends so many requests."""
        for first in range(0, number, 1_000):
            many = range(first, min(first + 1_000, number))
            self.clerk.send_many([(str(next(self.numbers)), BODY) for _ in many])

    def drain(self) -> None:
        """Receives and acknowledges all replies."""
        while self.clerk.outstanding:
            replies = self.clerk.receive_many(10_000, timeout_s=60)
            self.clerk.acknowledge([reply.rid for reply in replies])

    def serve(self, handler: Callable[[bytes, onceq.Context], bytes], batch: int) -> None:
        """Serves a slice of the waiting requests; no more than a batch beyond."""
        stop = threading.Event()
        done = count(1)

        def counted(body: bytes, context: onceq.Context) -> bytes:
            if next(done) == SLICES[batch]:
                stop.set()
            return handler(body, context)

        calls = {"echo": sync_call(ECHO.handled_by(counted), psycopg.Error)}
        link = Link(self.qm.located, self.qm.repository, calls=calls, stop=stop)
        link.reconnect()
        served = (Served("echo", "read committed", batch),)
        link.run(serve(ServerSession(process=uuid.uuid4(), host="bench", pid=0, served=served)))
        link.close()

    def case(self, handler: Callable[[bytes, onceq.Context], bytes], batch: int) -> Case:
        """Returns one side of a pair."""
        name = f"{handler.__name__}, {batch} in a transaction"
        return Case(name, SLICES[batch], partial(self.serve, handler, batch))


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


def main() -> None:
    """Prints the pairs."""
    for handler in (echo, insert):
        for batch in (10, 100):
            with bench() as one:
                one.fill(ROUNDS * (SLICES[batch] + SLICES[1]) + 1_000)
                question = f"{handler.__name__}: {batch} in a transaction against one"
                pair(question, one.case(handler, batch), one.case(handler, 1))


if __name__ == "__main__":
    main()
