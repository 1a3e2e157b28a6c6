"""Whether the cost of a request stays the same: deep queues, many clients, old snapshots, age.

Each question has two repositories, in a cluster each, one of them burdened; the same work is timed
in both in turn. The value is the time in the burdened one divided by the time in the other, so 1.0
is flat. The clusters run with fsync off: the work is measured, and a disk would hide it. What
waits in a deep queue is written by `insert ... select`, a million at a time, as `enqueue_many`
writes it, and registrants by calls of `register` in SQL, a thousand in a transaction. Everything
else goes through the public API, and dequeues that are a burden through the server. --scale scales
sizes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

import onceq
from bench.ages import aging
from bench.pairs import Runner, alternate, ratios
from bench.results import Result, Slice
from bench.streaming import streaming
from bench.workers.base import BODY
from bench.workers.onceq_worker import init
from onceq.engine.embedded import open_embedded
from onceq.errors import OnceqError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from bench.scene import Scene
    from onceq import Clerk, Context

FILL = 10_000
MILLION = 1_000_000
SHALLOW = 1000
FIRST = 200
MOST = 2000
QUICKLY = 10
"""The batch for dequeues that are only a burden: there is a sweep every 64 of them."""
DEEP = """
insert into onceq.element (queue_id, lane, role, rid, eid, enqueued_at, sha256, body)
    select queue_id, 5 /* usual */, 'datagram', id::text, id, onceq.now(), sha256(body), body
    from (select queue_id, onceq.new_eid() as id, %s::bytea as body
          from onceq.queue, generate_series(1, %s::integer) where name = 'work') made
"""
FAR = """
insert into onceq.element
        (queue_id, lane, turn, role, rid, eid, enqueued_at, not_before, sha256, body)
    select queue_id, 10 /* due */, onceq.turn_at(due), 'datagram', id::text, id, onceq.now(), due,
        sha256(body), body
    from (select queue_id, onceq.new_eid() as id, %s::bytea as body,
              onceq.now() + '10 years' + n * interval '1 second' as due
          from onceq.queue, generate_series(1, %s::integer) n where name = 'work') made
"""
REGISTER = """
select count(*) from generate_series(%s::integer, %s::integer) n,
    onceq.register('work', 'registrant-' || n, '', true, null)
