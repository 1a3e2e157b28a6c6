"""Persistent streams of onceq: three stores and receivers as processes; the source in this one.

Safe: stores on disks, which sync what they say to have. Best: stores in memory, for what the sync
costs. Only the public API, on asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import onceq
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
    serve_commands,
)
from bench.workers.hearers import LAST, TIMED, Ear, Hearers, body_of
from bench.workers.pacing import paced
from bench.workers.stream_stores import Stores
from onceq import streams

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from multiprocessing.connection import Connection

T = TypeVar("T")
Deliver: TypeAlias = Literal["stable", "live"]
LISTEN = "127.0.0.1:0"
SOURCE, STOPPED, RECEIVER, NEW = 1, 2, 1000, 1_000_000
"""Sessions; those of receivers, and of those that catch up, are counted from there on."""
FLIGHT_BYTES = 32 << 20
FILLED_BYTES = 1024
LIMIT_S = 300.0
WEAKER = {
    "best": "stores in memory: what was stable is gone with two of the three",
    "safe": "",
}
HOW = (
    "the source and a receiver that catches up are on asyncio (no uvloop); each receiver and each"
    " of three stores is a process; stores {kept}; a receiver is shown what is stable, in order,"
    " and acknowledges it"
)
KEPT = {"best": "keep messages in memory", "safe": "sync by fdatasync before they answer"}


class Loop:
    """A loop in a thread of its own, which goes on between two commands."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, made: Coroutine[Any, Any, T]) -> T:
        """Return what something in the loop returns."""
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(LIMIT_S)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Hearing:
    """What a receiver is: of a topic at a source, by its session. deliver: what it is shown."""

    topic: str
    at: str
    session: int
    deliver: Deliver = "stable"


def receive(line: Connection[Any, Any], hearing: Hearing) -> None:
    """Be shown what comes from now on, for ever, in a process of its own."""
    asyncio.run(_receive(line, hearing))


async def _receive(line: Connection[Any, Any], hearing: Hearing) -> None:
    ear = Ear(line)

    def show(one: streams.Message[bytes]) -> None:
        ear.hear(one.value)

    def tell(event: streams.Event) -> None:
        if isinstance(event, streams.RegistrationComplete):
            ear.ready()
        elif isinstance(event, (streams.Loss, streams.RolledBack)):
            raise WrongError(f"a receiver was told {event!r}")

    async with streams.open_async(session_id=hearing.session) as context:
        receiver = context.receiver(
            streams.Topic(hearing.topic),
            show,
            at=hearing.at,
            deliver=hearing.deliver,
            on_event=tell,
            use_late_join=False,
        )
        await receiver.run()


class Stage:
    """A source of a topic of its own, and its receivers.

    begun: when messages were sent that are not known to be stable. stable_s: how long others took.
    told: all are known to be.
    """

    def __init__(self, context: streams.AsyncStreamContext, stores: str, topic: str) -> None:
        self.topic = topic
        self.begun: dict[int, float] = {}
        self.stable_s: list[float] = []
        self.told = asyncio.Event()
        self.ends = contextlib.AsyncExitStack()
        self.hearers: Hearers | None = None
        self._context, self._stores = context, stores
        self.source: streams.AsyncSource[bytes]

    async def open(self, flight: int, *, is_told: bool) -> None:
        """Register the source. is_told: what becomes stable is noted, message by message."""
        source = self._context.source(
            streams.Topic(self.topic),
            stores=self._stores,
            listen=LISTEN,
            on_event=self._note if is_told else None,
            flight_size=flight,
            flight_size_bytes=FLIGHT_BYTES,
            message_stability_timeout_ms=int(LIMIT_S * 1e3),
        )
        self.source = await self.ends.enter_async_context(source)
        await self.source.wait_registered(LIMIT_S)

    def receive(self, count: int, deliver: Deliver) -> None:
        """Begin receivers."""
        at = self.source.address
        roles = [(Hearing(self.topic, at, RECEIVER + one, deliver),) for one in range(count)]
        self.hearers = Hearers(receive, roles)

    def _note(self, event: streams.Event) -> None:
        if isinstance(event, streams.Stable):
            now = time.perf_counter()
            for number in range(event.first, event.last + 1):
                self.stable_s.append(now - self.begun.pop(number))
            if not self.begun:
                self.told.set()

    async def close(self) -> None:
        """End the receivers, then the source."""
        if self.hearers is not None:
            self.hearers.close()
        await self.ends.aclose()


