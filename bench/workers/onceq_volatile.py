"""onceq with volatile queues: their contents do not survive a crash of the database."""

from __future__ import annotations

from bench.workers.base import serve_commands
from bench.workers.onceq_worker import Onceq


class OnceqVolatile(Onceq):
    """Declares its queues as not durable."""

    durable = False


if __name__ == "__main__":
    serve_commands(OnceqVolatile)
