"""Server: the sessions of one process, each on a thread; for async handlers with an event loop.

A value until `run`. It stops gracefully: it finishes what is running and gives back what it only
claimed; what is still running at the deadline is revoked, so its effects never commit (spec S5).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from onceq import telemetry
from onceq.engine.connect.brief import brief_link
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.perform.gate import Gate
from onceq.engine.perform.stop import Stop
from onceq.engine.schema.migrate import apply_with
from onceq.engine.sessions.identity import own_identity, this_process
from onceq.engine.wake.watch import Watch
from onceq.manager.program import declare
from onceq.model import names, ops
from onceq.model.arguments import check_handled
from onceq.model.queue import Handled
from onceq.server import signals
from onceq.server.lives import SUPERVISED_GRACE_S, Site, limit_s, live, live_async
from onceq.server.program import Served, ServerSession, Standing
from onceq.server.reporting import Handed, OnError, Reporter, checked

log = logging.getLogger(__name__)

CONCURRENCY_MAX = 1000
LOOK_S = 1.0
"""How often `run` has the reporter look around; it notices stops and ends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatistics:
    """What a server has done, in all its runs. lives: sessions begun, also after losses.

    rung, polled, called: idle sessions' waits that were ended by a ring, by themselves, and
    by a sibling.
    """

    done: int
    failed: int
    returned: int
    claims_lost: int
    lives: int
    rung: int
    polled: int
    called: int


def _served(one: Handled[Any, Any]) -> Served:
    return Served(
        one.queue.name, one.isolation, one.batch, one.effects, one.abort_limit, one.error_queue
    )


