"""Request and reply over JetStream: the request in a stream; the reply in one too, if lasting.

A lasting reply is published to a stream, confirmed before its request is acknowledged, and
acknowledged by its client. Any other goes to the client's inbox, and is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from bench.workers.base import BODY, RequestReply, RoundTrips, shares
from bench.workers.clients import round_trips

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bench.workers.crew import Post

CALLS, REPLIES = "CALLS", "REPLIES"  # streams
CALL, DELIVERED = "calls", "delivered.calls"  # subjects
REPLY_TO = "Reply-To"  # JetStream takes the reply subject of NATS for its own confirm
REPLY_S = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """Where the server is, and whether replies are stored."""

    url: str
    lasting: bool


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any]:
    """Connect; a lost connection is an error."""
    client = await nats.connect(url, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


async def fresh_stream(client: Any, name: str, subject: str) -> None:
    """Make a work queue stream on files, without anything in it."""
    jetstream = client.jetstream()
    with contextlib.suppress(NotFoundError):
        await jetstream.delete_stream(name)
    await jetstream.add_stream(
        StreamConfig(
            name=name,
            subjects=[subject],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
        )
    )


async def _push(client: Any, stream: str, *, subject: str, to: str, group: str = "") -> None:
    """Let a stream push what arrives on a subject to another one, to be acknowledged."""
    await client.jetstream().add_consumer(
        stream,
        ConsumerConfig(
            durable_name=to.replace(".", "-"),
            filter_subject=subject,
            deliver_subject=to,
            deliver_group=group or None,
            ack_policy=AckPolicy.EXPLICIT,
        ),
    )


def serve_calls(post: Post, line: Line) -> int:
    """Reply to requests until stopped; return how many there were."""
    count: int = uvloop.run(_serve_calls(post, line))
    return count


async def _serve_calls(post: Post, line: Line) -> int:
    count = 0
    async with connected(line.url) as client:
        jetstream = client.jetstream()

        async def take(request: Any) -> None:
            nonlocal count
            to = request.headers[REPLY_TO]
            if line.lasting:
                await jetstream.publish(to, request.data)
                await request.ack_sync(timeout=REPLY_S)
            else:
                await client.publish(to, request.data)
                await request.ack()
            count += 1

        await client.subscribe(DELIVERED, queue=CALLS, cb=take)
        await client.flush()
        await asyncio.to_thread(post.wait_for_go)
        await asyncio.to_thread(post.wait_for_stop)
    return count


class _Client:
    """A client with one request outstanding."""

    def __init__(self, client: Any, line: Line, number: int) -> None:
        self.client = client
        self.jetstream = client.jetstream()
        self.line = line
        self.to = f"replies.{number}" if line.lasting else client.new_inbox()
        self.delivered = f"delivered.replies.{number}" if line.lasting else self.to
        self.replied: asyncio.Future[None]

    async def prepare(self) -> None:
        await self.client.subscribe(self.delivered, cb=self._take)
        if self.line.lasting:
            await _push(self.client, REPLIES, subject=self.to, to=self.delivered)
        await self.client.flush()

    async def _take(self, reply: Any) -> None:
        if self.line.lasting:
            await reply.ack()
        self.replied.set_result(None)

    async def call(self) -> None:
        """Send a request and wait for its reply."""
        self.replied = asyncio.get_running_loop().create_future()
        headers = {REPLY_TO: self.to}
        if self.line.lasting:
            await self.jetstream.publish(CALL, BODY, headers=headers)
        else:
            await self.client.publish(CALL, BODY, headers=headers)
        await asyncio.wait_for(self.replied, REPLY_S)


async def prepare_calls(line: Line) -> None:
    """Make the streams anew, and what pushes requests to the servers."""
    async with connected(line.url) as client:
        await fresh_stream(client, CALLS, CALL)
        await fresh_stream(client, REPLIES, "replies.*")
        await _push(client, CALLS, subject=CALL, to=DELIVERED, group=CALLS)


async def measure_calls(line: Line, asked: RequestReply) -> RoundTrips:
    """Let the clients make their round trips."""
    async with contextlib.AsyncExitStack() as ends:
        clients: list[_Client] = []
        for number in range(asked.clients):
            connection = await ends.enter_async_context(connected(line.url))
            clients.append(_Client(connection, line, number))
            await clients[-1].prepare()
        calls = [one.call for one in clients]
        return await round_trips(calls, shares(asked.number, asked.clients))
