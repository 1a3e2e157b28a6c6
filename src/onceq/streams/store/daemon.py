"""A store that serves over asyncio: connections, the thread that commits, and a clock for its core.

Everything that is decided is decided in `serving`, in the thread of the loop. An error of the disk
ends `run`, and must end the process: nobody knows any more what the disk has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from onceq.streams.net.address import Address, refuse_unless_safe
from onceq.streams.net.asker import Asker
from onceq.streams.net.link import Link
from onceq.streams.net.tls import Certificates
from onceq.streams.store import acts
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.committer import Committer
from onceq.streams.store.serving import Serving
from onceq.streams.store.statistics import DiskStatistics, StoreStatistics, of_streams
from onceq.streams.store.store import Store

TICK_S: Final = 0.1
LINKS_MAX: Final = 256
"""Connections at a time; each may hold a frame that is not complete, and what it does not read."""


class Daemon:
    """A store, listening. own: its address as the lists of stores have it; None: where it listens.

    failed: the error of the disk for which it ended; None: of none.

    Raises InvalidValue for an address beyond this machine without certificates.
    """

    def __init__(
        self,
        store: Store,
        listen: Address,
        *,
        own: str | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        refuse_unless_safe(listen, has_tls=certificates is not None)
        self.listen = listen
        self.failed: OSError | None = None
        self._own = own
        self.serving = Serving(store, own or str(listen))
        self.turned_away = 0
        self._tls = None if certificates is None else certificates.listening()
        self._asker = Asker(None if certificates is None else certificates.connecting())
        self._links: dict[int, Link] = {}
        self._numbers: dict[Link, int] = {}
        self._last = 0
        self._is_holding = False
        self._performing: dict[int, asyncio.Task[None]] = {}
        self._committer: Committer | None = None
        self._failed: asyncio.Future[None] | None = None

    async def run(self, *, ready: Callable[[Address], None], stop: asyncio.Event) -> None:
        """Serve until told to stop; then commit what is left.

        ready: called with the address, when others can connect. Raises OSError if the disk fails,
        or nobody can listen there, and whatever goes wrong in the thread that commits.
        """
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        self._begin_to_commit(loop)
        try:
            server = await self._listen(loop)
            try:
                bound = self._bound(server)
                if self._own is None:
                    self.serving.programs.call(str(bound))
                ready(bound)
                await self._until(stop)
            finally:
                server.close()
        finally:
            await self._end()

    def statistics(self) -> StoreStatistics:
        """Return how the store fares now. Only in the thread of its loop."""
        return StoreStatistics(
            address=self.serving.programs.own,
            keeps=self.serving.store.keeps,
            links=self.serving.links,
            refused={why.value: count for why, count in self.serving.refused.items()},
            turned_away=self.turned_away,
            disk=self._disk(),
            streams=of_streams(self.serving.store),
        )

    def _disk(self) -> DiskStatistics | None:
        store, committer = self.serving.store, self._committer
        scrubbing = self.serving.programs.scrubbing
        if not isinstance(store, DiskStore) or committer is None or scrubbing is None:
            return None
        return DiskStatistics(
            size_bytes=store.size_bytes,
            free_bytes=store.files.free_bytes(),
            segments=len(store.files.numbers()),
            is_full=store.log.is_full,
            unsynced_bytes=store.end - store.synced,
            commits=committer.latencies.count,
            commits_s=committer.latencies.sum_s,
            commit_p50_s=committer.latencies.quantile_s(0.5),
            commit_p99_s=committer.latencies.quantile_s(0.99),
            forgot=store.forgot,
            rounds=scrubbing.rounds,
        )

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        return await loop.create_server(
            lambda: Link(made=self._made, came=self._came, lost=self._lost),
            self.listen.host,
            self.listen.port,
            ssl=self._tls,
        )

    def _bound(self, server: asyncio.Server) -> Address:
        port: int = server.sockets[0].getsockname()[1]
        return Address(host=self.listen.host, port=port)

    def _begin_to_commit(self, loop: asyncio.AbstractEventLoop) -> None:
        store = self.serving.store
        if isinstance(store, DiskStore):
            self._committer = Committer(
                store.log,
                told=lambda at: _call(loop, lambda: self._step(acts.Synced(position=at))),
                failed=lambda error: _call(loop, lambda: self._fail(error)),
            )
            self._committer.start()

    async def _until(self, stop: asyncio.Event) -> None:
        """Tick until told to stop. Raises the error of the disk."""
        if self._failed is None:
            raise TypeError("the store does not run")
        stopping = asyncio.ensure_future(stop.wait())
        waited: set[asyncio.Future[Any]] = {stopping, self._failed}
        try:
            while not stopping.done():
                self._step(acts.Ticked())
                await asyncio.wait(waited, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
                if self._failed.done():
                    self._failed.result()
        finally:
            stopping.cancel()

    async def _end(self) -> None:
        """Commit what is left, and what is stable; answer for it, and close all links."""
        for one in list(self._performing.values()):
            one.cancel()
        store = self.serving.store
        if isinstance(store, DiskStore):
            store.mark_stable()
        if self._committer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._committer.stop)
            await asyncio.sleep(0)  # what it told is taken
        for link in list(self._links.values()):
            link.close()
        self._asker.close()

    # what happens

    def _made(self, link: Link) -> None:
        if len(self._links) >= LINKS_MAX:
            self.turned_away += 1
            link.close()
            return
        self._last += 1
        self._links[self._last], self._numbers[link] = link, self._last
        self._step(acts.Opened(link=self._last))

    def _came(self, link: Link, data: bytes) -> None:
        number = self._numbers.get(link)
        if number is not None:
            self._step(acts.Came(link=number, data=data))

    def _lost(self, link: Link, _: str) -> None:
        if link.refused is not None:
            self.serving.count(link.refused)
        number = self._numbers.pop(link, None)
        if number is not None:
            del self._links[number]
            self._step(acts.Gone(link=number))

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.failed = self.failed or error
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    # what is to be done

    def _step(self, given: acts.Given) -> None:
        try:
            for act in self.serving.step(given):
                self._do(act)
        except OSError as error:
            self._fail(error)
        if self.serving.is_pressed is not self._is_holding:
            self._is_holding = self.serving.is_pressed
            for link in list(self._links.values()):
                (link.hold if self._is_holding else link.go_on)()

    def _do(self, act: acts.Act) -> None:
        match act:
            case acts.Send() | acts.Refuse():
                self._do_on_link(act)
            case acts.Commit():
                if self._committer is not None:
                    self._committer.wake()
            case acts.Ask(program=program, op=op):
                self._performing[program] = asyncio.ensure_future(self._perform(program, op))
            case acts.Drop(program=program):
                if program in self._performing:
                    self._performing.pop(program).cancel()

    def _do_on_link(self, act: acts.Send | acts.Refuse) -> None:
        link = self._links.get(act.link)
        if link is None:
            return
        if isinstance(act, acts.Send):
            link.send(act.data)
        else:
            link.abort()

    async def _perform(self, program: int, op: Any) -> None:
        answer = await self._asker.perform(op)
        self._performing.pop(program, None)
        self._step(acts.Answered(program=program, answer=answer))


def _call(loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
    """Have something done in the thread of a loop; one that has ended needs it no more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(done)
