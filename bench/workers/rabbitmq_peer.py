"""RabbitMQ with pika: quorum queues, publisher confirms, acknowledgements by hand.

A quorum queue syncs its log before it confirms, also on one node. Safe: each publish is confirmed
before the next, a server is given one request at a time, replies go to quorum queues and are
confirmed. Best: what the documentation offers for speed: a prefetch of 250, direct reply-to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pika
import psycopg

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
    WrongError,
    require_count,
    serve_commands,
    shares,
)
from bench.workers.clients import timed_calls, timed_threads
from bench.workers.crew import Crew, Post, Tally, timed_run
from bench.workers.rabbitmq_batch import publish_batches
from bench.workers.rabbitmq_server import RabbitServer, missing
from bench.workers.servers import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = "bench"
DIRECT = "amq.rabbitmq.reply-to"
PREFETCH = {"best": 250, "safe": 1}
LASTING = pika.BasicProperties(delivery_mode=2)
MARK = b""
LOOK_S = 0.005
REPLY_S = 30.0

WEAKER = (
    "at least once: the effect commits in PostgreSQL before the acknowledgement is sent to"
    " RabbitMQ, which does not answer it, so that a crash between the two repeats the effect, and a"
    " publish whose confirm was lost is published twice"
)
LOST = "; a reply is held in memory only, and lost with its client"
HOW = {
    "best": "clients are threads with a connection each; servers are processes, prefetch 250, one"
    " acknowledgement a request (or a batch); replies by direct reply-to, unconfirmed",
    "safe": "clients are threads with a connection each; servers are processes, prefetch 1 (or the"
    " batch); replies through a quorum queue for each client, confirmed and acknowledged",
}


def connect(port: int) -> Any:
    """Return a connection."""
    return pika.BlockingConnection(pika.ConnectionParameters(host=LOOPBACK, port=port))


def declare(channel: Any, queue: str) -> None:
    """Make a quorum queue, unless it is there."""
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})


def waiting(port: int, queue: str = QUEUE) -> int:
    """Return how many requests wait in a queue."""
    connection = connect(port)
    try:
        found: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return found
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Share:
    """What a server needs to know of a dequeue that several servers share."""

    port: int
    tally: Tally
    asked: Dequeue


class Consumer:
    """Executes what it is given, `batch` at a time, and notes when it acknowledged the last."""

    def __init__(self, channel: Any, share: Share, conninfo: str | None) -> None:
        self.channel = channel
        self.tally = share.tally
        self.asked = asked = share.asked
        self.database = (
            psycopg.connect(conninfo, autocommit=True) if conninfo and asked.user_sql else None
        )
        self.bodies: list[tuple[bytes]] = []
        self.done = 0
        self.ended = time.perf_counter()

    def take(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        """Take one delivery; with it, or when nothing is left, execute what was taken."""
        if body == MARK:
            return
        self.bodies.append((body,))
        if len(self.bodies) >= self.asked.batch:
            self.execute(method.delivery_tag)

    def execute(self, last: int = 0) -> None:
        """Execute what was taken. last: the tag up to which to acknowledge; 0 for all."""
        number = len(self.bodies)
        if self.database is not None and number == 1:
            self.database.execute(postgres.EFFECT, self.bodies[0])
        elif self.database is not None:
            with self.database.transaction(), self.database.cursor() as cursor:
                cursor.executemany(postgres.EFFECT, self.bodies)
        self.channel.basic_ack(last, multiple=number > 1)
        self.bodies.clear()
        self.ended = time.perf_counter()
        self.done = self.tally.add(number)

    def settle(self) -> float:
        """Return when the acknowledgements were stable.

        They are not answered. Whoever sent the last one publishes a mark: its confirm says that
        the queue's log holds the mark, and so what came before it.
        """
        if self.done == self.asked.number:
            self.channel.confirm_delivery()
            self.channel.basic_publish("", QUEUE, MARK, LASTING)
            self.ended = time.perf_counter()
        if self.database is not None:
            self.database.close()
        return self.ended


def serve(post: Post, place: Place, share: Share) -> float:
    """Execute requests until all have been, by whichever server; return when ours was."""
    tally, asked = share.tally, share.asked
    connection = connect(share.port)
    try:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=max(PREFETCH[place.setting], asked.batch))
        one = Consumer(channel, share, place.conninfo)
        post.wait_for_go()
        channel.basic_consume(QUEUE, one.take)
        while tally.total() < asked.number and not post.is_stopped():
            held = len(one.bodies)
            connection.process_data_events(time_limit=LOOK_S)
            if held and held == len(one.bodies):  # nothing more comes: a batch that is not full
                one.execute()
        return one.settle()
    finally:
        connection.close()


def answer(post: Post, place: Place, port: int) -> int:
    """Reply to requests until stopped; return how many there were."""
    count = 0
    connection = connect(port)
    channel = connection.channel()
    if place.setting == "safe":
        channel.confirm_delivery()

    def take(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal count
        replied = pika.BasicProperties(
            correlation_id=properties.correlation_id, delivery_mode=LASTING.delivery_mode
        )
        channel.basic_publish("", properties.reply_to, body, replied)
        channel.basic_ack(method.delivery_tag)
        count += 1

    channel.basic_qos(prefetch_count=PREFETCH[place.setting])
    channel.basic_consume(QUEUE, take)
    post.wait_for_go()
    while not post.is_stopped():
        connection.process_data_events(time_limit=LOOK_S)
    connection.close()
    return count


class Client:
    """A client with one request outstanding. Its replies come to a queue of its own."""

    def __init__(self, place: Place, port: int, number: int) -> None:
        self.connection = connect(port)
        self.channel = self.connection.channel()
        self.queue = DIRECT
        self.sent = 0
        self.got = -1
        if place.setting == "safe":
            self.queue = f"replies-{number}"
            declare(self.channel, self.queue)
            self.channel.queue_purge(self.queue)
            self.channel.confirm_delivery()
        self.channel.basic_consume(self.queue, self._take, auto_ack=self.queue == DIRECT)

    def _take(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        if self.queue != DIRECT:
            self.channel.basic_ack(method.delivery_tag)
        self.got = int(properties.correlation_id)

    def call(self) -> None:
        """Send a request and wait for its reply."""
        self.sent += 1
        asked = pika.BasicProperties(
            reply_to=self.queue,
            correlation_id=str(self.sent),
            delivery_mode=LASTING.delivery_mode,
        )
        self.channel.basic_publish("", QUEUE, BODY, asked)
        until = time.monotonic() + REPLY_S
        while self.got != self.sent:
            if time.monotonic() > until:
                raise WrongError(f"no reply in {REPLY_S:g} s")
            self.connection.process_data_events(time_limit=1)


class RabbitMQ(System):
    """A node of its own."""

    def __init__(self, place: Place) -> None:
        if reason := missing():
            raise SkippedError(reason)
        self.place = place
        self.server = RabbitServer(place.directory)
        self.port = self.server.port
        connection = connect(self.port)
        declare(connection.channel(), QUEUE)
        connection.close()

    def about(self) -> About:
        best = self.place.setting == "best"
        return About(
            system="rabbitmq",
            version=f"{self.server.version}, pika {version('pika')}",
            weaker=WEAKER + (LOST if best else "") + ".",
            how=HOW[self.place.setting],
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        before = waiting(self.port)
        connections = [connect(self.port) for _ in range(asked.clients)]

        def client(channel: Any, number: int) -> None:
            for _ in range(number):
                channel.basic_publish("", QUEUE, BODY, LASTING)

        numbers = shares(asked.number, asked.clients)
        clients: list[Callable[[], None]] = []
        for connection, number in zip(connections, numbers, strict=True):
            channel = connection.channel()
            channel.confirm_delivery()
            clients.append(partial(client, channel, number))
        seconds = timed_threads(clients)
        for connection in connections:
            connection.close()
        require_count("published", waiting(self.port) - before, asked.number)
        return Timed(seconds=seconds)

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        before = waiting(self.port)
        sizes = shares(asked.number, -(-asked.number // asked.batch))
        seconds = publish_batches(self.port, QUEUE, sizes)
        require_count("published", waiting(self.port) - before, asked.number)
        return Timed(seconds=seconds)

    def _purge(self) -> None:
        connection = connect(self.port)
        connection.channel().queue_purge(QUEUE)
        connection.close()

    def dequeue(self, asked: Dequeue) -> Timed:
        if asked.user_sql:
            postgres.empty_effects(self.place.require_conninfo())
        self._purge()
        self.enqueue_batch(EnqueueBatch(number=asked.number, batch=1000))
        tally = Tally()
        roles = [(self.place, Share(self.port, tally, asked))] * asked.servers
        seconds = timed_run(serve, roles)
        require_count("executed", tally.total(), asked.number)
        # What was not acknowledged came back when its connection closed.
        require_count("left, with the mark", waiting(self.port), 1)
        if asked.user_sql:
            postgres.require_effects(self.place.require_conninfo(), asked.number)
        return Timed(seconds=seconds)

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        self._purge()
        clients = [Client(self.place, self.port, number) for number in range(asked.clients)]
        each_s: list[float] = []
        with Crew(answer, [(self.place, self.port)] * asked.servers) as crew:
            crew.go()
            seconds = timed_threads(
                [
                    partial(timed_calls, client.call, number, each_s)
                    for client, number in zip(
                        clients, shares(asked.number, asked.clients), strict=True
                    )
                ]
            )
            crew.stop()
            require_count("answered", sum(crew.results()), asked.number)
        for client in clients:
            client.connection.close()
        return RoundTrips(seconds=seconds, each_s=each_s)

    def close(self) -> None:
        self.server.stop()


if __name__ == "__main__":
    serve_commands(RabbitMQ)
