"""How soon an old request is found among many, and what the indexes for that cost a finish.

History is filled by COPY, 5,000,000 rows at full scale, of a month, of a thousand clients and of
five queues; one in a thousand failed. Each way to look is timed over random requests, and
PostgreSQL's own counts say whether a table was read from end to end meanwhile: that is an error.
The cost is a pair: the same requests, executed a hundred in a transaction, with the two indexes of
migration 2 and without them. fsync is off: the work is measured.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import statistics
import threading
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.pairs import Runner, pair
from bench.results import Result, Slice
from bench.workers.base import BODY
from bench.workers.onceq_worker import init
from onceq.engine.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from bench.scene import Scene
    from onceq import Context
    from onceq.model.element import Search

    Look = Callable[[], object]

ROWS = 5_000_000
CLIENTS = 1000
FAILED_OF = 1000
DAYS = 30
QUEUES = tuple(f"work-{number}" for number in range(5))
LOOKS = 200
PAGE = 100
TARGET_MS = 5.0
BATCH = 100
SERVED_S = 120.0
FAILED = onceq.RequestOutcome.FAILED
WORK = onceq.Queue("work-0", bytes, bytes)
INDEXES = ("history_of_registrant", "history_of_queue")
COPY = """
copy onceq.history (finished_at, enqueued_at, started_at, send_no, server, queue_id, registrant_id,
    aborts, role, outcome, eid, rid, code, sha256) from stdin
"""
SCANS = "select coalesce(sum(seq_scan), 0) from pg_stat_user_tables where relname like 'history%'"
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Past:
    """What history was filled with."""

    rows: int

    def at(self, number: int) -> dt.datetime:
        """Return when a request ended."""
        return FIRST + dt.timedelta(days=DAYS) * (number / self.rows)

    def fill(self, connection: psycopg.Connection[Any]) -> None:
        """Write it."""
        connection.execute(
            "insert into onceq.registrant (name)"
            " select 'client-' || n from generate_series(0, %s) n",
            [CLIENTS - 1],
        )
        clients = _ids(connection, "select name, registrant_id from onceq.registrant")
        queues = _ids(connection, "select name, queue_id from onceq.queue")
        with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for row in self._rows(clients, queues):
                copy.write_row(row)
        connection.commit()
        connection.autocommit = True
        connection.execute("vacuum analyze onceq.history")

    def _rows(self, clients: dict[str, int], queues: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        digest = bytes(32)
        for number in range(self.rows):
            end = self.at(number)
            failed = number % FAILED_OF == 0
            yield (
                end,
                end - dt.timedelta(seconds=2),
                end - dt.timedelta(seconds=1),
                number,
                1,
                queues[QUEUES[number % len(QUEUES)]],
                clients[f"client-{number * 7919 % CLIENTS}"],
                int(failed),
                "request",
                "failed" if failed else "done",
                uuid.UUID(int=number),
                f"r{number}",
                "Bad" if failed else None,
                digest,
            )


def _ids(connection: psycopg.Connection[Any], query: str) -> dict[str, int]:
    return dict(connection.execute(query.encode()).fetchall())


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, for random requests."""

    qm: onceq.QueueManager
    past: Past
    chance: random.Random

    def client(self) -> str:
        return f"client-{self.chance.randrange(CLIENTS)}"

    def number(self) -> int:
        return self.chance.randrange(self.past.rows)

    def hour(self) -> Search:
        since = self.past.at(self.number())
        return {"since": since, "until": since + dt.timedelta(hours=1), "limit": PAGE}

    def end(self) -> onceq.OldRequest:
        """Return something that may be the last of a page."""
        (found,) = self.qm.find(rid=f"r{self.number()}")
        return found

    def look(self, **where: Any) -> Look:
        return partial(self.qm.lookup, **where)

    def find(self, search: Search) -> Look:
        return partial(self.qm.find, **search)


