"""onceq, where a clerk sends batches too: registered, and with the same-rid check."""

from __future__ import annotations

import itertools
import time

from bench.workers.base import BODY, About, EnqueueBatch, Timed, serve_commands, shares
from bench.workers.onceq_worker import Onceq, Sending, Served, opened


class OnceqClerk(Onceq):
    """Sends batches by `Clerk.send_many`."""

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="onceq_clerk", version=super().about().version, weaker="", how="one clerk"
        )

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        """Send many, in transactions of `batch`."""
        (number,) = self._numbers(1)
        with opened([number], Sending, Served(self.conninfo, self.sent)) as (client,):
            started = time.perf_counter()
            for size in shares(asked.number, -(-asked.number // asked.batch)):
                rids = itertools.islice(client.rids, size)
                client.clerk.send_many([(rid, BODY) for rid in rids])
            return Timed(seconds=time.perf_counter() - started)


if __name__ == "__main__":
    serve_commands(OnceqClerk)
