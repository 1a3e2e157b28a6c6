"""litequeue: a queue in a SQLite file; no server, one machine.

Best: as it sets SQLite up, where a commit is not synced. Safe: the same, with each commit synced.
The user's table is in the same file, so that effect and completion are one transaction.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from litequeue import LiteQueue

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
from bench.workers.crew import Post, Tally, timed_run

if TYPE_CHECKING:
    from pathlib import Path

SYNCED = {"best": "normal", "safe": "full"}
TEXT = BODY.decode()
BUSY_S = 60.0
LOOK_S = 0.001
EFFECT = "insert into effect (body) values (?)"

WEAKER = (
    "the effect commits with the completion, but only in the same SQLite file; what a dead process"
    " had taken stays locked until someone looks for it and frees it; no reply, and one machine"
)
NOT_SYNCED = "; a commit is not synced, and may be lost with the machine"
HOW = (
    "clients are threads with a connection each; servers are processes, which poll; the user's"
    " table is in the same file"
)


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know of a dequeue that several servers share."""

    file: Path
    synced: str
    tally: Tally
    asked: Dequeue


def opened(file: Path, synced: str) -> Any:
    """Return a connection to the queue."""
    queue = LiteQueue(file, queue_name="bench", timeout=BUSY_S)
    queue.conn.execute(f"pragma synchronous = {synced}")
    return queue


def serve(post: Post, share: Share) -> float:
    """Execute until all are done; return when ours were."""
    queue = opened(share.file, share.synced)
    asked, tally = share.asked, share.tally
    post.wait_for_go()
    ended = time.perf_counter()
    while tally.total() < asked.number and not post.is_stopped():
        taken = [one for _ in range(asked.batch) if (one := queue.pop()) is not None]
        if not taken:
            time.sleep(LOOK_S)
            continue
        with queue.transaction(mode="IMMEDIATE"):
            for one in taken:
                if asked.user_sql:
                    queue.conn.execute(EFFECT, (one.data.encode(),))
                queue.done(one.message_id)
        ended = time.perf_counter()
        tally.add(len(taken))
    queue.conn.close()
    return ended


class Litequeue(System):
    """A file in the directory that is given."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.file = place.directory / "queue.sqlite"
        self.synced = SYNCED[place.setting]
        self.queue = opened(self.file, self.synced)
        self.queue.conn.execute("create table if not exists effect (body blob)")

    def about(self) -> About:
        weaker = WEAKER + (NOT_SYNCED if self.place.setting == "best" else "")
        return About(
            system="litequeue",
            version=f"{version('litequeue')}, SQLite {sqlite3.sqlite_version}",
            weaker=weaker + ".",
            how=HOW,
        )

    def _number(self, query: str) -> int:
        found: int = self.queue.conn.execute(query).fetchone()[0]
        return found

    def enqueue(self, asked: Enqueue) -> Timed:
        def run(queue: Any, number: int) -> None:
            for _ in range(number):
                queue.put(TEXT)

        before = self.queue.qsize()
        numbers = shares(asked.number, asked.clients)
        queues = [opened(self.file, self.synced) for _ in numbers]
        pairs = zip(queues, numbers, strict=True)
        seconds = timed_threads([partial(run, *pair) for pair in pairs])
        for queue in queues:
            queue.conn.close()
        require_count("enqueued", self.queue.qsize() - before, asked.number)
        return Timed(seconds=seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        before = self.queue.qsize()
        started = time.perf_counter()
        for size in shares(asked.number, -(-asked.number // asked.batch)):
            with self.queue.transaction():
                for _ in range(size):
                    self.queue.put(TEXT)
        seconds = time.perf_counter() - started
        require_count("enqueued", self.queue.qsize() - before, asked.number)
        return Timed(seconds=seconds)

    def dequeue(self, asked: Dequeue) -> Timed:
        self.queue.conn.execute("delete from effect")
        self.queue.conn.execute("delete from bench")
        self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
        tally = Tally()
        share = Share(self.file, self.synced, tally, asked)
        seconds = timed_run(serve, [(share,)] * asked.servers)
        require_count("executed", tally.total(), asked.number)
        require_count("left", self.queue.qsize(), 0)
        effects = self._number("select count(*) from effect")
        require_count("rows in the user's table", effects, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def close(self) -> None:
        self.queue.conn.close()


if __name__ == "__main__":
    serve_commands(Litequeue)
