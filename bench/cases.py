"""The table of cases: every row of the targets in which onceq is paired with something else.

A row says what is asked of both sides, of whom, and which ratio is wanted. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bench.systems import Named

Command = Mapping[str, int | str | bool]


@dataclass(frozen=True, slots=True)
class Against:
    """Another side, and the wanted ratio of our rate to its rate; None: only reported."""

    system: str
    target: float | None = None
    setting: str = "best"
    ask: Command = field(default_factory=lambda: MappingProxyType({}))
    """What is asked of it differently than of ours."""

    @property
    def named(self) -> Named:
        """The system in its setting."""
        return Named(self.system, self.setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question.

    ask: what ours does. first: how many operations at first; step: what their number is a multiple
    of; most: the most in a slice. floor: the rate of ours that is wanted, a second. tail: the
    p99 by the p50 of ours that is wanted at most. rounds: of each pair, usually; None: as others.
    """

    name: str
    question: str
    ask: Command
    against: tuple[Against, ...] = ()
    ours: str = "onceq"
    first: int = 400
    step: int = 1
    most: int = 20_000
    floor: float | None = None
    tail: float | None = None
    rounds: int | None = None


def _both(system: str, target: float) -> tuple[Against, Against]:
    """Pairs ours with a peer in its documented best setting, and in its safe one.

    Without a target it is paired in one setting: the safe one, if it has that.
    """
    return Against(system, target), Against(system, target, "safe")


SERVE: Command = {"do": "dequeue", "servers": 1, "batch": 1, "user_sql": True}
ECHO: Command = {**SERVE, "user_sql": False}
"""A handler that only answers: what remains is the queue's own work."""
BATCH: Command = {"do": "enqueue_batch", "batch": 1000}

