"""A server process for the crash tests: `python server_child.py JSON`; its test kills it with -9.

Its handler does what the request says, and puts one row for it into the ledger `effects`, which
has no unique key. Each execution is recorded before anything else, in a file of this process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import onceq
from onceq.engine.perform.driver import PostgresDriver
from onceq.history.events import Fault, Recorder
from proof.harness.ledger import LedgerHandler, Order, Receipt


class Settings(msgspec.Struct):
    """How to serve. files: where events go, and where `release` lets held handlers go on.

    die_at: a step of the driver, as "before commit 3": the process dies there, once, at its third.
    """

    url: str
    repository: str
    files: str
    concurrency: int = 1
    stop_timeout_s: float = 30.0
    queue: dict[str, Any] = {}
    batch: int = 1
    die_at: str = ""


def order_queue(settings: dict[str, Any]) -> onceq.Queue[Order, Receipt]:
    """Returns the queue of the crash tests, with settings other than the defaults."""
    return onceq.Queue("orders", Order, Receipt, **settings)


class Handler(LedgerHandler):
    """Also holds: kind `hold` until a release, `hold_in_database` in a statement."""

    def __init__(self, settings: Settings) -> None:
        files = Path(settings.files)
        actor = f"server {os.getpid()}"
        super().__init__(
            Recorder(files / f"server-{os.getpid()}.events", actor), settings.repository
        )
        self._release = files / "release"

    def before(self, order: Order, context: onceq.Context) -> None:
        super().before(order, context)
        if order.kind == "hold_in_database" and not self._release.exists():
            context.connection.execute("select pg_sleep(60)")

    def after(self, order: Order) -> None:
        super().after(order)
        end = time.monotonic() + 60
        while order.kind == "hold" and not self._release.exists() and time.monotonic() < end:
            time.sleep(0.002)


def die_at(point: str, files: Path) -> None:
    """Kills this process at a step of the driver; not if one of its predecessors died there.

    It records its own death, which nobody else can time.
    """
    died = files / "died"
    actor = f"server {os.getpid()}"
    when, step, count = point.split()
    perform: Any = getattr(PostgresDriver, f"_{step}")
    left = [None] * int(count)

    def deadly(*arguments: Any) -> Any:
        del left[:1]
        answers = [perform(*arguments)] if when == "after" else []
        if not left and not died.exists():
            died.touch()
            with Recorder(files / f"death-{os.getpid()}.events", actor) as recorder:
                recorder.record(Fault(what=f"kill -9 {point}", target=actor))
            os.kill(os.getpid(), 9)
        return answers[0] if answers else perform(*arguments)

    setattr(PostgresDriver, f"_{step}", deadly)


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    if settings.die_at:
        die_at(settings.die_at, Path(settings.files))
    handled = order_queue(settings.queue).handled_by(Handler(settings), batch=settings.batch)
    server = onceq.Server(
        [handled], concurrency=settings.concurrency, stop_timeout_s=settings.stop_timeout_s
    )
    with server.signals():
        drained = server.run(settings.url, repository=settings.repository)
    sys.stdout.flush()
    os._exit(0 if drained else 3)  # a handler that never ends must not keep the process


if __name__ == "__main__":
    main()