WAYS: dict[str, Callable[[Asker], Look]] = {
    "rid": lambda one: one.look(rid=f"r{one.number()}"),
    "eid": lambda one: one.look(eid=uuid.UUID(int=one.number())),
    "aborts": lambda one: partial(one.qm.attempts, uuid.UUID(int=one.number())),
    "find by rid": lambda one: one.find({"rid": f"r{one.number()}"}),
    "client": lambda one: one.find({"registrant": one.client(), "limit": PAGE}),
    "client and time": lambda one: one.find({"registrant": one.client(), **one.hour()}),
    "client, failed": lambda one: one.find({"registrant": one.client(), "outcome": FAILED}),
    "queue, failed, time": lambda one: one.find(
        {"queue": one.chance.choice(QUEUES), "outcome": FAILED, **one.hour()}
    ),
    "time": lambda one: one.find(one.hour()),
    "a later page": lambda one: one.find(
        {"registrant": one.client(), "after": one.end(), "limit": PAGE}
    ),
}
"""Each way to look, by name: what draws whom to look for, and returns the call that is timed."""
NAMES = (*(f"old-requests/{way}" for way in WAYS), "old-requests/finish")


def run(scene: Scene) -> None:
    """Ask both questions, at this scale."""
    rows = max(10_000, int(ROWS * scene.scale))
    with _repository(scene.directory / "filled") as (qm, conninfo):
        past = Past(rows)
        with psycopg.connect(conninfo) as connection:
            past.fill(connection)
        asker = Asker(qm, past, random.Random(1))  # noqa: S311 - seeded choices, no secrets
        for way in WAYS:
            scene.told.started(f"old-requests/{way}")
            scene.told.found(_looked(way, asker))
    scene.told.started("old-requests/finish")
    scene.told.found(_cost(scene))


def _looked(way: str, asker: Asker) -> Result:
    draw, rows, conninfo = WAYS[way], asker.past.rows, asker.qm.located.conninfo
    draw(asker)()
    before = _scans(conninfo)
    took: list[float] = []
    for _ in range(LOOKS):
        look = draw(asker)
        began = time.perf_counter()
        look()
        took.append((time.perf_counter() - began) * 1000)
    scans = _scans(conninfo) - before
    took.sort()
    return Result(
        name=f"old-requests/{way}",
        question="an old request is found: the median",
        unit="ms",
        rounds=() if scans else (statistics.median(took),),
        target=TARGET_MS,
        better="less",
        note=f"{rows:,} rows of history; p99 {took[len(took) * 99 // 100]:.1f} ms; fsync off",
        error=f"{scans} times a table was read from end to end" if scans else "",
    )


def _scans(conninfo: str) -> int:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        time.sleep(1.2)  # sessions report their counts at most once a second
        row = connection.execute(SCANS).fetchone()
    return 0 if row is None else int(row[0])


def _cost(scene: Scene) -> Result:
    """Execute the same with the indexes and without."""
    with (
        _repository(scene.directory / "with") as (ours, ours_at),
        _repository(scene.directory / "without") as (other, other_at),
    ):
        with psycopg.connect(other_at) as connection:
            for name in INDEXES:
                connection.execute(f"drop index onceq.{name}".encode())
        runners = (
            Runner(name="with", run=lambda n: _served(ours, ours_at, n), first=2000, step=BATCH),
            Runner(
                name="without", run=lambda n: _served(other, other_at, n), first=2000, step=BATCH
            ),
        )
        question = f"finishes, {BATCH} in a transaction, with the indexes by those without"
        return pair("old-requests/finish", question, runners, scene.pace)


def _served(qm: onceq.QueueManager, conninfo: str, number: int) -> Slice:
    """Execute this many requests, timed from the first."""
    qm.enqueue_many(WORK, [BODY] * number)
    began, left = 0.0, number

    def handle(_: bytes, __: Context) -> bytes:
        nonlocal began, left
        began = began or time.perf_counter()
        left -= 1
        if not left:
            server.stop()
        return b""

    server = onceq.Server([WORK.handled_by(handle, batch=BATCH)])
    watch = threading.Timer(SERVED_S, server.stop)
    watch.start()
    try:
        server.run(conninfo)
    finally:
        watch.cancel()
    return Slice(number=number, seconds=time.perf_counter() - began)


@contextlib.contextmanager
def _repository(directory: Path) -> Generator[tuple[onceq.QueueManager, str]]:
    with open_embedded(directory, settings={"fsync": "off"}) as server:
        init(server.conninfo)
        with onceq.open(server.conninfo) as qm:
            for name in QUEUES:
                qm.declare(onceq.Queue(name, bytes, bytes))
            yield qm, server.conninfo
