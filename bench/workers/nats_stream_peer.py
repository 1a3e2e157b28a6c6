"""A stream of NATS JetStream with three replicas, by nats-py: what onceq's streams are paired with.

Safe: each server syncs every write before it acknowledges it, where the version can do that. Best:
they sync every two minutes. A message is published asynchronously, so many at a time as a source of
onceq has in flight, by a client of the server that leads the stream; receivers are ordinary push
consumers without acknowledgements.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import nats.errors
import uvloop
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

from bench.workers.base import (
    About,
    CatchUp,
    Pace,
    Place,
    Publish,
    RoundTrips,
    System,
    Timed,
    WrongError,
    require_count,
    serve_commands,
)
from bench.workers.hearers import LAST, TIMED, Ear, Hearers, body_of
from bench.workers.nats_calls import connected
from bench.workers.nats_cluster import COUNT, NatsCluster
from bench.workers.pacing import paced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

STREAM, SUBJECT = "MESSAGES", "messages"
ELECTED_S = 60.0
LOOK_S = 0.05
LIMIT_S = 300.0
NOT_YET = (
    APIError,
    NoStreamResponseError,
    ServiceUnavailableError,
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
)
"""What servers answer that have not elected a leader."""
WEAKER = (
    "where a receiver is, is not kept, and it acknowledges nothing; a publisher that dies does not"
    " know afterwards which of its messages were stored"
)
NOT_SYNCED = (
    "; files are synced every two minutes, not for each write: what was acknowledged may be lost"
    " with the machines"
)
HOW = (
    "three servers on loopback, a stream of three replicas on files; one client publishes on"
    " asyncio with uvloop, to the server that leads; receivers are processes with a push consumer"
)


def receive(line: Connection[Any, Any], url: str) -> None:
    """Be shown a stream for ever, in a process of its own."""
    uvloop.run(_receive(line, url))


async def _receive(line: Connection[Any, Any], url: str) -> None:
    ear = Ear(line)

    async def show(one: Any) -> None:
        ear.hear(one.data)

    async with connected(url) as client:
        await _subscribed(client, show, DeliverPolicy.NEW)
        ear.ready()
        await asyncio.Event().wait()


async def _subscribed(client: Any, show: Any, policy: DeliverPolicy) -> None:
    """Have a new consumer push to a client."""
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=show, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await client.flush()
    config = ConsumerConfig(
        deliver_subject=inbox, deliver_policy=policy, ack_policy=AckPolicy.NONE, num_replicas=1
    )
    await client.jetstream().add_consumer(STREAM, config)


class NatsStream(System):
    """A cluster of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.cluster = NatsCluster(place.directory, sync=place.setting == "safe")
        self._hearers: Hearers | None = None
        self._filled = 0
        try:
            self.url = uvloop.run(self._made())
        except BaseException:
            self.cluster.stop()
            raise

    async def _made(self) -> str:
        """Make the stream, as soon as the servers agree; return where its leader is."""
        config = StreamConfig(
            name=STREAM,
            subjects=[SUBJECT],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            num_replicas=COUNT,
        )
        async with connected(next(iter(self.cluster.urls.values()))) as client:
            until = time.monotonic() + ELECTED_S
            while True:
                try:
                    await client.jetstream().add_stream(config)
                    break
                except NOT_YET:
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(LOOK_S)
            return await self._leader(client)

    async def _leader(self, client: Any) -> str:
        found = (await client.jetstream().stream_info(STREAM)).cluster
        return self.cluster.urls[found.leader]

    def about(self) -> About:
        is_safe = self.place.setting == "safe"
        return About(
            system="nats_stream",
            version=f"{self.cluster.version}, nats-py {version('nats-py')}",
            weaker=f"{WEAKER}{'' if is_safe else NOT_SYNCED}.",
            how=HOW,
        )

    def _hearing(self, count: int) -> Hearers:
        """Return so many receivers of what comes now."""
        if self._hearers is None or len(self._hearers) != count:
            self._leave()
            urls = itertools.islice(itertools.cycle(self.cluster.urls.values()), count)
            self._hearers = Hearers(receive, [(url,) for url in urls])
        return self._hearers

    def _leave(self) -> None:
        if self._hearers is not None:
            self._hearers.close()
        self._hearers = None

    def publish(self, asked: Publish) -> Timed:
        if asked.stopped or asked.filled:
            raise WrongError("a stopped receiver is not offered")
        uvloop.run(self._purged())
        hearers = self._hearing(asked.receivers)
        began, stored = uvloop.run(self._publish(asked))
        heard = hearers.heard(asked.number)
        return Timed(seconds=max(stored, *(one.at_s for one in heard)) - began)

    async def _purged(self) -> None:
        self._filled = 0
        async with connected(self.url) as client:
            await client.jetstream().purge_stream(STREAM)

    async def _publish(self, asked: Publish | CatchUp) -> tuple[float, float]:
        """Publish messages; return when that began, and when all of them were acknowledged."""
        plain, last = body_of(asked.body_bytes), body_of(asked.body_bytes, LAST)
        flight = asked.flight if isinstance(asked, Publish) else 1_000
        async with connected(self.url) as client:
            before = await self._stored(client)
            jetstream = client.jetstream(publish_async_max_pending=flight)
            answers: list[asyncio.Future[Any]] = []
            began = time.perf_counter()
            for one in range(asked.number):
                body = last if one == asked.number - 1 else plain
                answers.append(await jetstream.publish_async(SUBJECT, body))
            await asyncio.gather(*answers)
            ended = time.perf_counter()
            require_count("stored", await self._stored(client) - before, asked.number)
        return began, ended

    async def _stored(self, client: Any) -> int:
        found: int = (await client.jetstream().stream_info(STREAM)).state.messages
        return found

    def pace(self, asked: Pace) -> RoundTrips:
        uvloop.run(self._purged())
        is_received = asked.until == "received"
        self._hearing(int(is_received))
        began, each_s = uvloop.run(self._pace(asked))
        if is_received and self._hearers is not None:
            each_s = self._hearers.heard(asked.number)[0].each_s
        require_count("timed", len(each_s), asked.number)
        return RoundTrips(seconds=time.perf_counter() - began, each_s=each_s)

    async def _pace(self, asked: Pace) -> tuple[float, Sequence[float]]:
        answers: list[asyncio.Future[Any]] = []
        each_s: list[float] = []
        async with connected(self.url) as client:
            jetstream = client.jetstream(publish_async_max_pending=10_000)

            async def send(*, is_last: bool) -> None:
                now = time.perf_counter()
                body = body_of(asked.body_bytes, TIMED | (LAST if is_last else 0), now)
                answer = await jetstream.publish_async(SUBJECT, body)
                answer.add_done_callback(lambda _: each_s.append(time.perf_counter() - now))
                answers.append(answer)

            began = time.perf_counter()
            await paced(send, asked.number, asked.per_s)
            await asyncio.gather(*answers)
        return began, each_s

    def catch_up(self, asked: CatchUp) -> Timed:
        if self._filled < asked.number:
            self._leave()
            uvloop.run(self._purged())
            uvloop.run(self._publish(asked))
            self._filled = asked.number
        return Timed(seconds=uvloop.run(self._catch_up(asked.number)))

    async def _catch_up(self, number: int) -> float:
        shown = 0
        caught_up = asyncio.get_running_loop().create_future()

        async def show(_: Any) -> None:
            nonlocal shown
            shown += 1
            if shown == number:
                caught_up.set_result(time.perf_counter())

        async with connected(self.url) as client:
            began = time.perf_counter()
            await _subscribed(client, show, DeliverPolicy.ALL)
            ended: float = await asyncio.wait_for(caught_up, LIMIT_S)
        return ended - began

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.cluster.stop)
            stack.callback(self._leave)


if __name__ == "__main__":
    serve_commands(NatsStream)
