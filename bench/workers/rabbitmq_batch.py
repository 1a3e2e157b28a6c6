"""Publishing to RabbitMQ in batches: all of a batch is sent, then all of it is confirmed.

pika's blocking channel waits for each confirm; its asynchronous one is notified of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pika
from pika.spec import Basic

from bench.workers.base import BODY, WrongError
from bench.workers.servers import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCHES_S = 300.0


class _Publisher:
    """Publishes one batch after another, and ends its connection after the last."""

    def __init__(self, port: int, queue: str, sizes: Sequence[int]) -> None:
        self.queue = queue
        self.sizes = list(reversed(sizes))
        self.sent = 0  # tags count from one
        self.unconfirmed: dict[int, None] = {}  # tags, ascending
        self.failure = ""
        self.started = 0.0
        self.ended = 0.0
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host=LOOPBACK, port=port),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _connection, error: self._fail(repr(error)),
            on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
        )

    def _fail(self, text: str) -> None:
        self.failure = text
        self.connection.ioloop.stop()

    def _opened(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(self._closed)
        channel.confirm_delivery(
            ack_nack_callback=self._told, callback=lambda _method: self._start()
        )

    def _closed(self, _channel: Any, reason: Any) -> None:
        if self.sizes or self.unconfirmed:
            self._fail(repr(reason))

    def _start(self) -> None:
        self.connection.ioloop.call_later(BATCHES_S, lambda: self._fail("took too long"))
        self.started = time.perf_counter()
        self._publish()

    def _publish(self) -> None:
        lasting = pika.BasicProperties(delivery_mode=2)
        size = self.sizes.pop()
        self.unconfirmed = dict.fromkeys(range(self.sent + 1, self.sent + size + 1))
        self.sent += size
        for _ in range(size):
            self.channel.basic_publish("", self.queue, BODY, lasting)

    def _told(self, frame: Any) -> None:
        told = frame.method
        if not isinstance(told, Basic.Ack):
            self._fail("a publish was refused")
            return
        first = next(iter(self.unconfirmed), told.delivery_tag)
        for tag in range(first if told.multiple else told.delivery_tag, told.delivery_tag + 1):
            self.unconfirmed.pop(tag, None)
        if self.unconfirmed:
            return
        self.ended = time.perf_counter()
        if self.sizes:
            self._publish()
        else:
            self.connection.close()


def publish_batches(port: int, queue: str, sizes: Sequence[int]) -> float:
    """Publish batches of these sizes, each confirmed before the next; return the seconds."""
    publisher = _Publisher(port, queue, sizes)
    publisher.connection.ioloop.start()
    if publisher.failure:
        raise WrongError(f"publishing in batches: {publisher.failure}")
    return publisher.ended - publisher.started