class Server:
    """Handlers and the queues that they serve: `Server([ORDERS.handled_by(book)])`.

    concurrency: sessions in this process, each with a connection of its own, 1 to 1,000; as many
    again if some handlers are sync and some async. stop_timeout_s: how long a stop waits for
    handlers that run. on_error: is called with an `onceq.Abort` for each execution that failed,
    after it is counted, on a thread of its own; of one whose process died, or that hung, in another
    process that serves. What it raises is logged.
    However slow it is, it holds up nobody: more than a hundred aborts that wait for it are dropped,
    and the log says how many. Raises InvalidValue.
    """

    def __init__(
        self,
        handled: Sequence[Handled[Any, Any]],
        *,
        concurrency: int = 1,
        stop_timeout_s: float = 30.0,
        on_error: OnError | None = None,
    ) -> None:
        self.handled = check_handled(handled)
        self.concurrency = names.check_range("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self.stop_timeout_s = names.check_seconds("stop_timeout_s", stop_timeout_s)
        self.on_error = checked(on_error)
        self._stop = Stop()
        self._watch = Watch(min(limit_s(one) for one in self.handled) / 2)
        self._sessions: list[ServerSession] = []
        self._process = uuid.uuid4()

    def stop(self) -> None:
        """Asks the server to stop; `run` returns once it has, or at once if it has not begun yet.

        Safe in a signal handler.
        """
        self._stop.set()
        self._watch.rouse(None)

    def statistics(self) -> ServerStatistics:
        """Returns what has been done so far."""
        counts = [session.counts for session in self._sessions]
        fields = ("done", "failed", "returned", "claims_lost", "lives")
        wakes = [session.wakes for session in self._sessions]
        return ServerStatistics(
            **{name: sum(getattr(c, name) for c in counts) for name in fields},
            rung=sum(one.rung for one in wakes),
            polled=sum(one.polled for one in wakes),
            called=sum(one.called for one in wakes),
        )

    def run(
        self,
        url: str | None = None,
        *,
        repository: str = "onceq",
        process: uuid.UUID | None = None,
        handed: Handed | None = None,
    ) -> bool:
        """Serves until `stop`; declares its queues first. Returns whether all that ran finished.

        process: an id that no other run has, for a supervisor, which revokes and charges by it; by
        default a new one. handed: what `on_error` is told beside, for a supervisor, which has none.
        Survives the loss of its connections and of the database, once it has begun (until then:
        CannotConnect); raises what no later attempt mends: SchemaMissing, SchemaMismatch,
        SchemaTooNew, PostgresTooOld, PoolerDetected, SettingsDiffer.
        """
        located = locate(url)
        try:
            self._declare(located, repository)
            self._process = process or uuid.uuid4()
            grace_s = 0 if process is None else SUPERVISED_GRACE_S
            site = Site(located, repository, Gate(), self._stop, self._watch, grace_s)
            finished = self._report(site, Reporter(self.on_error, handed))
            if finished:  # else an abandoned handler's thread must still see the stop
                self._stop.clear()
            return finished
        finally:
            located.close()

    def signals(self) -> AbstractContextManager[None]:
        """Stops on SIGTERM and SIGINT while the block runs; for the main thread only."""
        return signals.heeded(self.stop)

    def _declare(self, located: Located, repository: str) -> None:
        if located.embedded is not None:
            apply_with(located.conninfo, names.check_repository(repository))
        with brief_link(located, repository) as link:
            for one in self.handled:
                link.run(declare(one.queue))

    def _report(self, site: Site, reporter: Reporter) -> bool:
        """Runs, and reports its begin, what happens in it, and its end."""
        queues = tuple(one.queue.name for one in self.handled)
        kinds = len({one.is_async for one in self.handled})
        telemetry.tell(
            log,
            telemetry.ServerBegan(
                process=self._process,
                repository=site.repository,
                queues=queues,
                sessions=kinds * self.concurrency,
            ),
        )
        finished = False
        try:
            finished = self._run(site, reporter)
        finally:
            reporter.close()
            counts = {
                one: getattr(self.statistics(), one) for one in telemetry.ServerStopped.COUNTS
            }
            telemetry.tell(
                log, telemetry.ServerStopped(process=self._process, finished=finished, **counts)
            )
        return finished

    def _run(self, site: Site, reporter: Reporter) -> bool:
        futures = self._begin(site, reporter)
        for future in futures:
            future.add_done_callback(lambda _: self.stop())
        while not self._stop.wait(LOOK_S):
            reporter.look(self._sessions)
        ended = wait(futures, timeout=self.stop_timeout_s)
        if ended.not_done:
            self._abandon(site)
        for future in ended.done:
            future.result()
        return not ended.not_done

    def _begin(self, site: Site, reporter: Reporter) -> list[Future[None]]:
        """Begins all sessions, each on a thread: those with sync handlers, then the async ones."""
        pool = ThreadPoolExecutor(2 * self.concurrency, thread_name_prefix="onceq")
        futures: list[Future[None]] = []
        standing = Standing()
        for lives, asynchronous in ((live, False), (live_async, True)):
            handled = [one for one in self.handled if one.is_async is asynchronous]
            for _ in range(self.concurrency if handled else 0):
                session = self._session(self._process, handled)
                session.tell, session.standing = reporter.tell, standing
                futures.append(pool.submit(lives, site, session, handled))
        pool.shutdown(wait=False)
        return futures

    def _session(self, process: uuid.UUID, handled: list[Handled[Any, Any]]) -> ServerSession:
        host, pid = this_process()
        session = ServerSession(
            process=process,
            host=host,
            pid=pid,
            identity=own_identity(),
            watched=tuple(one.queue.name for one in self.handled),
            served=tuple(map(_served, handled)),
        )
        self._sessions.append(session)
        return session

    def _abandon(self, site: Site) -> None:
        """Revokes what is still running at the deadline, uncharged; its effects never commit."""
        with brief_link(site.located, site.repository) as link:
            for session in self._sessions:
                if session.incarnation is not None:
                    telemetry.tell(log, telemetry.SessionAbandoned(incarnation=session.incarnation))
                    link.perform(ops.CloseIncarnation(incarnation=session.incarnation))
