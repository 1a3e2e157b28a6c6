"""Running a store in this process: from opening its directory until it is safe to exit.

`onceq store run` does it, the child of `StoreProcess` too, and an application may, once: it gives
its main thread away. A failed sync ends it with StoreFailed, and must end the process: what the
disk has of what was not acknowledged nobody knows. Source: UM, "Callable Store"; spec M36, M37.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from onceq import telemetry
from onceq.errors import InvalidValue, OnceqError
from onceq.model.names import shown
from onceq.streams import logged
from onceq.streams.errors import StoreFailed, StoreRefused
from onceq.streams.net.address import Address, address, refuse_unless_safe
from onceq.streams.net.alone import PROCESS
from onceq.streams.net.tls import Certificates
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.directory import identified, initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.exposing import exposed
from onceq.streams.store.limits import Limits
from onceq.streams.store.log.entries import SEGMENT_BYTES
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.noting_store import opened
from onceq.streams.store.reporting import Reporting
from onceq.streams.store.statistics import StoreStatistics, of_streams
from onceq.streams.store.store import Store

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""So often a store looks at its streams for what to log."""


class StoreKind(enum.StrEnum):
    """What a store keeps, and where: messages on a disk or in memory; or none (no-cache)."""

    DISK = "disk"
    MEMORY = "memory"
    NO_CACHE = "no-cache"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is run. listen, metrics: host:port, port 0 for any that is free.

    directory: of a store on a disk; a memory store has none. kind: None: what the directory says,
    or with init: disk. init: begin a new store there, which must be empty. own: the address that
    lists of stores have for it; None: where it listens. may_keep: of each stream.
    """

    listen: str
    directory: Path | None = None
    kind: StoreKind | None = None
    init: bool = False
    own: str | None = None
    may_keep: Limits = Limits()
    certificates: Certificates | None = None
    metrics: str | None = None

    def checked(self) -> tuple[Address, Address | None]:
        """Return where it listens. Raises InvalidValue for what cannot be."""
        for name, kind in get_type_hints(StoreSettings).items():
            if not isinstance(value := getattr(self, name), kind):
                said = kind.__name__ if isinstance(kind, type) else kind
                raise InvalidValue(f"{name} of a store is {shown(value)}: give {said}")
        at = tuple(address(text) for text in (self.listen, self.metrics) if text is not None)
        for one in at:
            refuse_unless_safe(one, has_tls=self.certificates is not None)
        if self.own is not None:
            address(self.own)
        is_memory = self.kind is StoreKind.MEMORY
        if is_memory is (self.directory is not None) or (is_memory and self.init):
            raise InvalidValue(
                "a memory store has neither directory nor init, every other store a directory"
            )
        return at[0], at[1] if len(at) > 1 else None


class RunningStore:
    """A store that runs. address: where it listens; metrics: where they are; None: nowhere.

    forgot: it was damaged where nobody can prove what it was: it knows nothing.
    """

    def __init__(
        self, daemon: Daemon, at: Address, metrics: Address | None, stop: Callable[[], None]
    ) -> None:
        self.address = str(at)
        self.metrics = None if metrics is None else str(metrics)
        store = daemon.serving.store
        self.forgot = isinstance(store, DiskStore) and store.forgot
        self._daemon = daemon
        self._stop = stop

    def stop(self) -> None:
        """Have it commit what it took, and end. Any thread may call it, and a signal's handler."""
        self._stop()

    def statistics(self) -> StoreStatistics:
        """Return how it fares now. Only in the thread that runs it."""
        return self._daemon.statistics()


def opened_as(settings: StoreSettings) -> Store:
    """Open a store, after beginning it if that is wanted.

    Raises StoreRefused for a directory that is another's, in use, of another kind, or not empty
    with init; StoreFailed if the disk fails, or cannot be read.
    """
    directory, kind = settings.directory, settings.kind
    if directory is None:
        return MemoryStore(may_keep=settings.may_keep)
    try:
        if settings.init:
            keeps = kind is not StoreKind.NO_CACHE
            initialize(directory, os.urandom, segment_bytes=SEGMENT_BYTES, keeps=keeps)
        keeps = identified(directory).keeps
        if kind is not None and keeps is (kind is StoreKind.NO_CACHE):
            found = StoreKind.DISK if keeps else StoreKind.NO_CACHE
            raise StoreRefused(
                f"{directory} is a {found} store's, not a {kind} one's: a store stays of its kind"
            )
        return opened(directory, os.urandom, settings.may_keep)
    except OSError as error:
        raise StoreFailed(f"{directory} cannot be opened: {error}; see to the disk") from error


