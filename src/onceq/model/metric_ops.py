"""The Op that measures the queues of a repository, and its answer. Pure values. Source: spec Q14.

Performed by the same drivers as the Ops of operators; it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from onceq.model.ops.base import Op

_Key: TypeAlias = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Requests that ended alike: of one queue, with one outcome.

    waited, served: of which bucket their times were, from 0; None: not known. waited_us,
    served_us: those times, added up, in microseconds. is_settled: they ended by `Measure.soon`.
    """

    queue: str
    outcome: str
    is_settled: bool
    waited: int | None
    served: int | None
    requests: int
    waited_us: int
    served_us: int

    @property
    def key(self) -> _Key:
        """What those have in common that are counted together."""
        return self.queue, self.outcome, self.waited, self.served

    def __add__(self, other: Finished) -> Finished:
        return Finished(
            queue=self.queue,
            outcome=self.outcome,
            is_settled=self.is_settled,
            waited=self.waited,
            served=self.served,
            requests=self.requests + other.requests,
            waited_us=self.waited_us + other.waited_us,
            served_us=self.served_us + other.served_us,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborts:
    """Aborts of requests of one queue with one charge. is_settled: they ended by `Measure.soon`."""

    queue: str
    charge: str
    is_settled: bool
    aborts: int

    @property
    def key(self) -> _Key:
        """What those have in common that are counted together."""
        return self.queue, self.charge

    def __add__(self, other: Aborts) -> Aborts:
        return Aborts(
            queue=self.queue,
            charge=self.charge,
            is_settled=self.is_settled,
            aborts=self.aborts + other.aborts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was found. until: what ended later is left to the next look, 5 s after it.

    day: when the day of `until` began, in UTC. xmin, xmax: every transaction below xmin has ended,
    none from xmax on has begun. servers_alive, servers_dead: processes. archive_lag_s: None: there
    is no archive. dead_rows: by table. finished, aborts: of the day, and after `Measure.since`.
    """

    until: datetime
    day: datetime
    xmin: int
    xmax: int
    servers_alive: int
    servers_dead: int
    oldest_transaction_s: float
    archive_lag_s: float | None
    dead_rows: dict[str, int]
    finished: tuple[Finished, ...]
    aborts: tuple[Aborts, ...]


class Measure(Op[Measured]):
    """Measures the queues. since: what ended by then is known; soon: may be settled now.

    bounds_us: those of the buckets, ascending, in microseconds. Nothing of another day counts.
    """

    since: datetime | None
    soon: datetime | None
    bounds_us: list[int]
