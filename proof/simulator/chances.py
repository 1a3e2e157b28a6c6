"""Which faults a simulation has, how likely each hits which Op, and what was tried of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from onceq.model import desk_ops, ops
from proof.simulator import steps

FAULT_STEPS = 600
SERVER_DEATHS_MAX = 2
"""Deaths, and losses of a taker, that may charge whoever is innocent."""
DEATHS = ("die before", "die after")
LOSSES = ("lost request", "lost answer", "ghost commits", "ghost rolls back", "database crash")
FAULTS = (*DEATHS, *LOSSES, "second life", "abandoned", "power cut")
KEPT_FOR = {
    "Acknowledge": 0.5,
    "CountOutstanding": 0.1,
    "ListAttempts": 0.5,
    "LookUp": 1.0,
    "Peek": 0.1,
    "Receive": 0.02,
    "ReceiveEach": 0.1,
    "Redrive": 0.2,
    "SendEach": 0.1,
    "Settle": 0.2,
}
"""Ops for each of which a fault is kept, and how likely it hits. The others are spent by then."""
LATE = frozenset(
    (
        *("ReceiveEach", "SendEach"),
        *("ListAttempts", "Peek", "Redrive", "Settle"),
    )
)
"""Those of a desk and of an operator; the rest are of `submit` and `collect`."""
USUALLY = 0.1
CHANCES = {
    **dict.fromkeys(("Claim", "Survey", "ListQueues", "Receive"), 0.04),
    **dict.fromkeys(
        (
            *("BeginWork", "FindRequests", "Identify"),
            *("Acknowledge", "ClaimEid", "CloseIncarnation", "Deregister", "DestroyQueue"),
            *(
                "EnqueueMany",
                "ListClients",
                "ListServers",
                "MeasureRates",
                "ReadElement",
                "Redrive",
                "ReplyTaken",
                "RidRange",
            ),
        ),
        0.5,
    ),
    "AbortTaken": 0.9,
    "Ask": 0.005,
    "ReceiveEach": 0.4,
    "SendEach": 0.4,
    "AcknowledgeEach": 0.5,
}
"""How likely a fault hits an Op that is performed often, or seldom."""
INSIDE = (
    ops.BeginWork,
    ops.Call,
    ops.ReplyTaken,
    ops.Rollback,
    ops.Take,
    steps.CallerWrites,
)
"""Ops of a transaction that others end: a ghost of one never commits."""
FAULTLESS = (
    *(ops.Wait, ops.Sleep, ops.Rouse, ops.Stopping, ops.MayGoOn, ops.MayTend),
    *(ops.IsAlive, ops.Posted, steps.Renew),
)
"""Ops that leave the database as it is: the process answers them itself, or nothing was posted."""
STARTING = (ops.Begin, ops.Take)
EACH = (desk_ops.SendEach, desk_ops.ReceiveEach, desk_ops.AcknowledgeEach)
STEPS = frozenset(
    (
        steps.Ask,
        steps.Caller,
        steps.CallerBegins,
        steps.CallerWrites,
        steps.DiskStep,
        steps.Renew,
    )
)


@dataclass(frozen=True, slots=True)
class Offer:
    """An Op that a fault could hit: its name, and which faults."""

    op: str
    faults: tuple[str, ...]


@dataclass(slots=True)
class Coverage:
    """What was tried. ops: performed. offers: what a fault could hit. hits: what it did."""

    ops: Counter[str] = field(default_factory=Counter[str])
    offers: set[Offer] = field(default_factory=set[Offer])
    hits: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, other: Coverage) -> None:
        """Adds what another schedule has tried."""
        self.ops.update(other.ops)
        self.offers |= other.offers
        self.hits.update(other.hits)

    def missing(self) -> list[tuple[str, str]]:
        """Returns each Op with a fault that could have hit it and never did."""
        possible = {(offer.op, fault) for offer in self.offers for fault in offer.faults}
        return sorted(possible - self.hits.keys())
