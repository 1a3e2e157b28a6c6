"""A connection on which frames come and go; both ends use it.

What comes is given on frame by frame, unproven; who gets it may close the link. While the other end
does not read, nothing more is read from it either: so what is held for it is bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from onceq.streams.errors import FrameRefused
from onceq.streams.model.frames import Splitter

KEEPALIVE_S: Final = 3
USER_TIMEOUT_MS: Final = 10_000
"""Unacknowledged bytes for so long: the connection is given up."""
WRITE_BYTES_MAX: Final = 2 << 20

Came: TypeAlias = "Callable[[Link, bytes], None]"
Lost: TypeAlias = "Callable[[Link, str], None]"


class Link(asyncio.Protocol):
    """One connection.

    came: called with each frame's bytes; it may raise FrameRefused. made, lost: called when the
    link is there, and when it is not any more, with why. refused: why this end closed it. reads_on:
    what comes is taken also while the other end does not read: `came` must bound what it sends.
    """

    def __init__(
        self, *, made: Callable[[Link], None], came: Came, lost: Lost, reads_on: bool = False
    ) -> None:
        self._made, self._came, self._lost = made, came, lost
        self._reads_on = reads_on
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._is_full = self._is_held = False
        self._gone = asyncio.Event()
        self.refused: FrameRefused | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"{transport!r} is no transport of a stream")
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        found = transport.get_extra_info("socket")
        if found is not None:
            tune(found)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._splitter.add(data)
            self._feed()
        except FrameRefused as error:
            self.refuse(error)

    def _feed(self) -> None:
        if self._stops():
            return
        complete = self._splitter.complete()
        try:
            for one in complete:
                self._came(self, one)
                if self._stops():
                    return
        finally:
            complete.close()

    @property
    def is_open(self) -> bool:
        """Whether what is sent now may arrive."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def buffered(self) -> int:
        """The bytes that were sent here, and that the other end did not take yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _stops(self) -> bool:
        """Whether nothing more may be taken now."""
        return self._is_full or self._is_held or not self.is_open

    def send(self, data: bytes) -> None:
        """Send bytes; on a link that is closed: nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def refuse(self, error: FrameRefused) -> None:
        """Close the link for what came on it."""
        self.refused = error
        self.abort()

    def abort(self) -> None:
        """Close the link at once; what was not yet sent is given up."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the link when all is sent."""
        if self._transport is not None:
            self._transport.close()

    def hold(self) -> None:
        """Take nothing more from the other end until `go_on`."""
        self._is_held = True
        self._pause()

    def go_on(self) -> None:
        """Take again what comes."""
        self._is_held = False
        self._resume()

    def pause_writing(self) -> None:
        """See asyncio: the other end does not read."""
        if not self._reads_on:
            self._is_full = True
            self._pause()

    def resume_writing(self) -> None:
        """See asyncio: it reads again."""
        self._is_full = False
        self._resume()

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._stops() or self._transport is None:
            return
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self.data_received, b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        why = str(self.refused or exc or "the other end closed the connection")
        self._transport = None
        self._gone.set()
        self._lost(self, why)

    async def wait_gone(self) -> None:
        """Return when the link is not there any more; it must have been there."""
        await self._gone.wait()


async def wait_closed(links: Iterable[Link], within_s: float) -> None:
    """Close links when all is sent, at once if that is not within some time; return when done.

    Each of them must have been there.
    """
    left = tuple(links)
    for one in left:
        one.close()
    try:
        async with asyncio.timeout(within_s):
            for one in left:
                await one.wait_gone()
    except TimeoutError:
        for one in left:
            one.abort()
        for one in left:
            await one.wait_gone()


def tune(sock: socket.socket) -> None:
    """Have a socket send at once, and notice within seconds that the other end is gone."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
