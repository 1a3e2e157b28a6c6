"""Who asks stores, over one link to each, and performs the Ops of streams that go to others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

import msgspec

from onceq.errors import InvalidValue
from onceq.streams.errors import FrameRefused, WhyRefused
from onceq.streams.model import asks, encoding, frames, ops
from onceq.streams.model.frames import Frame, FrameKind
from onceq.streams.net.address import address, refuse_unless_safe
from onceq.streams.net.link import Link, wait_closed
from onceq.streams.net.wire import TO_FRAMES, ask_frame

Given = tuple[asks.Answer, tuple[bytes, ...]]
"""An answer, and the frames that came behind it."""
GIVEN_BYTES_MAX: Final = 2 * frames.FRAME_BYTES_MAX
HELD_BYTES_MAX: Final = 16 << 20
"""What is held for a store that does not take it: twice what a source has on its way to one."""
_NOT_THERE: Final = (OSError, TimeoutError, ssl.SSLError)
BINDING: Final = (asks.Fence, asks.Admit)
"""Asks whose effect must not come after whoever asked has gone on: their link is closed then."""


def _unheeded(*_: object) -> None:
    """Nobody needs to know."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of a store's link, and of what comes on it unasked: the answers to frames.

    linked: there is a link; unlinked: there is none any more, and why. Both in turn.
    """

    linked: Callable[[str], None] = _unheeded
    unlinked: Callable[[str, str], None] = _unheeded
    answered: Callable[[str, asks.Answer], None] = _unheeded


class Peer:
    """One store, and what it was asked. The link is made when it is first needed, and again.

    Raises InvalidValue for what is no address, or one beyond this machine without TLS.
    """

    def __init__(self, store: str, tls: ssl.SSLContext | None, watch: Watch) -> None:
        self.store = store
        self._watch = watch
        self._address = address(store)
        refuse_unless_safe(self._address, has_tls=tls is not None)
        self._tls = tls
        self._tag = 0
        self._link: Link | None = None
        self._making = asyncio.Lock()
        self._asked: dict[int, asyncio.Future[Given | None]] = {}
        self._begun: tuple[int, asks.Range] | None = None
        self._frames: list[bytes] = []
        self._size = 0

    async def ask(self, ask: asks.Ask, stream: int) -> Given | None:
        """Ask, and wait for the answer; None: the link broke, or cannot be made.

        Cancelled while a promise or an admission is on its way, it closes the link.
        """
        link = await self.linked()
        if link is None:
            return None
        self._tag += 1
        tag = self._tag
        answer: asyncio.Future[Given | None] = asyncio.get_running_loop().create_future()
        self._asked[tag] = answer
        try:
            link.send(ask_frame(stream, tag, ask))
            return await answer
        except asyncio.CancelledError:
            if isinstance(ask, BINDING) and self._link is link:
                link.abort()
            raise
        finally:
            self._asked.pop(tag, None)

    async def linked(self) -> Link | None:
        """Return the link, which is made if there is none; None: it cannot be."""
        async with self._making:
            if not self.is_linked:
                self._leave("it was closed")
                await self._make()
            return self._link

    async def _make(self) -> None:
        link = Link(made=_unheeded, came=self._came, lost=self._lost)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: link, self._address.host, self._address.port, ssl=self._tls
            )
        except _NOT_THERE:
            return
        if link.is_open:
            self._link = link
            self._watch.linked(self.store)

    @property
    def is_linked(self) -> bool:
        """Whether there is a link."""
        return self._link is not None and self._link.is_open

    def send(self, data: bytes) -> None:
        """Send frames on the link; without one: nothing. One that takes nothing is closed."""
        if self._link is None:
            return
        if self._link.buffered > HELD_BYTES_MAX:
            self._link.abort()
        else:
            self._link.send(data)

    def _came(self, link: Link, data: bytes) -> None:
        if link is not self._link:
            raise FrameRefused("something came before anything was asked")
        frame = frames.decode(data)
        if self._begun is not None:
            self._follow(frame, data)
        elif frame.kind is FrameKind.ANSWER:
            answer = encoding.answer_of(frame.body)
            if isinstance(answer, asks.Range) and answer.frames:
                self._size = 0
                self._begun, self._frames = (frame.number, answer), []
            else:
                self._tell(frame.number, (answer, ()))
        else:
            raise FrameRefused("a frame came that belongs to no answer")

    def _follow(self, frame: Frame, data: bytes) -> None:
        """Take a frame that follows an answer."""
        if self._begun is None or frame.kind not in {FrameKind.MESSAGES, FrameKind.VOID}:
            raise FrameRefused("an answer has fewer frames than it says")
        self._frames.append(data)
        self._size += len(data)
        if self._size > GIVEN_BYTES_MAX:
            raise FrameRefused("an answer has more bytes than a store gives", WhyRefused.OVERSIZE)
        tag, answer = self._begun
        if len(self._frames) == answer.frames:
            given, self._frames, self._begun = tuple(self._frames), [], None
            self._tell(tag, (answer, given))

    def _tell(self, tag: int, given: Given) -> None:
        if tag == TO_FRAMES:
            self._watch.answered(self.store, given[0])
            return
        waiting = self._asked.get(tag)
        if waiting is not None and not waiting.done():
            waiting.set_result(given)

    def _lost(self, link: Link, why: str) -> None:
        if self._link is link:
            self._leave(why)

    def _leave(self, why: str) -> None:
        """Note that there is no link any more: what was asked on it has no answer."""
        if self._link is None:
            return
        self._link, self._begun, self._frames = None, None, []
        for one in self._asked.values():
            if not one.done():
                one.set_result(None)
        self._watch.unlinked(self.store, why)

    def close(self) -> Link | None:
        """Close the link; return it, if there is one."""
        if self._link is not None:
            self._link.close()
        return self._link


class Asker:
    """Asks stores by their addresses. tls: for links beyond this machine.

    watch: who is told of links, and of answers to what is sent beside asks.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, watch: Watch | None = None) -> None:
        self._tls = tls
        self._watch = watch or Watch()
        self._peers: dict[str, Peer] = {}

    async def ask(self, store: str, ask: asks.Ask, within_s: float) -> Given | None:
        """Ask a store; None: it did not answer in time, or cannot."""
        try:
            peer = self._peer(store)
            async with asyncio.timeout(within_s):
                return await peer.ask(ask, getattr(ask, "stream", 0))
        except (TimeoutError, InvalidValue):
            return None

    def _peer(self, store: str) -> Peer:
        if store not in self._peers:
            self._peers[store] = Peer(store, self._tls, self._watch)
        return self._peers[store]

    async def connect(self, store: str, within_s: float) -> None:
        """Make a link to a store, unless there is one, or none can be made in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._peer(store).linked()
        except (TimeoutError, InvalidValue):
            return

    def is_linked(self, store: str) -> bool:
        """Whether there is a link to a store."""
        return store in self._peers and self._peers[store].is_linked

    def send(self, store: str, data: bytes) -> None:
        """Send frames to a store, on the link that there is; without one: nothing."""
        if store in self._peers:
            self._peers[store].send(data)

    def keep(self, stores: Container[str]) -> None:
        """Close the links to all stores but some."""
        for one in self._peers.values():
            if one.store not in stores:
                one.close()

    async def perform(self, op: Any) -> Any:
        """Perform an Op that goes to other stores, or waits."""
        match op:
            case ops.AskStore(store=store, ask=ask, within_s=within_s):
                given = await self.ask(store, ask, within_s)
                return None if given is None else given[0]
            case ops.FetchRange(store=store, ask=ask, within_s=within_s):
                given = await self.ask(store, ask, within_s)
                return given[1] if given and isinstance(given[0], asks.Range) else None
            case ops.AskStores():
                return await self._ask_all(op)
            case ops.WaitUntil(within_s=within_s):
                await asyncio.sleep(within_s)
                return None
            case _:
                raise TypeError(f"{op!r} is no Op that goes to stores")

    async def _ask_all(self, op: ops.AskStores) -> Mapping[str, asks.Answer]:
        """Ask several at once; return what they answered until that was enough, or in time."""
        running = {
            asyncio.ensure_future(self.ask(store, ask, op.within_s)): store
            for store, ask in op.asked.items()
        }
        answers: dict[str, asks.Answer] = {}
        left = set(running)
        try:
            while left and not op.enough(answers):
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                given = {running[one]: one.result() for one in done}
                answers |= {store: one[0] for store, one in given.items() if one is not None}
        finally:
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)  # their links are closed by then
        return answers

    def close(self) -> None:
        """Close all links."""
        for one in self._peers.values():
            one.close()

    async def wait_closed(self, within_s: float) -> None:
        """Close all links when all is sent, at once if that is not in time; return when done."""
        links = [one.close() for one in self._peers.values()]
        await wait_closed([one for one in links if one is not None], within_s)
