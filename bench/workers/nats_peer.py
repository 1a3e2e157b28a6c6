"""NATS JetStream with nats-py: a work queue stream on files, explicit acknowledgements.

Safe: a server fetches one request (or the batch), and waits until its acknowledgement was
processed; replies go through a stream too; each write is synced, where the version can do that.
Best: a server fetches ahead and acknowledges without waiting; a reply is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import asyncpg
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig

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
    SkippedError,
    System,
    Timed,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_together
from bench.workers.crew import Crew, Post, Tally, timed_run
from bench.workers.nats_calls import (
    Line,
    connected,
    fresh_stream,
    measure_calls,
    prepare_calls,
    serve_calls,
)
from bench.workers.nats_server import NatsServer, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM = "REQUESTS"
SUBJECT = "requests"
AHEAD = {"best": 200, "safe": 1}  # how many a server fetches, at least
PENDING_MAX = 20_000
LOOK_S = 0.05

WEAKER = (
    "at least once: the effect commits in PostgreSQL before the acknowledgement goes to NATS, so"
    " that a crash between the two repeats the effect after the wait for acknowledgements (30 s)"
)
NOT_SYNCED = (
    "; files are synced every two minutes, not for each write: what was confirmed may be lost with"
    " the machine"
)
NOT_STORED = "; a reply is not stored"
HOW = {
    "best": "clients are asyncio tasks with a connection each; servers are processes that fetch"
    " max(200, batch) ahead and do not wait for their acknowledgements; replies to an inbox",
    "safe": "clients are asyncio tasks with a connection each; servers are processes that fetch"
    " `batch` and wait for each acknowledgement; replies through a stream, acknowledged",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know of a dequeue that several servers share."""

    url: str
    tally: Tally
    asked: Dequeue


async def stored(client: Any) -> int:
    """Return how many requests are in the stream."""
    found: int = (await client.jetstream().stream_info(STREAM)).state.messages
    return found


async def publish_batches(client: Any, sizes: Sequence[int]) -> float:
    """Publish batches of these sizes, each confirmed before the next; return the seconds."""
    jetstream = client.jetstream()
    started = time.perf_counter()
    for size in sizes:
        await asyncio.gather(*[await jetstream.publish_async(SUBJECT, BODY) for _ in range(size)])
    return time.perf_counter() - started


def serve(post: Post, place: Place, share: Share) -> float:
    """Execute requests until all have been, by whichever server; return when ours was."""
    ended: float = uvloop.run(_serve(post, place, share))
    return ended


async def _serve(post: Post, place: Place, share: Share) -> float:
    asked, tally = share.asked, share.tally
    ahead = max(AHEAD[place.setting], asked.batch)
    async with contextlib.AsyncExitStack() as ends:
        client = await ends.enter_async_context(connected(share.url))
        source = await client.jetstream().pull_subscribe_bind(durable=STREAM, stream=STREAM)
        database: Any = None
        if asked.user_sql:
            where = postgres.asyncpg_arguments(place.require_conninfo())
            database = await asyncpg.connect(**where)
            ends.push_async_callback(database.close)
        await asyncio.to_thread(post.wait_for_go)
        ended = time.perf_counter()
        done = 0
        while done < asked.number and tally.total() < asked.number and not post.is_stopped():
            try:
                found = await source.fetch(ahead, timeout=LOOK_S)
            except TimeoutError:
                continue
            for first in range(0, len(found), asked.batch):
                batch = found[first : first + asked.batch]
                await _execute(database, [(one.data,) for one in batch])
                await _acknowledge(place, batch)
                done = tally.add(len(batch))
            if done == asked.number:
                await client.flush()
            ended = time.perf_counter()
        return ended


async def _execute(database: Any, bodies: list[tuple[bytes]]) -> None:
    if database is None:
        return
    if len(bodies) == 1:
        await database.execute(postgres.EFFECT_NUMBERED, *bodies[0])
    else:
        await database.executemany(postgres.EFFECT_NUMBERED, bodies)  # one transaction


async def _acknowledge(place: Place, batch: list[Any]) -> None:
    if place.setting == "best":
        for one in batch:
            await one.ack()
    else:
        await asyncio.gather(*[one.ack_sync(timeout=30) for one in batch])


class Nats(System):
    """A server of its own."""

    def __init__(self, place: Place) -> None:
        if reason := missing():
            raise SkippedError(reason)
        self.place = place
        self.server = NatsServer(place.directory, sync=place.setting == "safe")
        uvloop.run(self._fresh())

    async def _fresh(self) -> None:
        async with connected(self.server.url) as client:
            await fresh_stream(client, STREAM, SUBJECT)
            await client.jetstream().add_consumer(
                STREAM,
                ConsumerConfig(
                    durable_name=STREAM,
                    ack_policy=AckPolicy.EXPLICIT,
                    max_ack_pending=PENDING_MAX,
                ),
            )

    def about(self) -> About:
        weaker = WEAKER
        weaker += "" if self.server.syncs else NOT_SYNCED
        weaker += NOT_STORED if self.place.setting == "best" else ""
        return About(
            system="nats",
            version=f"{self.server.version}, nats-py {version('nats-py')}",
            weaker=weaker + ".",
            how=HOW[self.place.setting],
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        return Timed(seconds=uvloop.run(self._enqueue(asked)))

    async def _enqueue(self, asked: Enqueue) -> float:
        async def client(connection: Any, number: int) -> None:
            jetstream = connection.jetstream()
            for _ in range(number):
                await jetstream.publish(SUBJECT, BODY)

        async with contextlib.AsyncExitStack() as ends:
            numbers = shares(asked.number, asked.clients)
            connections = [
                await ends.enter_async_context(connected(self.server.url)) for _ in numbers
            ]
            before = await stored(connections[0])
            pairs = zip(connections, numbers, strict=True)
            seconds = await timed_together([client(*pair) for pair in pairs])
            require_count("stored", await stored(connections[0]) - before, asked.number)
            return seconds

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        return Timed(seconds=uvloop.run(self._enqueue_batch(asked)))

    async def _enqueue_batch(self, asked: EnqueueBatch) -> float:
        async with connected(self.server.url) as client:
            before = await stored(client)
            sizes = shares(asked.number, -(-asked.number // asked.batch))
            seconds = await publish_batches(client, sizes)
            require_count("stored", await stored(client) - before, asked.number)
            return seconds

    async def _left(self) -> int:
        async with connected(self.server.url) as client:
            return await stored(client)

    def dequeue(self, asked: Dequeue) -> Timed:
        if asked.user_sql:
            postgres.empty_effects(self.place.require_conninfo())
        uvloop.run(self._fresh())
        self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
        tally = Tally()
        roles = [(self.place, Share(self.server.url, tally, asked))] * asked.servers
        seconds = timed_run(serve, roles)
        require_count("executed", tally.total(), asked.number)
        require_count("left", uvloop.run(self._left()), 0)
        if asked.user_sql:
            postgres.require_effects(self.place.require_conninfo(), asked.number)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        line = Line(self.server.url, self.place.setting == "safe")
        uvloop.run(prepare_calls(line))
        with Crew(serve_calls, [(line,)] * asked.servers) as crew:
            crew.go()
            found: RoundTrips = uvloop.run(measure_calls(line, asked))
            crew.stop()
            require_count("answered", sum(crew.results()), asked.number)
        return found

    def close(self) -> None:
        self.server.stop()


if __name__ == "__main__":
    serve_commands(Nats)
