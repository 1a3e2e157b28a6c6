"""A program of the next onceq: tries the schema of this one, upgrades it, serves and sends.

It says each step in a line, and waits for a line before the next. `next_onceq` starts it.
"""

from __future__ import annotations

import sys
import threading

import onceq
from onceq.engine.schema import migrate
from onceq.errors import SchemaMismatch
from onceq.version import LEVEL

RAW = onceq.Queue("raw", bytes, bytes)
NEXT = onceq.Queue("next", bytes, bytes)
LIMIT_S = 60.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def main(url: str, repository: str) -> None:
    try:
        onceq.open(url, repository=repository).close()
    except SchemaMismatch as error:
        say(f"level {LEVEL} is refused: {error}")
    say(f"upgraded: {migrate.apply_with(url, repository)}")
    server = onceq.Server([NEXT.handled_by(lambda body, _: b"next: " + body)])
    thread = threading.Thread(target=server.run, args=(url,), kwargs={"repository": repository})
    with onceq.open(url, repository=repository) as queues, queues.clerk("new", RAW) as clerk:
        queues.declare(NEXT)
        thread.start()
        clerk.connect()
        reply = clerk.transceive("1", b"of the new client", timeout_s=LIMIT_S)
        say(f"was answered: {reply.value.decode()}")
    server.stop()
    thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
