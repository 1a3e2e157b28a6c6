"""One client that streams many requests: its memory.

`python -m bench.streaming CONNINFO NUMBER` is that process: a user's client, which imports nothing
but onceq; it says its resident memory, in MB, after every tenth of the replies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import onceq
from bench.ages import BATCH, ROOT, handle, resident_mb

if TYPE_CHECKING:
    from collections.abc import Generator

QUEUE = onceq.Queue("streamed", bytes, bytes)
WINDOW = 1000
STALLED_S = 60.0


def streaming(qm: onceq.QueueManager, conninfo: str, requests: int) -> Generator[float]:
    """Let one process stream this many; yield its memory in MB at every tenth of them."""
    qm.declare(QUEUE)
    server = onceq.Server([QUEUE.handled_by(handle, batch=10 * BATCH)])
    serving = threading.Thread(target=server.run, args=(conninfo,))
    serving.start()
    command = [sys.executable, "-m", "bench.streaming", conninfo, str(requests)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stdout or ())
        found = [float(line) for line in lines]
        if process.wait(STALLED_S) != 0:
            raise TimeoutError(f"the client ended with {process.returncode}")
        yield from found
    finally:
        process.kill()
        process.wait()
        server.stop()
        serving.join()


def main() -> None:
    """Stream, and say what it takes."""
    conninfo, number = sys.argv[1], int(sys.argv[2])
    requests = ((str(n), b"x" * 200) for n in range(number))
    tenth = max(1, number // 10)
    with onceq.open(conninfo) as qm, qm.clerk("streamer", QUEUE, window=WINDOW) as clerk:
        for count, _ in enumerate(clerk.stream(requests, timeout_s=STALLED_S), 1):
            if count % tenth == 0:
                sys.stdout.write(f"{resident_mb(os.getpid())}\n")


if __name__ == "__main__":
    main()
