"""Clients as threads of processes, for onceq and for the raw statements alike.

A process of Python runs one thread at a time, but clients wait most of the time: tried with 64 of
them on two cores, four processes were slower than one, for the raw statements and for onceq, and
no faster with notifications. So all are in one process, up to `PER_PROCESS`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from bench.workers.base import RoundTrips, shares
from bench.workers.clients import timed_threads
from bench.workers.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from bench.workers.crew import Post

PER_PROCESS = 64


class Client(Protocol):
    """One client, on a thread of its own."""

    each_s: list[float]

    def work(self, times: int) -> None:
        """Do `times` operations; `each_s` may keep how long each took."""


def run_clients(
    opened: Callable[..., AbstractContextManager[Sequence[Client]]],
    numbers: Sequence[int],
    operations: int,
    warm_up: int,
    *more: Any,
) -> RoundTrips:
    """Let the clients of these numbers do so many operations in all; time all of them together.

    opened: is called in each process with the numbers of its clients, and with `more`. warm_up:
    operations of each client that are not timed.
    """
    processes = -(-len(numbers) // PER_PROCESS)
    parts = list(zip(numbers, shares(operations, len(numbers)), strict=True))
    arguments = [(opened, parts[index::processes], warm_up, more) for index in range(processes)]
    with Crew(_process, arguments) as crew:
        started = crew.go()
        found = crew.results()
    return RoundTrips(
        seconds=max(ended for ended, _ in found) - started,
        each_s=[each for _, some in found for each in some],
    )


def _process(
    post: Post,
    opened: Callable[..., AbstractContextManager[Sequence[Client]]],
    parts: Sequence[tuple[int, int]],
    *rest: Any,
) -> tuple[float, list[float]]:
    warm_up, more = rest
    with opened([number for number, _ in parts], *more) as clients:
        if warm_up:
            timed_threads([partial(client.work, warm_up) for client in clients])
        for client in clients:
            client.each_s.clear()
        post.wait_for_go()
        timed_threads(
            [partial(client.work, times) for client, (_, times) in zip(clients, parts, strict=True)]
        )
        return time.perf_counter(), [each for client in clients for each in client.each_s]
