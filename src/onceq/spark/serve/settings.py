"""How a Spark server behaves, and what has happened to it.

Public through `onceq.spark`. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceq.errors import InvalidValue
from onceq.model.names import check_flag, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a Spark server behaves.

    partitions: most tasks that read a batch; 0: as many as Spark runs at once. trigger_ms: the
    least time from the start of one batch to the next. idle_ms: how soon an idle server sees a
    request. hold_s: how long a request that its batch does not answer is held for later ones; 0:
    that is an abort at once. grace_s: how long after its death another server's requests are taken
    over. backoff_s: the wait before a failed query starts again, doubled up to backoff_max_s by
    failures in a row. output_mode: Spark's, for the batch function's result. stateful: the batch
    function keeps a state from batch to batch (aggregation, deduplication, join of streams,
    transformWithState). queries: how many serve at once, each with batches, a registration and a
    checkpoint of its own; while one commits, which one backend does, others compute. Each of them
    has an order of its own: of rows with the same key from several, the one that commits last wins
    an upsert. A stateful server has one.
    """

    partitions: int = 0
    trigger_ms: int = 0
    idle_ms: int = 100
    hold_s: float = 0.0
    grace_s: float = 60.0
    backoff_s: float = 0.1
    backoff_max_s: float = 30.0
    output_mode: str = "append"
    stateful: bool = False
    queries: int = 1

    def __post_init__(self) -> None:
        check_range("partitions", self.partitions, 0, 10_000)
        check_range("trigger_ms", self.trigger_ms, 0, 86_400_000)
        check_range("idle_ms", self.idle_ms, 0, 60_000)
        check_flag("stateful", self.stateful)
        check_range("queries", self.queries, 1, 100)
        if self.stateful and self.queries > 1:
            raise InvalidValue("a stateful Spark server has one query: its state has one owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStatistics:
    """lives: how often a query was started. failures: how many of each verdict."""

    lives: int
    failures: Mapping[str, int]
