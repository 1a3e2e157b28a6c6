"""onceq, where batches too are sent by a clerk: registered, and with the same-rid check."""

from __future__ import annotations

import itertools
import time

from bench.workers.base import BODY, About, EnqueueBatch, Timed, serve_commands, shares
from bench.workers.onceq_worker import Onceq


class OnceqClerk(Onceq):
    """Sends batches by `Clerk.send_many`."""

    def about(self) -> About:
        """Return what the first line says."""
        return About(
            system="onceq_clerk", version=super().about().version, weaker="", how="one clerk"
        )

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        """Send many, in transactions of `batch`."""
        with self._clients(1, self.sent) as (client,):
            rids = map(str, itertools.count())
            started = time.perf_counter()
            for size in shares(asked.number, -(-asked.number // asked.batch)):
                client.clerk.send_many([(rid, BODY) for rid in itertools.islice(rids, size)])
            return Timed(seconds=time.perf_counter() - started)


if __name__ == "__main__":
    serve_commands(OnceqClerk)