def run_store(
    settings: StoreSettings, *, ready: Callable[[RunningStore], None] | None = None
) -> None:
    """Run a store in this process until it is told to stop; return when it is safe to exit.

    ready: called when others can connect; it gets what stops the store. SIGTERM and SIGINT stop it
    too, if this is the main thread. Raises IllegalState if this process has a context, or ran a
    store before; InvalidValue, StoreRefused, and StoreFailed: then the process must end.
    """
    settings.checked()
    PROCESS.take()
    try:
        store = opened_as(settings)
    except OnceqError:
        PROCESS.give_back()
        raise
    try:
        asyncio.run(serve(store, settings, ready or _untold))
    finally:
        if isinstance(store, DiskStore):
            store.close()


def _untold(_: RunningStore) -> None:
    """Tell nobody."""


async def serve(
    store: Store, settings: StoreSettings, ready: Callable[[RunningStore], None]
) -> None:
    """Serve with a store that is open, in the loop of this thread, until it is told to stop."""
    listen, metrics = settings.checked()
    certificates = settings.certificates
    daemon = Daemon(store, listen, own=settings.own, certificates=certificates)
    tls = None if certificates is None else certificates.listening()
    async with contextlib.AsyncExitStack() as stack:
        exposing: Address | None = None
        if metrics is not None:
            with _refused_if_taken(metrics):
                exposing = await stack.enter_async_context(exposed(metrics, daemon.statistics, tls))
        await stack.enter_async_context(_reported(store))
        await _served(daemon, settings, exposing, ready)


async def _served(
    daemon: Daemon,
    settings: StoreSettings,
    metrics: Address | None,
    ready: Callable[[RunningStore], None],
) -> None:
    """Serve, and tell the log when it begins, and how it ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    at = settings.own or settings.listen
    began = False

    def told(bound: Address) -> None:
        nonlocal at, began
        at, began = settings.own or str(bound), True
        running = RunningStore(daemon, bound, metrics, lambda: _call(loop, stop.set))
        directory = None if settings.directory is None else str(settings.directory)
        telemetry.tell(
            log,
            logged.StoreBegan(
                address=at, directory=directory, forgot=running.forgot, metrics=running.metrics
            ),
        )
        ready(running)

    try:
        await daemon.run(ready=told, stop=stop)
    except OSError as error:
        if daemon.failed is not None:
            telemetry.tell(log, logged.StoreFailed(address=at, error=str(error)))
            raise StoreFailed(
                f"the disk of {settings.directory} failed: {error}. What was acknowledged is there;"
                " of the rest nobody knows. See to the disk, then start the store again: it finds"
                " out"
            ) from error
        if began:
            raise
        raise _taken(settings.listen, error) from error
    telemetry.tell(log, logged.StoreStopped(address=at))


def _call(loop: asyncio.AbstractEventLoop, done: Callable[[], Any]) -> None:
    """Have something done in the thread of a loop; one that has ended needs it no more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(done)


@contextlib.contextmanager
def _refused_if_taken(at: Address) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _taken(str(at), error) from error


def _taken(at: str, error: OSError) -> StoreRefused:
    return StoreRefused(f"the store cannot listen at {at}: {error}; give another address")


@contextlib.asynccontextmanager
async def _reported(store: Store) -> AsyncGenerator[None]:
    """Look at a store from time to time while the block runs, for the log."""
    on_disk = store if isinstance(store, DiskStore) else None
    reporting = Reporting("" if on_disk is None else str(on_disk.files.directory))

    def look() -> None:
        is_disk_full = on_disk is not None and on_disk.log.is_full
        reporting.look(of_streams(store), is_disk_full=is_disk_full)

    async def look_again() -> None:
        while True:  # until it is cancelled
            look()
            await asyncio.sleep(LOOK_S)

    looking = asyncio.ensure_future(look_again())
    try:
        yield
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        look()
