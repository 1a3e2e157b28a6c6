"""Metrics of a repository's queues: one look at it, and what Prometheus is told of that. Pure.

Counters count what ended since the day began, in UTC. So they are the same for whoever looks,
however often it was started again, and a look reads nothing older: history may be long, or trimmed.
A look that goes on from a former one reads what ended since that, but for what may yet commit.
Source: spec Q14.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from onceq.model import metrics, ops
from onceq.model.element import Charge, RequestOutcome
from onceq.model.metric_ops import Aborts, Finished, Measure, Measured
from onceq.model.metrics import Metric, Reading, Sample, plainly
from onceq.model.periodic import PeriodicInfo
from onceq.model.periodic_ops import ListPeriodics
from onceq.model.queue import QueueInfo, QueueKind

LATE: Final = timedelta(seconds=5)
"""So late a look counts what has ended."""
BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 60, 300, 1800, 7200, 86400)
"""The upper bounds of the buckets."""
BOUNDS_US: Final = [round(bound * 1_000_000) for bound in BOUNDS_S]
SHOWN: Final = frozenset({QueueKind.REQUEST, QueueKind.ERROR})
STATES: Final = ("ready", "claimed", "waiting", "suspect", "held")
CHARGES: Final = (Charge.CHARGE, Charge.REJECT, Charge.ENVIRONMENT, Charge.SUSPECT)
"""Those that an abort may have been charged: the others become one of them, or are no abort."""


class _Counts(Protocol):
    @property
    def key(self) -> tuple[Any, ...]: ...
    @property
    def is_settled(self) -> bool: ...
    def __add__(self, other: Self, /) -> Self: ...


C = TypeVar("C", bound=_Counts)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Where a later look goes on. finished, aborts: of the day, up to `since`, which is settled.

    soon: is settled once no transaction is open that was below `soon_xmax`.
    """

    day: datetime
    soon: datetime
    soon_xmax: int
    since: datetime | None = None
    finished: tuple[Finished, ...] = ()
    aborts: tuple[Aborts, ...] = ()


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a repository: what `onceq metrics` says of it. Give it to the next look.

    queues, periodics: as the methods of these names have them. finished, aborts: since the day
    began, in UTC, but for the last 5 s. measured: what else was found. counted: where the next look
    goes on.
    """

    queues: tuple[QueueInfo, ...]
    periodics: tuple[PeriodicInfo, ...]
    finished: tuple[Finished, ...]
    aborts: tuple[Aborts, ...]
    measured: Measured
    counted: Counted

    def samples(self) -> list[Sample]:
        """Return all values, with their names and labels."""
        up = metrics.samples_of(UP, 1.0)
        return [*up, *(one for metric in METRICS for one in metrics.samples_of(metric, self))]

    def text(self) -> str:
        """Return all of it in the format of Prometheus."""
        return metrics.text_of((UP,), 1.0) + metrics.text_of(METRICS, self)


def look(after: Metrics | None) -> ops.Program[Metrics]:
    """Looks at the repository, in three statements. after: a former look, from which it goes on."""
    former = None if after is None else after.counted
    queues = yield from ops.ListQueues()
    periodics = yield from ListPeriodics()
    found = yield from Measure(
        since=None if former is None else former.since,
        soon=None if former is None else former.soon,
        bounds_us=BOUNDS_US,
    )
    if former is None or former.day != found.day:
        former = Counted(day=found.day, soon=found.until, soon_xmax=found.xmax)
    return Metrics(
        queues=tuple(queues),
        periodics=tuple(periodics),
        finished=_together((*former.finished, *found.finished)),
        aborts=_together((*former.aborts, *found.aborts)),
        measured=found,
        counted=_settled(former, found),
    )


def _settled(former: Counted, found: Measured) -> Counted:
    """Returns what is settled now: what had ended by `soon`, if no transaction is left of then."""
    if former.soon == found.until or found.xmin < former.soon_xmax:
        return former
    return Counted(
        day=found.day,
        soon=found.until,
        soon_xmax=found.xmax,
        since=former.soon,
        finished=_together((*former.finished, *(one for one in found.finished if one.is_settled))),
        aborts=_together((*former.aborts, *(one for one in found.aborts if one.is_settled))),
    )


def _together(some: Iterable[C]) -> tuple[C, ...]:
    """Returns those with the same key as one."""
    found: dict[tuple[Any, ...], C] = {}
    for one in some:
        found[one.key] = found[one.key] + one if one.key in found else one
    return tuple(found.values())


def _of_requests(read: Callable[[QueueInfo], float]) -> Callable[[Metrics], Iterator[Reading]]:
    def each(seen: Metrics) -> Iterator[Reading]:
        for one in seen.queues:
            if one.kind is QueueKind.REQUEST:
                yield "", {"queue": one.name}, float(read(one))

    return each


def _elements(seen: Metrics) -> Iterator[Reading]:
    for one in seen.queues:
        if one.kind in SHOWN:
            for state in STATES:
                yield "", {"queue": one.name, "state": state}, float(getattr(one, state))


def _ages(seen: Metrics) -> Iterator[Reading]:
    now = seen.measured.until + LATE
    for one in seen.queues:
        if one.kind in SHOWN:
            age = (now - (one.oldest_at or now)).total_seconds()
            yield "", {"queue": one.name}, max(0.0, age)


def _names(seen: Metrics) -> list[str]:
    """Returns the queues that count: those of requests that are there."""
    return [one.name for one in seen.queues if one.kind is QueueKind.REQUEST]


def _ended(seen: Metrics) -> Iterator[Reading]:
    """Each queue has each outcome: a counter that begins at 0 is seen to grow."""
    count = Counter(dict.fromkeys(itertools.product(_names(seen), _values(RequestOutcome)), 0))
    for one in seen.finished:
        count[one.queue, one.outcome] += one.requests
    for (queue, outcome), requests in count.items():
        yield "", {"queue": queue, "outcome": outcome}, float(requests)


def _aborted(seen: Metrics) -> Iterator[Reading]:
    count = Counter(dict.fromkeys(itertools.product(_names(seen), _values(CHARGES)), 0))
    for one in seen.aborts:
        count[one.queue, one.charge] += one.aborts
    for (queue, charge), aborts in count.items():
        yield "", {"queue": queue, "charge": charge}, float(aborts)


def _values(some: Iterable[RequestOutcome | Charge]) -> list[str]:
    return [one.value for one in some]


def _histogram(
    bucket: Callable[[Finished], int | None], took_us: Callable[[Finished], int]
) -> Callable[[Metrics], Iterator[Reading]]:
    def read(seen: Metrics) -> Iterator[Reading]:
        counts: dict[str, Counter[int]] = {name: Counter() for name in _names(seen)}
        sums: defaultdict[str, int] = defaultdict(int)
        for one in seen.finished:
            number = bucket(one)
            if number is not None:
                counts.setdefault(one.queue, Counter())[number] += one.requests
                sums[one.queue] += took_us(one)
        for queue, count in counts.items():
            below = itertools.accumulate(count[number] for number in range(len(BOUNDS_S) + 1))
            for bound, requests in zip((*BOUNDS_S, float("inf")), below, strict=True):
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield "_bucket", {"queue": queue, "le": le}, float(requests)
            yield "_sum", {"queue": queue}, sums[queue] / 1_000_000
            yield "_count", {"queue": queue}, float(count.total())

    return read


def _servers(seen: Metrics) -> Iterator[Reading]:
    yield "", {"alive": "true"}, float(seen.measured.servers_alive)
    yield "", {"alive": "false"}, float(seen.measured.servers_dead)


def _replies(seen: Metrics) -> int:
    return sum(one.depth for one in seen.queues if one.kind is QueueKind.REPLY)


def _lateness(seen: Metrics) -> Iterator[Reading]:
    for one in seen.periodics:
        yield "", {"periodic": one.name}, one.lag_s


def _lag(seen: Metrics) -> Iterator[Reading]:
    if seen.measured.archive_lag_s is not None:
        yield "", {}, seen.measured.archive_lag_s


def _dead_rows(seen: Metrics) -> Iterator[Reading]:
    for table, rows in sorted(seen.measured.dead_rows.items()):
        yield "", {"table": table}, float(rows)


UP: Final[Metric[float]] = Metric(
    name="onceq_up",
    kind="gauge",
    text="1: the repository answered; 0: it did not, and there is nothing else",
    read=plainly(float),
)
AWAY: Final = metrics.text_of((UP,), 0.0)
"""What is said in place of a look."""
METRICS: Final[tuple[Metric[Metrics], ...]] = (
    Metric(
        name="onceq_queue_elements",
        kind="gauge",
        labels=("queue", "state"),
        text="elements in a queue: ready, claimed, waiting for their time, suspect, or held",
        read=_elements,
    ),
    Metric(
        name="onceq_queue_oldest_age_seconds",
        kind="gauge",
        labels=("queue",),
        text="age of the oldest element of a queue, whatever its state; 0: it is empty",
        read=_ages,
    ),
    Metric(
        name="onceq_queue_paused",
        kind="gauge",
        labels=("queue",),
        text="1: stopped for dequeue, or paused since the environment failed: no request begins",
        read=_of_requests(lambda one: not one.dequeue_started or one.paused_until is not None),
    ),
    Metric(
        name="onceq_requests_finished_total",
        kind="counter",
        labels=("queue", "outcome"),
        text="requests that have ended today (UTC): done, failed, cancelled, expired, dequeued",
        read=_ended,
    ),
    Metric(
        name="onceq_request_waiting_seconds",
        kind="histogram",
        labels=("queue",),
        text="from the send to the execution that finished it, of requests of today (UTC)",
        read=_histogram(lambda one: one.waited, lambda one: one.waited_us),
    ),
    Metric(
        name="onceq_request_service_seconds",
        kind="histogram",
        labels=("queue",),
        text="the execution that finished a request, of those of today (UTC)",
        read=_histogram(lambda one: one.served, lambda one: one.served_us),
    ),
    Metric(
        name="onceq_aborts_total",
        kind="counter",
        labels=("queue", "charge"),
        text="aborts of today (UTC), by what they cost: charge, reject, environment, suspect",
        read=_aborted,
    ),
    Metric(
        name="onceq_servers",
        kind="gauge",
        labels=("alive",),
        text="processes that serve (true), or died and were not taken over yet (false)",
        read=_servers,
    ),
    Metric(
        name="onceq_replies_waiting",
        kind="gauge",
        text="replies that no client has acknowledged yet",
        read=plainly(_replies),
    ),
    Metric(
        name="onceq_periodic_lag_seconds",
        kind="gauge",
        labels=("periodic",),
        text="how long the next tick of a periodic request has been due; 0: it is not, or paused",
        read=_lateness,
    ),
    Metric(
        name="onceq_archive_lag_seconds",
        kind="gauge",
        text="how long ago the oldest ended of those that no file of the archive has; 0: none",
        read=_lag,
    ),
    Metric(
        name="onceq_dead_rows",
        kind="gauge",
        labels=("table",),
        text="rows of a table that are deleted and not yet vacuumed, as PostgreSQL estimates",
        read=_dead_rows,
    ),
    Metric(
        name="onceq_oldest_transaction_seconds",
        kind="gauge",
        text="age of the oldest open or prepared transaction in the database",
        read=plainly(lambda seen: seen.measured.oldest_transaction_s),
    ),
)
"""What a look says."""
