"""Clients as threads or as asyncio tasks, made ready first and started together.

Imports no third party.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from bench.workers.base import RoundTrips, WrongError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

CLIENTS_S = 600.0


def timed_threads(clients: Sequence[Callable[[], None]]) -> float:
    """Run each in a thread of its own; return the seconds that all of them took."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(clients) + 1)

    def run(client: Callable[[], None]) -> None:
        start.wait(CLIENTS_S)
        try:
            client()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in clients]
    for thread in threads:
        thread.start()
    start.wait(CLIENTS_S)
    started = time.perf_counter()
    for thread in threads:
        thread.join(max(0.0, started + CLIENTS_S - time.perf_counter()))
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    if any(thread.is_alive() for thread in threads):
        raise WrongError(f"clients were not done after {CLIENTS_S:g} s")
    return seconds


def timed_calls(call: Callable[[], object], number: int, each_s: list[float]) -> None:
    """Call that many times, and note how long each took."""
    for _ in range(number):
        started = time.perf_counter()
        call()
        each_s.append(time.perf_counter() - started)


async def timed_together(clients: Sequence[Coroutine[object, object, None]]) -> float:
    """Run all of them at once; return the seconds that they took."""
    started = time.perf_counter()
    async with asyncio.timeout(CLIENTS_S):
        await asyncio.gather(*clients)
    return time.perf_counter() - started


async def timed_awaits(
    call: Callable[[], Awaitable[object]], number: int, each_s: list[float]
) -> None:
    """Await that many calls, one after another, and note how long each took."""
    for _ in range(number):
        started = time.perf_counter()
        await call()
        each_s.append(time.perf_counter() - started)


async def round_trips(
    calls: Sequence[Callable[[], Awaitable[object]]], numbers: Sequence[int]
) -> RoundTrips:
    """Let each client make its number of round trips, one at a time."""
    each_s: list[float] = []
    clients = [
        timed_awaits(call, number, each_s) for call, number in zip(calls, numbers, strict=True)
    ]
    return RoundTrips(seconds=await timed_together(clients), each_s=each_s)
