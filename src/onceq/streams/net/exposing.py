"""Texts over HTTP, for whoever watches: metrics of a store, or of a repository's queues.

It answers one GET on each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from onceq.streams.net.address import Address

REQUEST_S: Final = 5.0
REQUEST_BYTES_MAX: Final = 8 << 10
CONNECTIONS_MAX: Final = 16


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered. kind: of its text, as HTTP says it."""

    text: str
    status: str = "200 OK"
    kind: str = "text/plain; charset=utf-8"


class _Door:
    """Who has connected, and how each is answered."""

    def __init__(self, answer: Callable[[str], Awaitable[Answer]]) -> None:
        self._answer = answer
        self._open = 0

    async def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whoever is too slow, or one too many, is not answered."""
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S):
                    writer.write(await self._answered(reader))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.decode("latin-1").partition(" ")
        if method == "GET":
            answer = await self._answer(rest.split(" ")[0])
        else:
            answer = Answer(status="405 Method Not Allowed", text="only GET is answered\n")
        body = answer.text.encode()
        lines = (
            f"HTTP/1.1 {answer.status}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body


@contextlib.asynccontextmanager
async def exposed(
    listen: Address, answer: Callable[[str], Awaitable[Answer]], tls: ssl.SSLContext | None
) -> AsyncGenerator[Address]:
    """Answer while the block runs, by the target of each GET; give where. OSError: nobody can.

    What takes longer than REQUEST_S is not answered.
    """
    server = await asyncio.start_server(
        _Door(answer).came, listen.host, listen.port, ssl=tls, limit=REQUEST_BYTES_MAX
    )
    try:
        port: int = server.sockets[0].getsockname()[1]
        yield Address(host=listen.host, port=port)
    finally:
        server.close()
