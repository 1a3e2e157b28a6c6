"""Stores that serve on this machine, in the loop of a test, and who talks to them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from onceq.streams.model import asks, encoding
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.net.address import Address
from onceq.streams.net.link import Link
from onceq.streams.net.wire import ask_frame
from onceq.streams.store.daemon import Daemon

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

    from onceq.streams.net.tls import Certificates
    from onceq.streams.store.store import Store

LOCAL = Address(host="127.0.0.1", port=0)
WITHIN_S = 60.0


class Server:
    """A daemon that runs as a task."""

    def __init__(
        self, store: Store, certificates: Certificates | None = None, at: Address = LOCAL
    ) -> None:
        self.daemon = Daemon(store, at, certificates=certificates)
        self.stop = asyncio.Event()
        self._ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self.running = asyncio.ensure_future(
            self.daemon.run(ready=self._ready.set_result, stop=self.stop)
        )

    async def address(self) -> str:
        async with asyncio.timeout(WITHIN_S):
            waited: set[asyncio.Future[Any]] = {self.running, self._ready}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self.running.done():
                self.running.result()
            return str(await self._ready)

    async def end(self) -> None:
        self.stop.set()
        await self.running


@contextlib.asynccontextmanager
async def serving(
    store: Store, certificates: Certificates | None = None, at: Address = LOCAL
) -> AsyncGenerator[tuple[Daemon, str]]:
    """A store that serves; its daemon and address."""
    server = Server(store, certificates, at)
    try:
        yield server.daemon, await server.address()
    finally:
        await server.end()


class Source:
    """A connection that sends frames and asks, and hears answers in the order of their coming."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[asks.Answer | int | None] = asyncio.Queue()
        self._tag = 0
        self.link = Link(made=lambda _: None, came=self._came, lost=self._lost)

    @classmethod
    async def to(cls, address: str, tls: ssl.SSLContext | None = None) -> Source:
        made = cls()
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: made.link, host, int(port), ssl=tls)
        return made

    def _came(self, _: Link, data: bytes) -> None:
        frame = decode(data)
        is_answer = frame.kind is FrameKind.ANSWER
        self._heard.put_nowait(encoding.answer_of(frame.body) if is_answer else frame.number)

    def _lost(self, _: Link, __: str) -> None:
        self._heard.put_nowait(None)

    async def heard(self) -> asks.Answer | int | None:
        """The next answer, or the number of a frame; None: the connection is closed."""
        async with asyncio.timeout(WITHIN_S):
            return await self._heard.get()

    async def ask(self, ask: asks.Ask) -> asks.Answer | int | None:
        self._tag += 1
        self.link.send(ask_frame(getattr(ask, "stream", 0), self._tag, ask))
        return await self.heard()

    async def until(self, wanted: asks.Answer) -> None:
        while (heard := await self.heard()) != wanted:
            assert heard is not None, "the connection is closed"


async def soon(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Return when something holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.01)