class OnceqStream(System):
    """Three stores, and one stage at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.loop = Loop()
        self.stores = Stores(place.directory, in_memory=place.setting == "best")
        self.context = streams.open_async(session_id=SOURCE)
        self._stage: Stage | None = None
        self._key: object = None
        self._topics = (f"topic-{count}" for count in itertools.count())
        self._news = itertools.count(NEW)
        self._filled: tuple[str, int] = ("", 0)

    def about(self) -> About:
        setting = self.place.setting
        return About(
            system="onceq_stream",
            version=onceq.__version__,
            weaker=WEAKER[setting],
            how=HOW.format(kept=KEPT[setting]),
        )

    def _staged(self, key: tuple[int, int, Deliver, bool]) -> Stage:
        """Return the stage of a flight, so many receivers, their mode, and whether it is told."""
        if self._stage is not None and self._key == key:
            return self._stage
        self._leave()
        flight, receivers, deliver, is_told = key
        stage = Stage(self.context, self.stores.listed, next(self._topics))
        self._stage, self._key = stage, key
        self.loop.call(stage.open(flight, is_told=is_told))
        stage.receive(receivers, deliver)
        return stage

    def _leave(self) -> None:
        if self._stage is not None:
            self.loop.call(self._stage.close())
        self._stage = self._key = None

    def receivers(self) -> list[int]:
        """Return the processes of the receivers that there are."""
        hearers = None if self._stage is None else self._stage.hearers
        return [] if hearers is None else hearers.pids

    def publish(self, asked: Publish) -> Timed:
        stage = self._staged((asked.flight, asked.receivers, "stable", False))
        with self._stopped(stage, asked.stopped):
            if asked.filled:
                self._publish(stage, asked.filled, FILLED_BYTES)
            return Timed(seconds=self._publish(stage, asked.number, asked.body_bytes))

    def _publish(self, stage: Stage, number: int, body_bytes: int) -> float:
        """Send messages; return the seconds until all are stable, and shown to all receivers."""
        began, stable = self.loop.call(_sent(stage.source, number, body_bytes))
        heard = stage.hearers.heard(number) if stage.hearers else []
        return max(stable, *(one.at_s for one in heard)) - began

    @contextlib.contextmanager
    def _stopped(self, stage: Stage, count: int) -> Generator[None]:
        """Have so many receivers join, and then take nothing, while the block runs."""
        at = stage.source.address
        roles = [(Hearing(stage.topic, at, STOPPED + one),) for one in range(count)]
        with Hearers(receive, roles) as stopped:
            stopped.stop()
            yield

    def pace(self, asked: Pace) -> RoundTrips:
        is_received = asked.until == "received"
        stage = self._staged(
            (10_000, int(is_received), "live" if is_received else "stable", not is_received)
        )
        stage.stable_s.clear()
        seconds = self.loop.call(_paced(stage, asked))
        heard = stage.hearers.heard(asked.number) if is_received and stage.hearers else []
        each_s = heard[0].each_s if heard else tuple(stage.stable_s)
        if len(each_s) != asked.number:
            raise WrongError(f"{len(each_s)} of {asked.number} were timed")
        return RoundTrips(seconds=seconds, each_s=each_s)

    def catch_up(self, asked: CatchUp) -> Timed:
        topic, filled = self._filled
        if filled < asked.number:
            stage = self._staged((10_000, 0, "stable", False))
            self.loop.call(_sent(stage.source, asked.number, asked.body_bytes))
            topic = stage.topic
            self._filled = (topic, asked.number)
            self._leave()
        return Timed(seconds=self.loop.call(self._caught_up(topic, asked.number)))

    async def _caught_up(self, topic: str, number: int) -> float:
        shown = 0
        ended = 0.0

        def show(_: streams.Message[bytes]) -> None:
            nonlocal shown, ended
            shown += 1
            if shown == number:
                ended = time.perf_counter()
                receiver.stop()

        receiver = self.context.receiver(
            streams.Topic(topic),
            show,
            at=self.stores.listed.split()[0],
            session_id=next(self._news),
        )
        began = time.perf_counter()
        async with asyncio.timeout(LIMIT_S):
            await receiver.run()
        return ended - began

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.loop.close)
            stack.callback(self.stores.close)
            stack.callback(self._leave)


async def _sent(
    source: streams.AsyncSource[bytes], number: int, body_bytes: int
) -> tuple[float, float]:
    """Send messages; return when that began, and when all of them were stable."""
    plain, last = body_of(body_bytes), body_of(body_bytes, LAST)
    began = time.perf_counter()
    for _ in range(number - 1):
        await source.send(plain)
    await source.send(last)
    await source.wait_stable(LIMIT_S)
    return began, time.perf_counter()


async def _paced(stage: Stage, asked: Pace) -> float:
    """Send messages at a pace, and wait until all are stable; return the seconds."""
    source = stage.source
    is_told = asked.until == "stable"

    async def send(*, is_last: bool) -> None:
        now = time.perf_counter()
        if is_told:
            stage.begun[source.next_number] = now
        await source.send(body_of(asked.body_bytes, TIMED | (LAST if is_last else 0), now))

    began = time.perf_counter()
    await paced(send, asked.number, asked.per_s)
    await source.wait_stable(LIMIT_S)
    async with asyncio.timeout(LIMIT_S):
        while is_told and stage.begun:  # events are told behind
            stage.told.clear()
            await stage.told.wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    serve_commands(OnceqStream)
