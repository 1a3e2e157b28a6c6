"""The link of a receiver to its source, over asyncio: it asks what it must know, then hears all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from onceq.streams.model import asks
from onceq.streams.net.address import address, refuse_unless_safe
from onceq.streams.net.link import Link
from onceq.streams.net.wire import TO_FRAMES, ask_frame

_NOT_THERE: Final = (OSError, TimeoutError, ssl.SSLError)
_TAG: Final = 1
SAID_BYTES_MAX: Final = 64 << 10
"""With more on its way to a source that does not take it, nothing is said: it is said again."""


class Joining:
    """A link that is made again and again, to wherever the source is.

    ask: by which the receiver joins. heard: called with what comes; it may raise FrameRefused, and
    the link is closed. at: where there is a link to; empty: there is none. count: of links so far.
    """

    def __init__(
        self, ask: asks.Learn, heard: Callable[[bytes], None], tls: ssl.SSLContext | None
    ) -> None:
        self.at = ""
        self.count = 0
        self._ask = ask
        self._heard = heard
        self._tls = tls
        self._link: Link | None = None
        self._is_held = False

    async def join(self, at: str, within_s: float) -> None:
        """Have a link to an address; return when it is lost, or could not be made in time.

        Cancelled, it closes the link. Raises InvalidValue for an address beyond this machine
        without certificates.
        """
        to = address(at)
        refuse_unless_safe(to, has_tls=self._tls is not None)
        link = Link(made=self._made, came=self._came, lost=self._lost)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                await loop.create_connection(lambda: link, to.host, to.port, ssl=self._tls)
        except _NOT_THERE:
            return
        self.at, self._link = at, link
        self.count += 1
        if self._is_held:
            link.hold()
        try:
            await link.wait_gone()
        finally:
            self.at, self._link = "", None
            link.abort()
            await link.wait_gone()

    def _made(self, link: Link) -> None:
        link.send(ask_frame(0, _TAG, self._ask))

    def _came(self, _: Link, data: bytes) -> None:
        self._heard(data)

    def _lost(self, _: Link, __: str) -> None:
        """`join` waits for it."""

    def confirm(self, said: asks.Confirm) -> bool:
        """Tell the source what has been processed; return whether that is on its way."""
        link = self._link
        if link is None or link.buffered > SAID_BYTES_MAX:
            return False
        link.send(ask_frame(said.stream, TO_FRAMES, said))
        return True

    def leave(self) -> None:
        """Close the link: the source is elsewhere."""
        if self._link is not None:
            self._link.abort()

    def hold(self) -> None:
        """Take nothing more from the source, which then skips this receiver, until `go_on`."""
        self._is_held = True
        if self._link is not None:
            self._link.hold()

    def go_on(self) -> None:
        """Take again what comes."""
        if self._is_held and self._link is not None:
            self._link.go_on()
        self._is_held = False
