"""onceq itself, by its public API only: clerks on threads, servers in processes.

Its only setting is the safe one. `enqueue` is `Clerk.send`, with registration, epoch and same-rid
check; `enqueue_batch` is `QueueManager.enqueue_many`; a dequeue is the native server, with the
user's INSERT in the handler; the history row is written, and a reply where one is owed.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.workers.askers import run_clients
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
    EnqueueBatch,
    Place,
    RequestReply,
    RoundTrips,
    SkippedError,
    System,
    Timed,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.crowd import Shared, consumed, serving

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from onceq import Clerk, Context

WINDOW = 100_000
RAISES = b"raises".ljust(len(BODY))
FILL = 10_000
WARM_UP = 20
"""Round trips of each client before it is timed."""
TOGETHER = 20
"""The most requests that a server of many clients takes into one transaction."""


def init(conninfo: str) -> None:
    """Make the schema, as `onceq init` does."""
    command = [sys.executable, "-m", "onceq.cli.main", "--url", conninfo, "init"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)


@dataclass(frozen=True, slots=True)
class Served:
    """What a server process serves."""

    conninfo: str
    queue: onceq.Queue[bytes, bytes]


def serve(index: int, shared: Shared, served: Served, asked: Dequeue) -> None:
    """Be one server process; its first execution waits until every server has one."""
    queued = served.queue
    begun = False

    def handle(body: bytes, context: Context) -> bytes:
        nonlocal begun
        if not begun:
            begun = True
            shared.begin(index)
        if asked.user_sql:
            context.connection.execute("insert into effect values (%s)", (body,))
        if body == RAISES:
            raise ValueError("as asked")
        shared.done[index] += 1
        return b"ok"

    server = onceq.Server([queued.handled_by(handle, batch=asked.batch)])
    shared.on_stop(server.stop)
    server.run(served.conninfo)


def serve_replies(index: int, shared: Shared, served: Served, limit: int) -> None:
    """Be one server process whose clients wait for replies."""
    queued = served.queue

    def handle(body: bytes, context: Context) -> bytes:
        context.connection.execute("insert into effect values (%s)", (body,))
        shared.done[index] += 1
        return b"ok"

    server = onceq.Server([queued.handled_by(handle, batch=limit)])
    shared.on_stop(server.stop)
    server.run(served.conninfo)


class Asking:
    """A client with its own clerk and one request outstanding: each acknowledges the last."""

    window = 1

    def __init__(self, clerk: Clerk[bytes, bytes]) -> None:
        self.clerk = clerk
        self.each_s: list[float] = []
        self.rids = map(str, itertools.count())

    def work(self, times: int) -> None:
        """Make round trips; how long each took is kept."""
        for rid in itertools.islice(self.rids, times):
            started = time.perf_counter()
            self.clerk.transceive(rid, BODY, timeout_s=60)
            self.each_s.append(time.perf_counter() - started)


class Sending(Asking):
    """A client that sends, each request stable before the next; nobody waits for the replies."""

    window = WINDOW

    def work(self, times: int) -> None:
        """Send."""
        for rid in itertools.islice(self.rids, times):
            self.clerk.send(rid, BODY)


@contextlib.contextmanager
def opened(
    numbers: Sequence[int], kind: type[Asking], served: Served
) -> Generator[Sequence[Asking]]:
    """Connect the clerks of these numbers."""
    with contextlib.ExitStack() as stack:
        qm = stack.enter_context(onceq.open(served.conninfo))
        yield [
            kind(
                stack.enter_context(qm.clerk(f"client-{number}", served.queue, window=kind.window))
            )
            for number in numbers
        ]


class Onceq(System):
    """A repository in a database of its own. durable: whether its queues are."""

    durable = True

    def __init__(self, place: Place) -> None:
        if place.setting != "safe":
            raise SkippedError("the safe setting is the only one")
        self.conninfo = place.require_conninfo()
        init(self.conninfo)
        self.numbers = itertools.count()
        self.qm = onceq.open(self.conninfo)
        self.direct: psycopg.Connection[Any] = psycopg.connect(self.conninfo, autocommit=True)
        self.direct.execute("create table effect (body bytea not null)")
        self.sent, self.filled, self.executed, self.asked = map(
            self._queue, ("sent", "filled", "executed", "asked")
        )

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="onceq" if self.durable else "onceq_volatile",
            version=onceq.__version__,
            weaker="" if self.durable else "a crash of the database empties the queue",
            how="clients are threads with a clerk each, servers are processes",
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        """Send, one by one."""
        served, numbers = Served(self.conninfo, self.sent), self._numbers(asked.clients)
        found = run_clients(opened, numbers, asked.number, 0, Sending, served)
        return Timed(seconds=found.seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        """Enqueue many, in transactions of `batch`."""
        started = time.perf_counter()
        for size in shares(asked.number, -(-asked.number // asked.batch)):
            self.qm.enqueue_many(self.filled, [BODY] * size)
        return Timed(seconds=time.perf_counter() - started)

    def dequeue(self, asked: Dequeue) -> Timed:
        """Execute with the native server, from the moment when every process has its first."""
        bodies = [BODY] * asked.number
        if asked.raising:
            bodies[:: asked.raising] = [RAISES] * len(bodies[:: asked.raising])
        for first in range(0, asked.number, FILL):
            self.qm.enqueue_many(self.executed, bodies[first : first + FILL])
        shared = Shared(asked.servers)
        done = bodies.count(BODY)
        with serving(serve, shared, Served(self.conninfo, self.executed), asked) as servers:
            seconds = consumed(shared, servers, done, self._is_executed)
        self._check_effects(done if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        """Make round trips by `Clerk.transceive`."""
        limit = TOGETHER if asked.clients > asked.servers else 1
        served, numbers = Served(self.conninfo, self.asked), self._numbers(asked.clients)
        with serving(serve_replies, Shared(asked.servers), served, limit):
            found = run_clients(opened, numbers, asked.number, WARM_UP, Asking, served)
        self._check_effects(asked.number + WARM_UP * asked.clients)
        return found

    def close(self) -> None:
        """Close both connections."""
        self.direct.close()
        self.qm.close()

    def _is_executed(self) -> bool:
        return self.qm.show(self.executed.name).depth == 0

    def _queue(self, name: str) -> onceq.Queue[bytes, bytes]:
        queue = onceq.Queue(name, bytes, bytes, durable=self.durable, abort_limit=1)
        self.qm.declare(queue)
        return queue

    def _numbers(self, clients: int) -> list[int]:
        return list(itertools.islice(self.numbers, clients))

    def _check_effects(self, expected: int) -> None:
        row = self.direct.execute("select count(*) from effect").fetchone()
        require_count("rows in effect", 0 if row is None else row[0], expected)
        self.direct.execute("truncate effect")


if __name__ == "__main__":
    serve_commands(Onceq)
