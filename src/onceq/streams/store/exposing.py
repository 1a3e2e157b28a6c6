"""Metrics over HTTP, for who watches a store: GET /metrics, and GET /health.

It answers one request on each connection. Health is 200 while the store takes messages, else 503
with why it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import Final

from onceq.streams.net.address import Address
from onceq.streams.store.metrics import CONTENT_TYPE, text_of
from onceq.streams.store.statistics import StoreStatistics

REQUEST_S: Final = 5.0
REQUEST_BYTES_MAX: Final = 8 << 10
CONNECTIONS_MAX: Final = 16
PLAIN: Final = "text/plain; charset=utf-8"


def answered(target: str, store: Callable[[], StoreStatistics]) -> tuple[str, str, str]:
    """Return the status, the type and the text that are answered to GET and a target. Pure."""
    match target:
        case "/metrics":
            return "200 OK", CONTENT_TYPE, text_of(store())
        case "/health":
            status, text = health(store())
            return status, PLAIN, f"{text}\n"
        case _:
            return "404 Not Found", PLAIN, "there are /metrics and /health\n"


def health(store: StoreStatistics) -> tuple[str, str]:
    """Return the status of a store, and in words whether it takes messages."""
    if store.disk is not None and store.disk.is_full:
        return "503 Service Unavailable", "the disk is full"
    full = [one.topic for one in store.streams if one.is_full]
    if full:
        return "503 Service Unavailable", f"full: {', '.join(full)}"
    return "200 OK", "it takes messages"


class _Door:
    """Who has connected, and how each is answered."""

    def __init__(self, store: Callable[[], StoreStatistics]) -> None:
        self._store = store
        self._open = 0

    async def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whoever is too slow, or one too many, is not answered."""
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.decode("latin-1").partition(" ")
        if method == "GET":
            status, kind, text = answered(rest.split(" ")[0], self._store)
        else:
            status, kind, text = "405 Method Not Allowed", PLAIN, "only GET is answered\n"
        body = text.encode()
        lines = (
            f"HTTP/1.1 {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body


@contextlib.asynccontextmanager
async def exposed(
    listen: Address, store: Callable[[], StoreStatistics], tls: ssl.SSLContext | None
) -> AsyncGenerator[Address]:
    """Answer for a store while the block runs; give where. Raises OSError: nobody can listen."""
    server = await asyncio.start_server(
        _Door(store).came, listen.host, listen.port, ssl=tls, limit=REQUEST_BYTES_MAX
    )
    try:
        port: int = server.sockets[0].getsockname()[1]
        yield Address(host=listen.host, port=port)
    finally:
        server.close()