CASES = (
    Case(
        name="send-1",
        question="enqueue with all its checks, one client",
        ask={"do": "enqueue", "clients": 1},
        against=(
            Against("raw", 0.88, "safe"),
            Against("pgmq", 1.1),
            *_both("rabbitmq", 1.8),
            *_both("procrastinate", 2.5),
            *_both("dbos", 3.0),
            *_both("pgqueuer", 1.35),
            Against("absurd", setting="safe"),
            Against("nats", setting="safe"),
            Against("huey"),
            Against("litequeue", setting="safe"),
            Against("persist_queue"),
            Against("onceq_volatile", setting="safe"),
        ),
    ),
    Case(
        name="send-4",
        question="enqueue with all its checks, four clients",
        ask={"do": "enqueue", "clients": 4},
        against=(Against("raw", 0.75, "safe"), Against("rabbitmq"), Against("pgqueuer")),
        step=4,
    ),
    *(
        Case(
            name=f"desk-{clients}",
            question=f"enqueue with all its checks, {clients} clients at a desk",
            ask={"do": "enqueue", "clients": clients},
            ours="onceq_desk",
            against=(Against("raw", target, "safe"), Against("nats", setting="safe")),
            first=20 * clients,
            step=clients,
        )
        for clients, target in ((1, None), (16, 1.2), (64, 2.5))
    ),
    Case(
        name="batch-1000",
        question="enqueue, 1000 in a transaction",
        ask=BATCH,
        against=(
            Against("raw", 2.2, "safe"),
            Against("pgmq", 2.2),
            *_both("rabbitmq", 7.0),
            *_both("nats", 6.5),
            Against("procrastinate"),
            Against("pgqueuer"),
            Against("onceq_clerk", setting="safe"),
        ),
        first=20_000,
        step=1000,
        most=200_000,
    ),
    Case(
        name="serve-1",
        question="execute one at a time, with user SQL and history; one server",
        ask=SERVE,
        against=(
            Against("raw", 0.85, "safe"),
            Against("raw"),
            Against("pgmq", 2.2),
            *_both("rabbitmq", 1.6),
            *_both("nats", 1.1),
            *_both("procrastinate", 7.0),
            *_both("dbos", 4.5),
            Against("pgqueuer", 4.5, "safe"),
            Against("absurd", setting="safe"),
            Against("huey"),
            Against("litequeue", setting="safe"),
            Against("persist_queue"),
        ),
    ),
    Case(
        name="serve-4",
        question="execute one at a time, with user SQL and history; four servers",
        ask={**SERVE, "servers": 4},
        against=(
            Against("raw", 0.75, "safe"),
            Against("raw"),
            Against("rabbitmq"),
            Against("procrastinate"),
        ),
        step=4,
    ),
    Case(
        name="serve-batch-10",
        question="execute in batches of 10, with user SQL and history; one server",
        ask={**SERVE, "batch": 10},
        against=(Against("pgqueuer", 5.0), Against("raw", setting="safe")),
        first=2000,
        step=10,
        most=50_000,
    ),
    Case(
        name="serve-batch-100",
        question="execute in batches of 100, with user SQL and history; one server",
        ask={**SERVE, "batch": 100},
        against=(Against("raw", setting="safe"),),
        first=5000,
        step=100,
        most=100_000,
    ),
    *(
        Case(
            name=f"serve-batch-100-raising-{percent}",
            question=f"execute in batches of 100, of which {percent} % raise, by one at a time",
            ask={**SERVE, "batch": 100, "raising": 100 // percent},
            against=(Against("onceq", 0.9, "safe", {"batch": 1}),),
            first=2000,
            step=100,
            most=50_000,
        )
        for percent in (1, 10)
    ),
    Case(
        name="echo-batch-10",
        question="execute in batches of 10, without user SQL; history; one server",
        ask={**ECHO, "batch": 10},
        first=5000,
        step=10,
        most=50_000,
        floor=20_000,
    ),
    Case(
        name="echo-batch-100",
        question="execute in batches of 100, without user SQL; history; one server",
        ask={**ECHO, "batch": 100},
        first=10_000,
        step=100,
        most=100_000,
        floor=50_000,
    ),
    Case(
        name="ask-1",
        question="request and reply, one client, one server",
        ask={"do": "request_reply", "clients": 1, "servers": 1},
        against=(
            *_both("nats", 1.2),
            Against("pgmq", 2.5),
            Against("rabbitmq", setting="safe"),
            Against("raw", setting="safe"),
            Against("notify_build", setting="safe"),
        ),
        first=200,
    ),
    Case(
        name="ask-16",
        question="request and reply, 16 clients, two servers",
        ask={"do": "request_reply", "clients": 16, "servers": 2},
        against=(Against("notify_build", 2.5, "safe"), Against("raw", setting="safe")),
        first=400,
        step=16,
        tail=3.0,
    ),
    Case(
        name="ask-64",
        question="request and reply, 64 clients, two servers",
        ask={"do": "request_reply", "clients": 64, "servers": 2},
        against=(Against("notify_build", 4.0, "safe"),),
        first=640,
        step=64,
        tail=3.0,
    ),
    *(
        Case(
            name=f"ask-desk-{clients}",
            question=f"request and reply, {clients} clients at a desk, two servers",
            ask={"do": "request_reply", "clients": clients, "servers": 2},
            ours="onceq_desk",
            against=(Against("notify_build", target, "safe"),),
            first=20 * clients,
            step=clients,
            tail=2.0,
        )
        for clients, target in ((16, 2.5), (64, 12.0))
    ),
    *(
        Case(
            name=f"crowd-{clients:,}",
            question=f"request and reply, {clients:,} clients at a desk, by 64; two servers",
            ask={"do": "request_reply", "clients": clients, "servers": 2},
            ours="onceq_desk",
            against=(Against("onceq_desk", 0.8, "safe", {"clients": 64}),),
            first=clients,
            step=clients,
            most=2 * clients,
        )
        for clients in (1_000, 10_000)
    ),
)


def targeted(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that have a target, with only those pairs that have one."""
    kept = [replace(one, against=tuple(a for a in one.against if a.target)) for one in cases]
    return [one for one in kept if one.against or one.floor or one.tail]
