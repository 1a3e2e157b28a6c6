"""One server process over many requests: its memory.

`python -m bench.ages CONNINFO` is that process: a user's server, which imports nothing but onceq.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import onceq

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq import Context

ROOT = Path(__file__).resolve().parents[1]
QUEUE = onceq.Queue("aged", bytes, bytes)
FILL = 10_000
BATCH = 10
"""How many requests share a transaction: with this, a million of them take minutes."""
LOOK_S = 0.1
STALLED_S = 60.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def handle(body: bytes, _: Context) -> bytes:
    """Do nothing: it is the server that is observed."""
    return body


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * PAGE / 1e6


def aging(qm: onceq.QueueManager, conninfo: str, requests: int) -> Generator[float]:
    """Let one process execute this many requests; yield its memory in MB at every tenth of them."""
    qm.declare(QUEUE)
    command = [sys.executable, "-m", "bench.ages", conninfo]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        for _ in range(10):
            _let_execute(qm, process, requests // 10)
            yield resident_mb(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _let_execute(qm: onceq.QueueManager, process: subprocess.Popen[bytes], number: int) -> None:
    for first in range(0, number, FILL):
        left, since = min(FILL, number - first), time.monotonic()
        qm.enqueue_many(QUEUE, [b"x" * 200] * left)
        while left:
            time.sleep(LOOK_S)
            now = qm.show(QUEUE.name).depth
            if now < left:
                left, since = now, time.monotonic()
            if process.poll() is not None or time.monotonic() - since > STALLED_S:
                raise TimeoutError(f"the server stalled, or ended, with {left} requests waiting")


def main() -> None:
    """Serve until told to stop."""
    server = onceq.Server([QUEUE.handled_by(handle, batch=BATCH)])
    with server.signals():
        server.run(sys.argv[1])


if __name__ == "__main__":
    main()