"""
FLAT = 1.3
"""The most time that most may take, relative to the time without the burden."""
REQUESTS = 1_000_000
STREAMED = 100_000
MEMORY_MB = 60.0
SERVED_S = 60.0
PER_S_LEAST = 500
"""Serving may take SERVED_S, and as long as the requests last at this rate."""


@dataclass(slots=True)
class Home:
    """A repository in a cluster of its own. queues: those that the work goes round."""

    qm: onceq.QueueManager
    conninfo: str
    clerk: Clerk[bytes, bytes]
    queues: list[onceq.Queue[bytes, bytes]]
    rids: Any = field(default_factory=itertools.count)


@dataclass(frozen=True, slots=True)
class Question:
    """What burdens one of the two, how much of it in full, and the work that is timed in both."""

    name: str
    question: str
    burden: Callable[[Home, int], AbstractContextManager[None]]
    size: int
    work: Callable[[Home, int], Slice]
    target: float = FLAT


def serve(home: Home, number: int) -> Slice:
    """Execute this many requests, one at a time; timed from the first execution to the last."""
    queue = home.queues[0]
    fill(home, queue, number)
    return Slice(number=number - 1, seconds=_served(home, queue, number, limit=1))


def send(home: Home, number: int) -> Slice:
    """Send this many requests, one at a time."""
    started = time.perf_counter()
    for rid in itertools.islice(home.rids, number):
        home.clerk.send(str(rid), BODY)
    return Slice(number=number, seconds=time.perf_counter() - started)


def go_round(home: Home, number: int) -> Slice:
    """Enqueue and dequeue, each time in the next queue."""
    started = time.perf_counter()
    for queue in itertools.islice(itertools.cycle(home.queues), number):
        home.qm.enqueue(queue, BODY)
        home.qm.dequeue(queue.name)
    return Slice(number=number, seconds=time.perf_counter() - started)


def collect(home: Home, number: int) -> Slice:
    """Receive this many replies, each once more by rid, and acknowledge it; serving is untimed."""
    _reply(home, number)
    started = time.perf_counter()
    for _ in range(number):
        rid = home.clerk.receive(timeout_s=SERVED_S).rid
        home.clerk.rereceive(rid)
        home.clerk.acknowledge([rid])
    return Slice(number=number, seconds=time.perf_counter() - started)


def _reply(home: Home, number: int) -> None:
    """Let this many more replies wait for the client."""
    for first in range(0, number, FILL):
        rids = itertools.islice(home.rids, min(FILL, number - first))
        home.clerk.send_many([(str(rid), BODY) for rid in rids])
    queue = home.queues[0]
    _served(home, queue, home.qm.show(queue.name).depth, limit=QUICKLY)


def fill(home: Home, queue: onceq.Queue[bytes, bytes], number: int) -> None:
    """Enqueue this many, in batches."""
    for first in range(0, number, FILL):
        home.qm.enqueue_many(queue, [BODY] * min(FILL, number - first))


def _served(home: Home, queue: onceq.Queue[bytes, bytes], number: int, *, limit: int) -> float:
    moments: list[float] = []

    def handle(_: bytes, __: Context) -> bytes:
        moments.append(time.perf_counter())
        if len(moments) == number:
            server.stop()
        return b"ok"

    server = onceq.Server([queue.handled_by(handle, batch=limit)])
    watch = threading.Timer(SERVED_S + number / PER_S_LEAST, server.stop)
    watch.start()
    try:
        server.run(home.conninfo)
    finally:
        watch.cancel()
    if len(moments) < number:
        raise TimeoutError(f"{len(moments)} of {number} were executed in {watch.interval:g} s")
    return moments[number - 1] - moments[0]


def _dequeued(home: Home, number: int) -> None:
    queue = home.queues[0]
    for first in range(0, number, FILL):
        some = min(FILL, number - first)
        fill(home, queue, some)
        _served(home, queue, some, limit=QUICKLY)


@contextlib.contextmanager
def deep(home: Home, size: int, *, statement: str = DEEP) -> Generator[None]:
    """Let this many wait in the queue."""
    with psycopg.connect(home.conninfo, autocommit=True) as connection:
        for first in range(0, size, MILLION):
            connection.execute(statement.encode(), (BODY, min(MILLION, size - first)))
        connection.execute("vacuum analyze onceq.element")  # as autovacuum would, in time
    yield


def far(home: Home, size: int) -> AbstractContextManager[None]:
    """Let this many wait in the queue that are due in ten years."""
    return deep(home, size, statement=FAR)


@contextlib.contextmanager
def registrants(home: Home, size: int) -> Generator[None]:
    """Register this many."""
    with psycopg.connect(home.conninfo, autocommit=True) as connection:
        for first in range(1, size + 1, SHALLOW):
            connection.execute(REGISTER.encode(), (first, min(first + SHALLOW - 1, size)))
        connection.execute("vacuum analyze onceq.registrant, onceq.registration")
    yield


@contextlib.contextmanager
def snapshot(home: Home, size: int) -> Generator[None]:
    """Make this many dequeues while a transaction holds a snapshot from before them."""
    with psycopg.connect(home.conninfo) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from pg_class")
        _dequeued(home, size)
        yield


@contextlib.contextmanager
def writer(home: Home, size: int) -> Generator[None]:
    """Make this many dequeues while a transaction in another database has written, and goes on."""
    other = make_conninfo(home.conninfo, dbname="postgres")
    with psycopg.connect(other) as connection:
        connection.execute("create table written (n integer)")
        connection.execute("insert into written values (1)")
        _dequeued(home, size)
        yield
        connection.rollback()


@contextlib.contextmanager
def queues(home: Home, size: int) -> Generator[None]:
    """Make this many queues, with some elements in each."""
    for number in range(1, size):
        home.queues.append(onceq.Queue(f"work-{number}", bytes, bytes))
        home.qm.declare(home.queues[-1])
        fill(home, home.queues[-1], SHALLOW // 10)
    yield


@contextlib.contextmanager
def replies(home: Home, size: int) -> Generator[None]:
    """Let this many replies wait for the client."""
    _reply(home, size)
    yield


QUESTIONS = (
    Question("flat/depth-serve", "execute with 3M waiting by 1k", deep, 3_000_000, serve),
    Question("flat/depth-send", "send with 3M waiting by 1k", deep, 3_000_000, send),
    Question(
        "flat/far-serve",
        "execute with 1M due in ten years by none",
        far,
        MILLION,
        serve,
        target=1.1,
    ),
    Question(
        "flat/far-send", "send with 1M due in ten years by none", far, MILLION, send, target=1.1
    ),
    Question("flat/registrants", "send with 100k registrants by 1", registrants, 100_000, send),
    Question(
        "flat/snapshot",
        "execute after 200k dequeues under an old snapshot by none",
        snapshot,
        200_000,
        serve,
        target=1.2,
    ),
    Question(
        "flat/writer",
        "execute after 200k dequeues beside a long writer in another database by none",
        writer,
        200_000,
        serve,
        target=1.2,
    ),
    Question(
        "flat/queues",
        "enqueue and dequeue in 500 queues in turn by one queue",
        queues,
        500,
        go_round,
    ),
    Question(
        "flat/replies",
        "receive, rereceive and acknowledge with 50k replies waiting by few",
        replies,
        50_000,
        collect,
    ),
)
AGED = (("server", "resident", "growth"), ("client", "client", "client-growth"))
"""Whose memory is observed, and the names of its two results."""
NAMES = (
    *(question.name for question in QUESTIONS),
    *(f"memory/{name}" for _, *names in AGED for name in names),
)


def run(scene: Scene) -> None:
    """Answer all of them; one that fails is a result too, and the others go on."""
    for question in QUESTIONS:
        scene.told.started(question.name)
        scene.told.found(_answered(question, scene))
    for who, resident, growth in AGED:
        scene.told.started(f"memory/{resident}")
        for result in _memory(scene, who, f"memory/{resident}", f"memory/{growth}"):
            scene.told.found(result)


def _answered(question: Question, scene: Scene) -> Result:
    try:
        return _measured(question, scene)
    except (psycopg.Error, OnceqError, TimeoutError) as error:
        text = f"{type(error).__name__}: {error}"
        return Result(
            name=question.name, question=question.question, target=question.target, error=text
        )


def _measured(question: Question, scene: Scene) -> Result:
    size = max(1, round(question.size * scene.scale))
    with (
        _home(scene, f"{question.name}-fresh") as fresh,
        _home(scene, f"{question.name}-burdened") as burdened,
    ):
        for home in (fresh, burdened):
            fill(home, home.queues[0], SHALLOW)
        with question.burden(burdened, size):
            runners = [
                Runner(name=name, run=partial(question.work, home), first=FIRST, most=MOST)
                for name, home in (("fresh", fresh), (f"burdened by {size:,}", burdened))
            ]
            sides = alternate(runners, scene.pace)
    return Result(
        name=question.name,
        question=question.question,
        rounds=ratios(*sides),
        target=question.target,
        better="less",
        sides=sides,
        note=f"burden: {size:,}; fsync off",
    )


def _memory(scene: Scene, who: str, resident: str, growth: str) -> tuple[Result, Result]:
    measured, requests = {"server": (aging, REQUESTS), "client": (streaming, STREAMED)}[who]
    number = max(10, round(requests * scene.scale))
    with _home(scene, f"memory-{who}") as home:
        found = tuple(measured(home.qm, home.conninfo, number))
    note = f"{number:,} requests; MB at each tenth: " + ", ".join(f"{mb:.1f}" for mb in found)
    return (
        Result(
            name=resident,
            question=f"resident memory of a {who} process",
            unit="MB",
            rounds=(max(found),),
            target=MEMORY_MB,
            better="less",
            note=note,
        ),
        Result(
            name=growth,
            question="its memory at the end by that after a tenth of the requests",
            rounds=(found[-1] / found[0],),
            target=1.1,
            better="less",
            note=note,
        ),
    )


@contextlib.contextmanager
def _home(scene: Scene, name: str) -> Generator[Home]:
    directory: Path = scene.directory / name.replace("/", "-")
    with open_embedded(directory, settings={"fsync": "off"}) as server:
        init(server.conninfo)
        queue = onceq.Queue("work", bytes, bytes)
        with onceq.open(server.conninfo) as qm:
            qm.declare(queue)
            with qm.clerk("client", queue, window=100_000) as clerk:
                yield Home(qm, server.conninfo, clerk, [queue])
