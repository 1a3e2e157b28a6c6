"""huey with its storage on PostgreSQL: a queue of calls that are removed when they are taken.

Best: results are not stored. Safe: they are, as is its default. It has no setting in which a call
outlives the process that took it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psycopg
from huey import PostgresHuey

from bench.workers import postgres
from bench.workers.base import (
    BODY,
    About,
    Dequeue,
    Enqueue,
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

REPLY_S = 30.0
READ_S = 0.05
WAITING = "select count(*) from huey_task"

WEAKER = (
    "at most once: a call is removed when it is taken, and lost if its process dies before the"
    " effect, which commits in a transaction of its own; a result is found by polling."
)
HOW = {
    "best": "clients are threads with a connection each; servers are processes, one call at a time"
    " in each; results are not stored, but for those who wait for them",
    "safe": "clients are threads with a connection each; servers are processes, one call at a time"
    " in each; results are stored",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know. number: how many there are; 0 to serve until stopped."""

    tally: Tally
    number: int
    results: bool
    user_sql: bool


def opened(place: Place, *, results: bool) -> Any:
    """Return a connection to the queue."""
    return PostgresHuey(
        "bench",
        results=results,
        utc=True,
        dsn=place.require_conninfo(),
        read_timeout=READ_S,
    )


def declared(huey: Any, handle: Callable[[bytes], bytes]) -> Any:
    """Return a function that enqueues a call of `handle`, known by its module and name."""
    handle.__module__ = "bench"  # the same in a client and in a server
    return huey.task(name="handle")(handle)


def unused(body: bytes) -> bytes:
    """Stand in the client for what the servers do."""
    return body


def serve(post: Post, place: Place, share: Share) -> float:
    """Execute until all are done, or until stopped; return when ours was."""
    huey = opened(place, results=share.results)
    with psycopg.connect(place.require_conninfo(), autocommit=True) as own:

        def handle(body: bytes) -> bytes:
            if share.user_sql:
                own.execute(postgres.EFFECT, (body,))
            return body

        declared(huey, handle)
        post.wait_for_go()
        ended = time.perf_counter()
        while not post.is_stopped() and (not share.number or share.tally.total() < share.number):
            call = huey.dequeue()
            if call is not None:
                huey.execute(call)
                ended = time.perf_counter()
                share.tally.add(1)
    huey.storage.close()
    return ended


class Huey(System):
    """Its tables are in the database that is given."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.conninfo = place.require_conninfo()
        self.connection = psycopg.connect(self.conninfo, autocommit=True)
        opened(place, results=True).storage.close()  # makes its tables

    def about(self) -> About:
        return About(
            system="huey",
            version=version("huey"),
            weaker=WEAKER,
            how=HOW[self.place.setting],
        )

    def _enqueue(self, number: int, clients: int) -> float:
        def run(call: Callable[[bytes], object], times: int) -> None:
            for _ in range(times):
                call(BODY)

        before = postgres.number(self.connection, WAITING)
        queues = [opened(self.place, results=False) for _ in range(clients)]
        calls = [declared(huey, unused) for huey in queues]
        for huey in queues:
            huey.pending_count()  # connects
        pairs = zip(calls, shares(number, clients), strict=True)
        seconds = timed_threads([partial(run, *pair) for pair in pairs])
        for huey in queues:
            huey.storage.close()
        require_count("enqueued", postgres.number(self.connection, WAITING) - before, number)
        return seconds

    def enqueue(self, asked: Enqueue) -> Timed:
        return Timed(seconds=self._enqueue(asked.number, asked.clients))

    def _empty(self) -> None:
        self.connection.execute("truncate huey_task, huey_kv")

    def dequeue(self, asked: Dequeue) -> Timed:
        postgres.empty_effects(self.conninfo)
        self._empty()
        self._enqueue(asked.number, 1)
        postgres.settle(self.connection)
        tally = Tally()
        share = Share(tally, asked.number, self.place.setting == "safe", asked.user_sql)
        seconds = timed_run(serve, [(self.place, share)] * asked.servers)
        require_count("executed", tally.total(), asked.number)
        require_count("left", postgres.number(self.connection, WAITING), 0)
        postgres.require_effects(self.conninfo, asked.number if asked.user_sql else 0)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        self._empty()
        each_s: list[float] = []
        queues = [opened(self.place, results=True) for _ in range(asked.clients)]

        def call(enqueue: Callable[[bytes], Any]) -> None:
            if enqueue(BODY).get(blocking=True, timeout=REPLY_S) != BODY:
                raise WrongError("a result is not the request's")

        tally = Tally()
        share = Share(tally, 0, results=True, user_sql=False)
        with Crew(serve, [(self.place, share)] * asked.servers) as crew:
            crew.go()
            runs: list[Callable[[], None]] = []
            for huey, number in zip(queues, shares(asked.number, asked.clients), strict=True):
                one = partial(call, declared(huey, unused))
                runs.append(partial(timed_calls, one, number, each_s))
            seconds = timed_threads(runs)
            crew.stop()
            crew.results()
        for huey in queues:
            huey.storage.close()
        require_count("executed", tally.total(), asked.number)
        return RoundTrips(seconds=seconds, each_s=each_s)

    def close(self) -> None:
        self.connection.close()


if __name__ == "__main__":
    serve_commands(Huey)
