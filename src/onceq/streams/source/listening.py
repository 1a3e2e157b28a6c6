"""Where receivers connect to a source over asyncio: they ask what they must know, then hear all.

One that does not take what it is sent is cut off, so that it slows nobody and what is held for it
is bounded: it catches up from stores, and connects again. What is answered is decided elsewhere.
Source: streams.md 7; spec M18.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, frames
from onceq.streams.model.frames import FrameKind
from onceq.streams.net.address import Address, refuse_unless_safe
from onceq.streams.net.link import Link, wait_closed
from onceq.streams.net.tls import Certificates
from onceq.streams.net.wire import answer_frame

RECEIVERS_MAX: Final = 256
BUFFERED_BYTES_MAX: Final = 4 << 20
"""What is held for a receiver that does not take it."""


class Listening:
    """The receivers that are connected. learn: answers one that asks; it may raise FrameRefused.

    skipped: how many were cut off since they did not take what they were sent; turned_away: since
    there were too many.
    """

    def __init__(
        self, learn: Callable[[asks.Ask], asks.Answer], certificates: Certificates | None = None
    ) -> None:
        self.skipped = self.turned_away = 0
        self._learn = learn
        self._tls = None if certificates is None else certificates.listening()
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self._joined: set[Link] = set()

    async def listen(self, at: Address) -> Address:
        """Begin to listen; return the address, whose port may have been any.

        Raises InvalidValue for an address beyond this machine without certificates, OSError if
        nobody can listen there.
        """
        refuse_unless_safe(at, has_tls=self._tls is not None)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Link(made=self._made, came=self._came, lost=self._lost),
            at.host,
            at.port,
            ssl=self._tls,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return Address(host=at.host, port=port)

    def publish(self, data: bytes) -> None:
        """Send frames to all that have asked what they must know."""
        for link in list(self._joined):
            if link.buffered > BUFFERED_BYTES_MAX:
                self.skipped += 1
                self._joined.discard(link)
                link.abort()
            else:
                link.send(data)

    def _made(self, link: Link) -> None:
        self._links.add(link)
        if len(self._links) > RECEIVERS_MAX:
            self.turned_away += 1
            link.close()

    def _came(self, link: Link, data: bytes) -> None:
        frame = frames.decode(data)
        if frame.kind is not FrameKind.ASK:
            raise FrameRefused("a receiver sent something that is no ask")
        answer = self._learn(asks.ask_of(frame.body))
        link.send(answer_frame(frame.stream, frame.number, answer))
        self._joined.add(link)

    def _lost(self, link: Link, _: str) -> None:
        self._links.discard(link)
        self._joined.discard(link)

    async def close(self, within_s: float) -> None:
        """Listen no more; close all links when all is sent, at once if that is not in time."""
        if self._server is not None:
            self._server.close()
        await wait_closed(self._links, within_s)
