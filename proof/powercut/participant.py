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
from typing import TYPE_CHECKING, Any

import msgspec

import onceq
from onceq.testing.events import KillAnswered, KillBegun, ReceiveBegun, Recorder
from tests.crash.recording import RecordedClerk
from tests.crash.server_child import Handler, Order, Receipt, Settings, order_queue

if TYPE_CHECKING:
    from collections.abc import Generator

ABORT_LIMIT = 2
_QUEUE = {"abort_limit": ABORT_LIMIT, "backoff_ms": 1, "backoff_max_ms": 1}
_FAILING = 0.05
_CANCELLED = 0.04
_PATIENCE_S = 120.0


class Serve(msgspec.Struct, tag=True):
    """A server process."""

    settings: Settings


class Ask(msgspec.Struct, tag=True):
    """A client process. window: how many requests it has outstanding at most."""

    url: str
    repository: str
    files: str
    name: str
    window: int
    seed: int


def queue() -> onceq.Queue[Order, Receipt]:
    """Returns the queue of the load."""
    return order_queue(_QUEUE)


def handled(settings: Settings) -> Any:
    """Returns the queue with the handler of the load, for a server."""
    return queue().handled_by(Handler(settings), batch=settings.batch)


def _end_with_parent() -> None:
    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _serve(settings: Settings) -> None:
    server = onceq.Server([handled(settings)], concurrency=settings.concurrency)
    server.run(settings.url, repository=settings.repository)


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
                _one(clerk, next(orders), chance, recorder)
            else:
                several = itertools.islice(orders, chance.randint(2, who.window))
                _several(clerk, list(several), who, recorder)


def _one(
    clerk: RecordedClerk, request: tuple[str, Order], chance: random.Random, recorder: Recorder
) -> None:
    """Sends a request, sometimes cancels it, and receives its reply with a checkpoint."""
    rid, order = request
    cancelled = order.kind == "book" and chance.random() < _CANCELLED
    clerk.send_many([request], expects=None if cancelled else "done")
    if cancelled:
        recorder.record(KillBegun(rid=rid))
        answer = clerk.clerk.cancel_last_request(timeout_s=_PATIENCE_S)
        recorder.record(KillAnswered(rid=rid, answer=answer.value))
    clerk.receive(rid.encode(), timeout_s=_PATIENCE_S)


def _several(
    clerk: RecordedClerk, requests: list[tuple[str, Order]], who: Ask, recorder: Recorder
) -> None:
    """Sends requests in one transaction, receives their replies, and acknowledges all of them."""
    clerk.send_many(requests)
    rids = [clerk.receive(timeout_s=_PATIENCE_S).rid for _ in requests]
    recorder.record(
        ReceiveBegun(registrant=who.name, epoch=clerk.clerk._session.epoch)  # noqa: SLF001 - as the recorded clerk does
    )
    clerk.clerk.acknowledge(rids, checkpoint=rids[-1].encode())


def main() -> None:
    """Runs a participant until its parent ends."""
    _end_with_parent()
    match msgspec.json.decode(sys.argv[1], type=Serve | Ask):
        case Serve(settings=settings):
            _serve(settings)
        case Ask() as who:
            _ask(who)


if __name__ == "__main__":
    main()
