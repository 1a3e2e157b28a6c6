"""Server: the sessions of one process, on threads for sync handlers, on an event loop for async.

A value until `run`. Stops gracefully: finishes what runs, gives back what it only claimed; what
still runs at the deadline is revoked, so that its effects never commit (spec S5).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.engine.async_connection import AsyncLink
from onceq.engine.connection import Link
from onceq.engine.driver import DatabaseError, this_process
from onceq.engine.gate import Gate
from onceq.engine.locate import locate
from onceq.engine.migrate import apply_with
from onceq.engine.session import execution_settings
from onceq.manager.program import declare
from onceq.model import names, ops
from onceq.server import handlers
from onceq.server.program import Counts, Served, ServerSession, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceq.engine.locate import Located
    from onceq.model.queue import Handled

log = logging.getLogger("onceq.server")

RECONNECT_FIRST_S = 0.05
RECONNECT_LONGEST_S = 5.0
CONCURRENCY_MAX = 1000
REMOTE = (errors.SchemaMissing, errors.SchemaTooNew, errors.PostgresTooOld, errors.PoolerDetected)
"""What no later attempt mends: it ends the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatistics:
    """What a server has done since it began to run. lives: sessions begun, after losses too."""

    done: int
    failed: int
    returned: int
    claims_lost: int
    lives: int


class Server:
    """Handlers and the queues that they serve: `Server([ORDERS.handled_by(book)])`.

    concurrency: sessions in this process, each with a connection of its own, 1 to 1,000.
    stop_timeout_s: how long a stop waits for handlers that run. Raises InvalidValue.
    """

    def __init__(
        self,
        handled: Sequence[Handled[Any, Any]],
        *,
        concurrency: int = 1,
        stop_timeout_s: float = 30.0,
    ) -> None:
        if not handled:
            raise errors.InvalidValue("a server needs at least one queue.handled_by(handler)")
        if len({one.queue.name for one in handled}) < len(handled):
            raise errors.InvalidValue("a queue is handled twice in one server")
        self.handled = tuple(handled)
        self.concurrency = names.check_range("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self.stop_timeout_s = stop_timeout_s
        self._stop = threading.Event()
        self._sessions: list[ServerSession] = []

    def stop(self) -> None:
        """Asks the server to stop; `run` returns when it has. Safe in a signal handler."""
        self._stop.set()

    def statistics(self) -> ServerStatistics:
        """Returns what has been done so far."""
        counts = [session.counts for session in self._sessions]
        fields = ("done", "failed", "returned", "claims_lost", "lives")
        return ServerStatistics(**{name: sum(getattr(c, name) for c in counts) for name in fields})

    def run(self, url: str | None = None, *, repository: str = "onceq") -> bool:
        """Serves until `stop`; declares its queues first. True: everything that ran, finished.

        Survives the loss of its connections and of the database; raises what no later attempt
        mends: SchemaMissing, SchemaTooNew, PostgresTooOld, PoolerDetected, SettingsDiffer.
        """
        located = locate(url)
        try:
            self._declare(located, repository)
            self._stop.clear()
            return self._run(located, repository)
        finally:
            located.close()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Stops on SIGTERM and SIGINT while the block runs; for the main thread only."""
        former = {
            number: signal.signal(number, lambda *_: self.stop())
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _declare(self, located: Located, repository: str) -> None:
        if located.embedded is not None:
            apply_with(located.conninfo, names.check_repository(repository))
        link = Link(located, repository)
        link.reconnect()
        try:
            for one in self.handled:
                link.run(declare(one.queue))
        finally:
            link.close()

    def _run(self, located: Located, repository: str) -> bool:
        process = uuid.uuid4()
        gate = Gate()
        groups = [
            (runs, [one for one in self.handled if handlers.is_async(one) is asynchronous])
            for runs, asynchronous in ((self._run_thread, False), (self._run_loop, True))
        ]
        pool = ThreadPoolExecutor(2 * self.concurrency, thread_name_prefix="onceq")
        futures = [
            pool.submit(runs, located, repository, gate, self._session(process, served), served)
            for runs, served in groups
            if served
            for _ in range(self.concurrency)
        ]
        ended = wait(futures, return_when=FIRST_EXCEPTION)
        while not self._stop.is_set() and not ended.done:
            ended = wait(futures, timeout=1.0, return_when=FIRST_EXCEPTION)
        self._stop.set()
        left = wait(futures, timeout=self.stop_timeout_s).not_done
        if left:
            self._abandon(located, repository)
        pool.shutdown(wait=False, cancel_futures=True)
        for future in ended.done:
            future.result()
        return not left

    def _session(self, process: uuid.UUID, handled: list[Handled[Any, Any]]) -> ServerSession:
        host, pid = this_process()
        session = ServerSession(
            process=process,
            host=host,
            pid=pid,
            served=tuple(Served(one.queue.name, one.isolation) for one in handled),
            counts=Counts(),
        )
        self._sessions.append(session)
        return session

    def _abandon(self, located: Located, repository: str) -> None:
        """Revokes what still runs at the deadline: uncharged, and its effects never commit."""
        link = Link(located, repository)
        link.reconnect()
        try:
            for session in self._sessions:
                if session.incarnation is not None:
                    log.warning("incarnation %s is abandoned at the deadline", session.incarnation)
                    link.perform(ops.CloseIncarnation(incarnation=session.incarnation))
        finally:
            link.close()

    def _run_thread(
        self,
        located: Located,
        repository: str,
        gate: Gate,
        session: ServerSession,
        handled: list[Handled[Any, Any]],
    ) -> None:
        calls = {one.queue.name: handlers.sync_call(one, DatabaseError) for one in handled}
        link = Link(located, repository, calls=calls, stop=self._stop, gate=gate)
        delay = RECONNECT_FIRST_S
        while not self._stop.is_set():
            try:
                link.reconnect()
                link.connection.execute(_limits(handled, link.connection.info.server_version))
                delay = RECONNECT_FIRST_S
                link.run(serve(session))
            except REMOTE:
                raise
            except (errors.OperatingError, DatabaseError) as error:
                log.warning("session lost, connecting again in %.2f s: %s", delay, error)
                self._stop.wait(delay)
                delay = min(2 * delay, RECONNECT_LONGEST_S)
            finally:
                link.close()

    def _run_loop(self, *arguments: Any) -> None:
        asyncio.run(self._run_async(*arguments))

    async def _run_async(
        self,
        located: Located,
        repository: str,
        gate: Gate,
        session: ServerSession,
        handled: list[Handled[Any, Any]],
    ) -> None:
        calls = {one.queue.name: handlers.async_call(one, DatabaseError) for one in handled}
        link = AsyncLink(located, repository, calls=calls, stop=self._stop, gate=gate)
        delay = RECONNECT_FIRST_S
        while not self._stop.is_set():
            try:
                await link.reconnect()
                limits = _limits(handled, link.connection.info.server_version)
                await link.connection.execute(limits)
                delay = RECONNECT_FIRST_S
                await link.run(serve(session))
            except REMOTE:
                raise
            except (errors.OperatingError, DatabaseError) as error:
                log.warning("session lost, connecting again in %.2f s: %s", delay, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, RECONNECT_LONGEST_S)
            finally:
                await link.close()


def _limits(handled: list[Handled[Any, Any]], server_version: int) -> bytes:
    longest = max(one.queue.settings.execution_limit_s for one in handled)
    return execution_settings(longest, server_version).encode()
