"""Stores that serve in a thread of this process, and what tests of the API share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceq import streams
from tests.parts import wait_until
from tests.streams.net.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from pathlib import Path

T = TypeVar("T")
WITHIN_S = 60.0


class Bar(msgspec.Struct):
    day: str
    symbol: str
    close: str
    value: str


BARS = streams.Topic("bars", Bar)
RAW = streams.Topic("raw")
SENDER, READER = 0x7E1, 0x0B5


def bars(count: int, begin: int = 0) -> list[Bar]:
    return [Bar(f"day {n}", "IBM", f"{n}.25", str(n)) for n in range(begin, begin + count)]


class Town:
    """Stores by their names, in a loop of their own."""

    def __init__(self, home: Path | None, noting: str = "") -> None:
        self.cluster = Cluster(home, noting)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def call(self, made: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(made, self.loop).result(WITHIN_S)

    def start(self, names: str = "abc") -> None:
        self.call(self.cluster.start(names))

    def end(self, names: str) -> None:
        self.call(self.cluster.end(names))

    def at(self, names: str = "abc") -> str:
        return " ".join(str(self.cluster.addresses[name]) for name in names)

    def close(self) -> None:
        try:
            self.end("".join(self.cluster.servers))
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    def positions(self, key: str, names: str = "abc") -> list[int]:
        """What stores have noted of a receiver of their one stream."""
        stores = [self.cluster.stores[name].catalogue for name in names]
        return [held.positions.get(key, 0) for one in stores for held in list(one.streams.values())]

    def links(self) -> int:
        return self.cluster.links()


@contextlib.contextmanager
def town(home: Path | None = None, names: str = "abc", noting: str = "") -> Generator[Town]:
    made = Town(home, noting)
    try:
        made.start(names)
        yield made
    finally:
        made.close()


class Heard:
    """The events that were told, from whatever thread."""

    def __init__(self) -> None:
        self.events: list[streams.Event] = []

    def __call__(self, event: streams.Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


class Shows:
    """A handler: what it was shown. stop_at: the number at which its receiver stops.

    running: of a receiver for asyncio, its life.
    """

    def __init__(self, stop_at: int | None = None) -> None:
        self.shown: list[streams.Message[Any]] = []
        self.stop_at = stop_at
        self.receiver: Any = None
        self.running: Any = None

    def __call__(self, message: streams.Message[Any]) -> None:
        self.shown.append(message)
        if message.number == self.stop_at:
            self.receiver.stop()

    def numbers(self) -> list[int]:
        return [one.number for one in self.shown]

    def values(self) -> list[Any]:
        return [one.value for one in self.shown]


def soon(holds: Callable[[], bool]) -> None:
    wait_until(holds, WITHIN_S)


def read(
    context: streams.StreamContext, topic: streams.Topic[Any], stop_at: int, **given: Any
) -> Shows:
    """Run a receiver until it was shown a number."""
    shows = Shows(stop_at)
    shows.receiver = context.receiver(topic, shows, **given)
    shows.receiver.run()
    return shows


def sent(context: streams.StreamContext, at: str, texts: list[bytes], **given: Any) -> None:
    """Send messages, all of them stable."""
    with context.source(RAW, stores=at, session_id=SENDER, **given) as source:
        for text in texts:
            source.send(text)
        source.wait_stable(WITHIN_S)
