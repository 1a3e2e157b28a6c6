"""A store's metrics over HTTP, for who watches it: GET /metrics, and GET /health.

Health is 200 while the store takes messages, else 503 with why it does not.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable

from onceq.model.metrics import CONTENT_TYPE
from onceq.streams.net import exposing
from onceq.streams.net.address import Address
from onceq.streams.net.exposing import Answer
from onceq.streams.store.metrics import text_of
from onceq.streams.store.statistics import StoreStatistics


def answered(target: str, store: Callable[[], StoreStatistics]) -> Answer:
    """Return what is answered to GET and a target. Pure."""
    match target:
        case "/metrics":
            return Answer(kind=CONTENT_TYPE, text=text_of(store()))
        case "/health":
            status, text = health(store())
            return Answer(status=status, text=f"{text}\n")
        case _:
            return Answer(status="404 Not Found", text="there are /metrics and /health\n")


def health(store: StoreStatistics) -> tuple[str, str]:
    """Return the status of a store, and in words whether it takes messages."""
    if store.disk is not None and store.disk.is_full:
        return "503 Service Unavailable", "the disk is full"
    full = [one.topic for one in store.streams if one.is_full]
    if full:
        return "503 Service Unavailable", f"full: {', '.join(full)}"
    return "200 OK", "it takes messages"


@contextlib.asynccontextmanager
async def exposed(
    listen: Address, store: Callable[[], StoreStatistics], tls: ssl.SSLContext | None
) -> AsyncGenerator[Address]:
    """Answer for a store while the block runs; give where. Raises OSError: nobody can listen."""

    async def answer(target: str) -> Answer:
        return answered(target, store)

    async with exposing.exposed(listen, answer, tls) as at:
        yield at
