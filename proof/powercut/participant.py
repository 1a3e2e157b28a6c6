"""A process of the load: `python -m proof.powercut.participant JSON`, a server or a client.

Started by `load`, which holds the other end of its standard input: when that closes, because the
run has ended or was killed, the process ends at once. It reaches PostgreSQL by a conninfo, never by
a directory, so that it cannot start what was stopped. A client sends for ever.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import onceq
from onceq.history.events import Recorder
from proof.harness.ledger import LedgerHandler, Order, Receipt
from proof.harness.orders import RecordedClerk

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.model.queue import Handled

ABORT_LIMIT = 2
_FAILING = 0.05
_CANCELLED = 0.04
_PATIENCE_S = 120.0


class Serve(msgspec.Struct, tag=True):
    """A server process. files: the directory for its events."""

    url: str
    repository: str
    files: str
    concurrency: int = 1
    batch: int = 1


class Ask(msgspec.Struct, tag=True):
    """A client process. window: how many requests it has outstanding at most."""

    url: str
    repository: str
    files: str
    name: str
    window: int
    seed: int


def queue() -> onceq.Queue[Order, Receipt]:
    """Returns the queue of the load; failing requests fail soon."""
    return onceq.Queue(
        "orders", Order, Receipt, abort_limit=ABORT_LIMIT, backoff_ms=1, backoff_max_ms=1
    )


def handled(recorder: Recorder, repository: str, batch: int = 1) -> Handled[Order, Receipt]:
    """Returns the queue with the handler of the load, for a server."""
    return queue().handled_by(LedgerHandler(recorder, repository), batch=batch)


def _end_with_parent() -> None:
    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _serve(how: Serve) -> None:
    path = Path(how.files) / f"server-{os.getpid()}.events"
    with Recorder(path, f"server {os.getpid()}") as recorder:
        one = handled(recorder, how.repository, how.batch)
        onceq.Server([one], concurrency=how.concurrency).run(how.url, repository=how.repository)


def _orders(who: Ask, chance: random.Random) -> Generator[tuple[str, Order]]:
    for number in itertools.count():
        yield f"{who.name}-{number}", Order("fail" if chance.random() < _FAILING else "book")


def _ask(who: Ask) -> None:
    chance = random.Random(who.seed)
    path = Path(who.files) / f"client-{who.name}.events"
    with (
        onceq.open(who.url, repository=who.repository) as qm,
        Recorder(path, f"client {who.name}") as recorder,
    ):
        calls = qm.clerk(who.name, queue(), window=who.window)
        clerk = RecordedClerk(calls, recorder, alone=who.window == 1)
        clerk.connect()
        orders = _orders(who, chance)
        while True:
            if who.window == 1:
                _one(clerk, next(orders), chance)
            else:
                _several(clerk, list(itertools.islice(orders, chance.randint(2, who.window))))


def _one(
    clerk: RecordedClerk[Order, Receipt], request: tuple[str, Order], chance: random.Random
) -> None:
    """Sends a request, sometimes cancels it, and receives its reply with a checkpoint."""
    rid, order = request
    cancelled = order.kind == "book" and chance.random() < _CANCELLED
    (sent,) = clerk.send_many([request], expects=None if cancelled else "done")
    if cancelled:
        clerk.cancel_last_request(str(sent.eid), timeout_s=_PATIENCE_S)
    clerk.receive(rid.encode(), timeout_s=_PATIENCE_S)


def _several(clerk: RecordedClerk[Order, Receipt], requests: list[tuple[str, Order]]) -> None:
    """Sends requests in one transaction, receives their replies, and acknowledges all of them."""
    clerk.send_many(requests)
    clerk.acknowledge([clerk.receive(timeout_s=_PATIENCE_S).rid for _ in requests])


def main() -> None:
    """Runs a participant until its parent ends."""
    _end_with_parent()
    participant: Serve | Ask = msgspec.json.decode(sys.argv[1], type=Serve | Ask)
    match participant:
        case Serve() as how:
            _serve(how)
        case Ask() as who:
            _ask(who)


if __name__ == "__main__":
    main()
