"""A machine of its own for the test of dead links: `python dead_link_child.py URL REPOSITORY`.

It serves: one request whose handler works in Python, one whose handler waits in a statement, each
with a row locked. A client of it waits for a reply, for ever. It prints what becomes of them.
"""

from __future__ import annotations

import sys
import threading
import time

import onceq
from onceq.errors import OperatingError

IDLE = onceq.Queue("idle", bytes, bytes, backoff_ms=0)
BUSY = onceq.Queue("busy", bytes, bytes, backoff_ms=0)
AWAY = onceq.Queue("away", bytes, bytes)
LONG_S = 600


def say(what: str) -> None:
    """Tells the test; the time is of the clock that all processes of a host share."""
    sys.stdout.write(f"{what} {time.monotonic()}\n")
    sys.stdout.flush()


def _lock(context: onceq.Context, request: bytes) -> None:
    context.connection.execute("update locked set n = n + 1 where name = %s", [request.decode()])


def idle(request: bytes, context: onceq.Context) -> bytes:
    _lock(context, request)
    say("idle")
    threading.Event().wait(LONG_S)
    return request


def busy(request: bytes, context: onceq.Context) -> bytes:
    _lock(context, request)
    say("busy")
    context.connection.execute("select pg_sleep(%s)", [LONG_S])
    return request


def wait_for_ever(url: str, repository: str) -> None:
    with onceq.open(url, repository=repository) as qm, qm.clerk("away", AWAY) as clerk:
        clerk.send("1", b"")
        say("client")
        try:
            clerk.receive()
        except OperatingError:
            say("client_ended")


def main() -> None:
    url, repository = sys.argv[1:]
    threading.Thread(target=wait_for_ever, args=(url, repository), daemon=True).start()
    onceq.Server([IDLE.handled_by(idle), BUSY.handled_by(busy)], concurrency=2).run(
        url, repository=repository
    )


if __name__ == "__main__":
    main()
