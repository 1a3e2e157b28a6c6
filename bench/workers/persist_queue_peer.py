"""persist-queue: a queue in a SQLite file, for the threads of one process.

Best: its plain queue, from which what is taken is gone. Safe: its queue with acknowledgements.
Either syncs each commit. The user's table is in PostgreSQL: its connection is its own.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psycopg
from persistqueue import Empty, SQLiteAckQueue, SQLiteQueue

from bench.workers import postgres
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
    EnqueueBatch,
    Place,
    System,
    Timed,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_threads

if TYPE_CHECKING:
    from collections.abc import Callable

WEAKER = {
    "best": "at most once: what is taken is removed before its effect commits elsewhere, so that a"
    " crash in between loses it; no reply, and one process.",
    "safe": "at least once: the effect commits elsewhere before the acknowledgement does, so that a"
    " crash in between repeats it, once the process starts again; no reply, and one process.",
}
HOW = {
    "best": "clients and servers are threads that share SQLiteQueue; the user's table is in"
    " PostgreSQL",
    "safe": "clients and servers are threads that share SQLiteAckQueue; the user's table is in"
    " PostgreSQL",
}


class PersistQueue(System):
    """A directory with a file of SQLite."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.directory = place.directory / "queue"
        self.queue = self._opened()

    def _opened(self) -> Any:
        return SQLiteAckQueue(str(self.directory), multithreading=True)

    def about(self) -> About:
        return About(
            system="persist_queue",
            version=version("persist-queue"),
            weaker=WEAKER[self.place.setting],
            how=HOW[self.place.setting],
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        def run(number: int) -> None:
            for _ in range(number):
                self.queue.put(BODY)

        before = self.queue.qsize()
        numbers = shares(asked.number, asked.clients)
        seconds = timed_threads([partial(run, number) for number in numbers])
        require_count("enqueued", self.queue.qsize() - before, asked.number)
        return Timed(seconds=seconds)

    def _fill(self, number: int) -> None:
        self.enqueue(Enqueue(number=number))

    def _done(self, taken: Any) -> None:
        self.queue.ack(id=taken["pqid"])

    def _server(self, insert: str, connection: Any) -> None:
        while True:
            try:
                taken = self.queue.get(block=False, raw=True)
            except Empty:
                return
            if insert:
                connection.execute(insert, (taken["data"],))
            self._done(taken)

    def dequeue(self, asked: Dequeue) -> Timed:
        conninfo = self.place.require_conninfo()
        postgres.empty_effects(conninfo)
        self.close()
        shutil.rmtree(self.directory)
        self.queue = self._opened()
        self._fill(asked.number)
        insert = postgres.EFFECT if asked.user_sql else ""
        connections = [psycopg.connect(conninfo, autocommit=True) for _ in range(asked.servers)]
        servers: list[Callable[[], None]] = [
            partial(self._server, insert, connection) for connection in connections
        ]
        seconds = timed_threads(servers)
        for connection in connections:
            connection.close()
        require_count("left", self.queue.qsize(), 0)
        postgres.require_effects(conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def close(self) -> None:
        self.queue.close()


class PlainQueue(PersistQueue):
    """The queue without acknowledgements; only it can commit several at once."""

    def _opened(self) -> Any:
        return SQLiteQueue(str(self.directory), multithreading=True, auto_commit=True)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        self.close()
        batched = SQLiteQueue(str(self.directory), multithreading=True, auto_commit=False)
        before = batched.qsize()
        started = time.perf_counter()
        for size in shares(asked.number, -(-asked.number // asked.batch)):
            for _ in range(size):
                batched.put(BODY)
            batched.task_done()
        seconds = time.perf_counter() - started
        batched.close()
        self.queue = self._opened()
        require_count("enqueued", self.queue.qsize() - before, asked.number)
        return Timed(seconds=seconds)

    def _fill(self, number: int) -> None:
        self.enqueue_batch(EnqueueBatch(number=number, batch=1000))

    def _done(self, taken: Any) -> None:
        """Do nothing: what was taken is gone already."""


def opened(place: Place) -> System:
    """Return the queue of that setting."""
    return PlainQueue(place) if place.setting == "best" else PersistQueue(place)


if __name__ == "__main__":
    serve_commands(opened)
