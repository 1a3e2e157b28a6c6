"""A server process that begins requests and never ends them: to be killed with requests in hand."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

import onceq
from tests.parts import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

HELD = onceq.Queue("raw", str, str, abort_limit=2, backoff_ms=1)
_SPAWN = multiprocessing.get_context("spawn")


def _hold(conninfo: str, repository: str, count: int, line: Connection[Any, Any]) -> None:
    all_began = threading.Barrier(count)

    def begin(request: str, _: onceq.Context) -> str:
        if all_began.wait(LIMIT_S) == 0:
            line.send(request)
        threading.Event().wait()
        return request

    server = onceq.Server([HELD.handled_by(begin)], concurrency=count)
    server.run(conninfo, repository=repository)


@contextlib.contextmanager
def holding(conninfo: str, repository: str, count: int = 1) -> Generator[BaseProcess]:
    """Runs it until it has begun so many requests; `kill` is kill -9."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_hold, args=(conninfo, repository, count, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(LIMIT_S), "it did not begin"
        ours.recv()
        yield process
    finally:
        process.kill()
        process.join(LIMIT_S)
