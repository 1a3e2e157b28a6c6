"""onceq, where the clients of one process share two connections: each a task, at a desk."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import onceq
from bench.workers.base import (
    BODY,
    About,
    Enqueue,
    RequestReply,
    RoundTrips,
    Timed,
    serve_commands,
    shares,
)
from bench.workers.crowd import Shared, serving
from bench.workers.onceq_worker import TOGETHER, WARM_UP, WINDOW, Onceq, Served, serve_replies

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from onceq import AsyncClerk

CONNECTIONS: Final = 2
MANY: Final = 100
"""More clients than this are warm after one round trip each."""


class Seat:
    """A client: its clerk, and how long each of its round trips took."""

    def __init__(self, clerk: AsyncClerk[bytes, bytes]) -> None:
        self.clerk = clerk
        self.each_s: list[float] = []
        self.rids = map(str, itertools.count())

    async def send(self, times: int) -> None:
        """Send, one after another; nobody waits for the replies."""
        for rid in itertools.islice(self.rids, times):
            await self.clerk.send(rid, BODY)

    async def ask(self, times: int) -> None:
        """Make round trips."""
        for rid in itertools.islice(self.rids, times):
            started = time.perf_counter()
            await self.clerk.transceive(rid, BODY, timeout_s=60)
            self.each_s.append(time.perf_counter() - started)


@asynccontextmanager
async def seated(
    numbers: Sequence[int], window: int, served: Served
) -> AsyncGenerator[Sequence[Seat]]:
    """Connect the clerks of these numbers, at one desk."""
    async with (
        onceq.open_async(served.conninfo) as qm,
        qm.clerks(connections=CONNECTIONS) as clerks,
    ):
        found = [clerks.clerk(f"client-{one}", served.queue, window=window) for one in numbers]
        for first in range(0, len(found), 1000):
            await asyncio.gather(*(one.connect() for one in found[first : first + 1000]))
        yield [Seat(one) for one in found]


class OnceqDesk(Onceq):
    """Its clients are tasks of one process."""

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="onceq_desk",
            version=super().about().version,
            weaker="",
            how=f"clients are tasks with a clerk each, at a desk with {CONNECTIONS} connections",
        )

    def enqueue(self, asked: Enqueue) -> Timed:
        """Send, one by one, each client for itself."""

        async def run() -> float:
            served, numbers = Served(self.conninfo, self.sent), self._numbers(asked.clients)
            async with seated(numbers, WINDOW, served) as seats:
                parts = zip(seats, shares(asked.number, len(seats)), strict=True)
                started = time.perf_counter()
                await asyncio.gather(*(seat.send(times) for seat, times in parts))
                return time.perf_counter() - started

        return Timed(seconds=asyncio.run(run()))

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        """Make round trips."""

        async def run() -> RoundTrips:
            served, numbers = Served(self.conninfo, self.asked), self._numbers(asked.clients)
            async with seated(numbers, 1, served) as seats:
                await asyncio.gather(*(seat.ask(warm_up) for seat in seats))
                for seat in seats:
                    seat.each_s.clear()
                parts = zip(seats, shares(asked.number, len(seats)), strict=True)
                started = time.perf_counter()
                await asyncio.gather(*(seat.ask(times) for seat, times in parts))
                seconds = time.perf_counter() - started
                return RoundTrips(
                    seconds=seconds, each_s=[one for seat in seats for one in seat.each_s]
                )

        limit = TOGETHER if asked.clients > asked.servers else 1
        warm_up = WARM_UP if asked.clients <= MANY else 1
        served = Served(self.conninfo, self.asked)
        with serving(serve_replies, Shared(asked.servers), served, limit):
            found = asyncio.run(run())
        self._check_effects(asked.number + warm_up * asked.clients)
        return found


if __name__ == "__main__":
    serve_commands(OnceqDesk)
