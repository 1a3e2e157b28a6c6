"""What `onceq metrics` does beside `--once`: it answers over HTTP, with a look for each scrape.

A repository that does not answer is no reason to end: it is said, and asked again at the next
scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import onceq
from onceq import telemetry
from onceq.cli.exits import OK
from onceq.cli.output import hint
from onceq.errors import InvalidValue, OnceqError, OperatingError
from onceq.manager.metrics import AWAY
from onceq.model.metrics import CONTENT_TYPE
from onceq.streams.net.address import Address, address, refuse_unless_safe
from onceq.streams.net.exposing import REQUEST_S, Answer, exposed

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.cli.command import Invocation
    from onceq.cli.serving import Log
    from onceq.streams.net.tls import Certificates

log = logging.getLogger(__name__)

ANSWER_S: Final = REQUEST_S - 1
"""So long a scrape waits for a look; the look goes on, and the next scrape has it."""


class Looks:
    """Looks at a repository, one at a time: scrapes that come meanwhile have the same one."""

    def __init__(self, **given: Any) -> None:
        self._given = given
        self._qm: onceq.AsyncQueueManager | None = None
        self._last: onceq.Metrics | None = None
        self._looking: asyncio.Task[str] | None = None
        self._missed_at: float | None = None

    async def begin(self) -> None:
        """Looks once, so that errors show now. UsageError: it can never be asked so."""
        try:
            await self._seen()
        except OperatingError as error:
            self._missed(error)

    async def answer(self, target: str) -> Answer:
        """Returns what is answered to GET and a target."""
        if target != "/metrics":
            return Answer(status="404 Not Found", text="there is /metrics\n")
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        looking = self._looking
        await asyncio.wait((looking,), timeout=ANSWER_S)
        return Answer(kind=CONTENT_TYPE, text=looking.result() if looking.done() else AWAY)

    async def _look(self) -> str:
        try:
            return (await self._seen()).text()
        except OnceqError as error:
            self._missed(error)
            return AWAY

    async def _seen(self) -> onceq.Metrics:
        if self._qm is None:
            self._qm = await onceq.open_async(**self._given)
        self._last = await self._qm.metrics(after=self._last)
        if self._missed_at is not None:
            away_s = round(time.monotonic() - self._missed_at, 3)
            self._missed_at = None
            telemetry.tell(log, telemetry.MetricsBack(away_s=away_s))
        return self._last

    def _missed(self, error: OnceqError) -> None:
        """Says that the repository does not answer, the first time."""
        if self._missed_at is None:
            self._missed_at = time.monotonic()
            telemetry.tell(log, telemetry.MetricsAway(error=str(error)))

    async def close(self) -> None:
        """Ends the look that is under way, and closes the connections."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        if self._qm is not None:
            await self._qm.close()


def run(invoked: Invocation, listen: str, certificates: Certificates | None, log_to: Log) -> int:
    """Answers until it is told to stop. InvalidValue: nobody can listen there, or may."""
    at = address(listen)
    refuse_unless_safe(at, has_tls=certificates is not None)
    log_to.begin()
    asyncio.run(_served(invoked, at, certificates))
    return OK


async def _served(invoked: Invocation, at: Address, certificates: Certificates | None) -> None:
    looks = Looks(**invoked.target.given)
    tls = None if certificates is None else certificates.listening()
    try:
        await looks.begin()
        async with contextlib.AsyncExitStack() as stack:
            with _refused_if_taken(at):
                bound = await stack.enter_async_context(exposed(at, looks.answer, tls))
            _say(
                invoked, "ready", f"onceq: metrics are at {bound}; Ctrl-C stops", address=str(bound)
            )
            await _stopped()
    finally:
        await looks.close()
    _say(invoked, "stopped", "onceq: stopped")


async def _stopped() -> None:
    """Waits for SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


@contextlib.contextmanager
def _refused_if_taken(at: Address) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidValue(f"nobody can listen at {at}: {error}; give another --listen") from error


def _say(invoked: Invocation, event: str, text: str, **fields: Any) -> None:
    if invoked.as_json:
        invoked.output.line({"event": event, **fields})
    hint(text)
