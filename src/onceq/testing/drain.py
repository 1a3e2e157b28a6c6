"""Serving until nothing is left to do: how a test runs the handlers that it tests.

Used by the pytest plugin. It is the server itself, in this process: the handlers run in its
sessions' threads, each in the transaction that also removes its request and keeps its reply.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import onceq
from onceq.engine.perform.driver import connect
from onceq.model.queue import Handled

if TYPE_CHECKING:
    import psycopg

LOOK_S = 0.002

# One statement, so that what a handler passes on to another of these queues is not missed.
DUE = """
select count(*), string_agg(format('%%s %%s %%s', rid, state, queue), ', ') from {0}.requests
where queue = any (%s) and state in ('queued', 'suspect', 'executing')
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One call of a handler: what it was given, and what it returned or raised.

    attempt: 1 for the first. outcome: of the request, when the drain was over: done, failed, ...;
    None while it waits to be tried again.
    """

    queue: str
    rid: str
    eid: UUID
    attempt: int
    request: Any
    reply: Any = None
    error: BaseException | None = None
    outcome: str | None = None


class NotDrained(AssertionError):
    """A drain was not done in time; the message names what was left."""


class Record:
    """The calls of handlers, in the order in which they ended."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self.calls: list[Executed] = []

    def of(self, handled: Handled[Any, Any]) -> Handled[Any, Any]:
        """Returns the same, with its handler's calls recorded here."""
        handler = handled.handler
        if handled.is_async:

            async def call(request: Any, context: Any) -> Any:
                with self._noted(request, context) as end:
                    end["reply"] = await handler(request, context)
                return end["reply"]

            return dataclasses.replace(handled, handler=call)

        def call_sync(request: Any, context: Any) -> Any:
            with self._noted(request, context) as end:
                end["reply"] = handler(request, context)
            return end["reply"]

        return dataclasses.replace(handled, handler=call_sync)

    @contextmanager
    def _noted(self, request: Any, context: Any) -> Generator[dict[str, Any]]:
        end: dict[str, Any] = {}
        try:
            yield end
        except BaseException as error:
            end["error"] = error
            raise
        finally:
            call = Executed(
                queue=context.queue,
                rid=context.rid,
                eid=context.eid,
                attempt=context.attempt,
                request=request,
                **end,
            )
            with self._changing:
                self.calls.append(call)


class Drain:
    """Serves a repository until its queues are empty, each time that it is called."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self._conninfo = conninfo
        self._repository = repository

    def __call__(
        self, *handled: Handled[Any, Any], timeout_s: float = 30.0, concurrency: int = 1
    ) -> list[Executed]:
        """Serves these queues until nothing in them is due; returns what ran, in order.

        What waits for a later time stays: move the clock, and drain again. Raises NotDrained if
        something is still due after timeout_s, and any error that ends a server.
        """
        record = Record()
        server = onceq.Server([record.of(one) for one in handled], concurrency=concurrency)
        queues = [one.queue.name for one in handled]
        connection = connect(self._conninfo)
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="drain") as pool:
                running = pool.submit(server.run, self._conninfo, repository=self._repository)
                try:
                    left = self._wait(connection, queues, running, timeout_s)
                finally:
                    server.stop()
                running.result()
        finally:
            connection.close()
        if left is not None:
            raise NotDrained(f"after {timeout_s} s there is still: {left}")
        return self._with_outcomes(record.calls)

    def _wait(
        self,
        connection: psycopg.Connection[Any],
        queues: list[str],
        running: Future[bool],
        timeout_s: float,
    ) -> str | None:
        """Waits until nothing is due, or the server has ended; returns what is left in the end."""
        query = DUE.format(self._repository).encode()
        end = time.monotonic() + timeout_s
        while not running.done():
            ((count, left),) = connection.execute(query, (queues,))
            if count == 0:
                return None
            if time.monotonic() > end:
                return str(left)
            time.sleep(LOOK_S)
        return None

    def _with_outcomes(self, calls: list[Executed]) -> list[Executed]:
        with onceq.open(self._conninfo, repository=self._repository) as qm:
            return [
                dataclasses.replace(
                    call,
                    outcome=next((one.outcome for one in qm.lookup(eid=call.eid)), None),
                )
                for call in calls
            ]
