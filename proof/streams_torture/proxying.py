"""Proxies before stores, in one thread: each passes on, or is deaf in one direction or in both.

What comes meanwhile waits, as on a link whose other end does not answer. `cut` ends connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
from typing import Final

PIECE_BYTES: Final = 256 << 10


class Way(enum.StrEnum):
    """What a proxy passes on."""

    BOTH = "both"
    TO_STORE = "to the store"
    FROM_STORE = "from the store"
    NONE = "none"


PASSES: Final = {
    Way.BOTH: (True, True),
    Way.TO_STORE: (True, False),
    Way.FROM_STORE: (False, True),
    Way.NONE: (False, False),
}


class Proxy:
    """A proxy before one store. to: the port of the store; at: its own port, on loopback."""

    def __init__(self, to: int, at: int) -> None:
        self.to = to
        self.at = at
        self.passes = (asyncio.Event(), asyncio.Event())
        self.connections: set[asyncio.Task[None] | None] = set()

    def turn(self, way: Way) -> None:
        """Pass on in these directions, and no others."""
        for event, passes in zip(self.passes, PASSES[way], strict=True):
            (event.set if passes else event.clear)()

    def cut(self) -> None:
        """End all connections; what waits on them is lost."""
        for one in list(self.connections):
            if one is not None:
                one.cancel()

    async def serve(self) -> None:
        """Pass on until this is cancelled."""
        self.turn(Way.BOTH)
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.at)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        connection = asyncio.current_task()
        self.connections.add(connection)
        pumps = [
            asyncio.ensure_future(_pump(reader, back, self.passes[0])),
            asyncio.ensure_future(_pump(there, writer, self.passes[1])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # it is cut
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.connections.discard(connection)
            for one in (writer, back):
                one.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event
) -> None:
    while data := await reader.read(PIECE_BYTES):
        await passes.wait()
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one end has closed the connection")


class Proxies:
    """Proxies in a thread of their own."""

    def __init__(self, ports: list[tuple[int, int]]) -> None:
        self._loop = asyncio.new_event_loop()
        self.proxies = [Proxy(to, at) for to, at in ports]
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = [self._loop.create_task(one.serve()) for one in self.proxies]
        self._loop.run_forever()
        for one in serving:
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(asyncio.gather(*serving, return_exceptions=True))
        self._loop.close()

    def turn(self, number: int, way: Way) -> None:
        """Have a proxy pass on in these directions, and no others."""
        self._loop.call_soon_threadsafe(self.proxies[number].turn, way)

    def cut(self, number: int) -> None:
        """End all connections of a proxy."""
        self._loop.call_soon_threadsafe(self.proxies[number].cut)

    def close(self) -> None:
        """End all of them."""
        for proxy in self.proxies:
            self._loop.call_soon_threadsafe(proxy.cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
