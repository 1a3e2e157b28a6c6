"""Absurd: durable execution on PostgreSQL, by SQL functions and a small SDK.

Safe: a server claims one at a time. Best: at least ten. The schema is the one that absurdctl
carries for the same version.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import absurdctl
import psycopg
from absurd_sdk import Absurd

from bench.workers import postgres
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
    EnqueueBatch,
    Place,
    RequestReply,
    RoundTrips,
    System,
    Timed,
    WrongError,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_calls, timed_threads
from bench.workers.crew import Crew, Post, Tally, timed_run

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = "bench"
CALL = "handle"
CLAIMED_MIN = {"best": 10, "safe": 1}
PARAMETERS = {"body": BODY.decode()}
LOOK_S = 0.001
REPLY_S = 30.0
WAITING = "select count(*) from absurd.t_bench where state = 'pending'"
DONE = "select count(*) from absurd.t_bench where state = 'completed'"

WEAKER = (
    "at least once: claim, effect and completion are three transactions, and a claim is a lease of"
    " 120 s, after which another server repeats the effect; a result is found by polling, from"
    " 50 ms on."
)
HOW = {
    "best": "clients are threads with a connection each; servers are processes that claim"
    " max(10, batch) at a time and execute them one after another",
    "safe": "clients are threads with a connection each; servers are processes that claim `batch`"
    " at a time and execute them one after another",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know. number: how many there are; 0 to serve until stopped."""

    tally: Tally
    number: int
    claimed: int
    user_sql: bool


def serve(post: Post, place: Place, share: Share) -> float:
    """Execute until all are done, or until stopped; return when ours was completed."""
    conninfo = place.require_conninfo()
    with (
        psycopg.connect(conninfo, autocommit=True) as connection,
        psycopg.connect(conninfo, autocommit=True) as own,
    ):
        server = Absurd(connection, queue_name=QUEUE)
        count = 0

        def handle(parameters: dict[str, str], _context: Any) -> dict[str, str]:
            nonlocal count
            if share.user_sql:
                own.execute(postgres.EFFECT, (parameters["body"].encode(),))
            count += 1
            return parameters

        server.register_task(CALL)(handle)
        post.wait_for_go()
        ended = time.perf_counter()
        while not post.is_stopped() and (not share.number or share.tally.total() < share.number):
            server.work_batch(batch_size=share.claimed)
            if count:
                ended = time.perf_counter()
                share.tally.add(count)
                count = 0
            else:
                time.sleep(LOOK_S)
    return ended


class AbsurdSystem(System):
    """Its schema is installed in the database that is given."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.conninfo = place.require_conninfo()
        self.connection = psycopg.connect(self.conninfo, autocommit=True)
        if not postgres.exists(self.connection, "absurd.queues"):
            self.connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        self.client = Absurd(self.connection, queue_name=QUEUE)
        self.client.create_queue(QUEUE)

    def about(self) -> About:
        return About(
            system="absurd",
            version=version("absurd-sdk"),
            weaker=WEAKER,
            how=HOW[self.place.setting],
        )

    def _fresh(self) -> None:
        self.client.drop_queue(QUEUE)
        self.client.create_queue(QUEUE)

    def _clients(self, number: int) -> list[Any]:
        return [Absurd(self.conninfo, queue_name=QUEUE) for _ in range(number)]

    def enqueue(self, asked: Enqueue) -> Timed:
        before = postgres.number(self.connection, WAITING)

        def run(client: Any, number: int) -> None:
            for _ in range(number):
                client.spawn(CALL, PARAMETERS, queue=QUEUE)

        clients = self._clients(asked.clients)
        pairs = zip(clients, shares(asked.number, asked.clients), strict=True)
        seconds = timed_threads([partial(run, *pair) for pair in pairs])
        for client in clients:
            client.close()
        found = postgres.number(self.connection, WAITING) - before
        require_count("enqueued", found, asked.number)
        return Timed(seconds=seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        before = postgres.number(self.connection, WAITING)
        started = time.perf_counter()
        for size in shares(asked.number, -(-asked.number // asked.batch)):
            with self.connection.transaction():
                for _ in range(size):
                    self.client.spawn(CALL, PARAMETERS, queue=QUEUE)
        seconds = time.perf_counter() - started
        found = postgres.number(self.connection, WAITING) - before
        require_count("enqueued", found, asked.number)
        return Timed(seconds=seconds)

    def _claimed(self, batch: int) -> int:
        return max(CLAIMED_MIN[self.place.setting], batch)

    def dequeue(self, asked: Dequeue) -> Timed:
        postgres.empty_effects(self.conninfo)
        self._fresh()
        self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
        postgres.settle(self.connection)
        tally = Tally()
        share = Share(tally, asked.number, self._claimed(asked.batch), asked.user_sql)
        seconds = timed_run(serve, [(self.place, share)] * asked.servers)
        require_count("executed", tally.total(), asked.number)
        require_count("completed", postgres.number(self.connection, DONE), asked.number)
        postgres.require_effects(self.conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        self._fresh()
        clients = self._clients(asked.clients)
        each_s: list[float] = []

        def call(client: Any) -> None:
            spawned = client.spawn(CALL, PARAMETERS, queue=QUEUE)
            if client.await_task_result(spawned["task_id"], REPLY_S).result != PARAMETERS:
                raise WrongError("a result is not the request's")

        tally = Tally()
        share = Share(tally, 0, self._claimed(1), user_sql=False)
        with Crew(serve, [(self.place, share)] * asked.servers) as crew:
            crew.go()
            runs: list[Callable[[], None]] = []
            for client, number in zip(clients, shares(asked.number, asked.clients), strict=True):
                runs.append(partial(timed_calls, partial(call, client), number, each_s))
            seconds = timed_threads(runs)
            crew.stop()
            crew.results()
        for client in clients:
            client.close()
        require_count("executed", tally.total(), asked.number)
        return RoundTrips(seconds=seconds, each_s=each_s)

    def close(self) -> None:
        self.connection.close()


if __name__ == "__main__":
    serve_commands(AbsurdSystem)
