"""Where receivers connect to a source over asyncio: they ask what they must know, then hear all.

One that does not take what it is sent is skipped, so that it slows nobody and what is held for it
is bounded: when it takes it again it is told how far the stream is, and gets what it missed from
stores. What it says that it has processed is given on. Source: streams.md 7; spec M17, M18.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, encoding, frames
from onceq.streams.model.frames import FrameKind
from onceq.streams.net.address import Address, refuse_unless_safe
from onceq.streams.net.link import Link, wait_closed
from onceq.streams.net.tls import Certificates
from onceq.streams.net.wire import TO_FRAMES, answer_frame

RECEIVERS_MAX: Final = 256
BUFFERED_BYTES_MAX: Final = 4 << 20
"""What is held for a receiver that does not take it; with more, it is skipped."""
RESUMED_BYTES_MAX: Final = BUFFERED_BYTES_MAX // 4
"""One that was skipped is sent again what comes, when no more is held for it."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told what receivers say. learn: answers one that asks; it may raise FrameRefused.

    kept: returns the frames that one is sent at once that has joined. confirmed: called with what
    one has processed; left: when its link is gone, and why. Each link has a number.
    """

    learn: Callable[[asks.Learn], asks.Answer]
    kept: Callable[[], list[bytes]]
    confirmed: Callable[[int, asks.Confirm], None]
    left: Callable[[int, str], None]


class Joined:
    """A receiver's link. number: of the link. ask: by which it joined; None: it has not yet."""

    __slots__ = ("ask", "is_skipped", "link", "number")

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.number = number
        self.ask: asks.Learn | None = None
        self.is_skipped = False


class Listening:
    """The receivers that are connected. heard: who is told what they say.

    skipped: how often one was skipped since it did not take what it was sent; turned_away: how many
    were, since there were too many.
    """

    def __init__(self, heard: Heard, certificates: Certificates | None = None) -> None:
        self.skipped = self.turned_away = 0
        self._heard = heard
        self._tls = None if certificates is None else certificates.listening()
        self._server: asyncio.Server | None = None
        self._links: dict[Link, Joined] = {}
        self._count = itertools.count(1)

    async def listen(self, at: Address) -> Address:
        """Begin to listen; return the address, whose port may have been any.

        Raises InvalidValue for an address beyond this machine without certificates, OSError if
        nobody can listen there.
        """
        refuse_unless_safe(at, has_tls=self._tls is not None)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Link(made=self._made, came=self._came, lost=self._lost, reads_on=True),
            at.host,
            at.port,
            ssl=self._tls,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return Address(host=at.host, port=port)

    def publish(self, data: bytes) -> None:
        """Send frames to all that have asked what they must know, and take what they are sent."""
        for link, one in self._links.items():
            if one.ask is None or self._is_skipped(one):
                continue
            if link.buffered > BUFFERED_BYTES_MAX:
                self.skipped += 1
                one.is_skipped = True
            else:
                link.send(data)

    def look(self) -> None:
        """Go on with those that were skipped, and take again what they are sent."""
        for one in self._links.values():
            self._is_skipped(one)

    def _is_skipped(self, one: Joined) -> bool:
        """Whether a receiver gets nothing now; one that gets it again is told how far all is."""
        if one.is_skipped and one.ask is not None and one.link.buffered <= RESUMED_BYTES_MAX:
            one.is_skipped = False
            self._tell(one.link, 0, TO_FRAMES, one.ask)
        return one.is_skipped

    def _tell(self, link: Link, stream: int, tag: int, ask: asks.Learn) -> None:
        """Tell a receiver how far the stream is, and send what it can have from nobody else."""
        link.send(answer_frame(stream, tag, self._heard.learn(ask)))
        for data in self._heard.kept():
            link.send(data)

    def _made(self, link: Link) -> None:
        self._links[link] = Joined(link, next(self._count))
        if len(self._links) > RECEIVERS_MAX:
            self.turned_away += 1
            link.close()

    def _came(self, link: Link, data: bytes) -> None:
        frame, one = frames.decode(data), self._links[link]
        if frame.kind is not FrameKind.ASK:
            raise FrameRefused("a receiver sent something that is no ask")
        said = encoding.said_of(frame.body)
        if isinstance(said, asks.Confirm):
            self._heard.confirmed(one.number, said)
        elif link.buffered <= BUFFERED_BYTES_MAX:
            self._tell(link, frame.stream, frame.number, said)
            one.ask = said

    def _lost(self, link: Link, why: str) -> None:
        self._heard.left(self._links.pop(link).number, why)

    async def close(self, within_s: float) -> None:
        """Listen no more; close all links when all is sent, at once if that is not in time."""
        if self._server is not None:
            self._server.close()
        await wait_closed(self._links, within_s)
