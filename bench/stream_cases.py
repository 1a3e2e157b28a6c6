"""The cases of persistent streams: a source, three stores and receivers, beside NATS of three.

As in `bench.cases`, nothing is decided here. Source of the targets: streams.md 11 of the design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cases import Against, Case

if TYPE_CHECKING:
    from bench.cases import Command

ROUNDS = 9
"""By default: what streams promise is the median of so many pairs."""
MOST = 1_000_000
OURS = "onceq_stream"
PEER = "nats_stream"
FILLED = 24_000
"""More than sockets and a source hold for a receiver that takes nothing: then it is skipped."""
PUBLISH: Command = {"do": "publish", "flight": 10_000}


def _both(synced: float | None, unsynced: float | None) -> tuple[Against, Against]:
    """Pairs ours, which always syncs, with a peer that does and with one that does not."""
    return Against(PEER, synced, "safe"), Against(PEER, unsynced)


STREAM_CASES = (
    Case(
        name="stream-100",
        question="stream 100 B, 10,000 in flight, to three stores and a receiver",
        ask={**PUBLISH, "body_bytes": 100},
        against=(*_both(60.0, 3.0), Against(OURS)),
        ours=OURS,
        first=20_000,
        floor=250_000,
        most=MOST,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-1024",
        question="stream 1 KiB, 10,000 in flight, to three stores and a receiver",
        ask={**PUBLISH, "body_bytes": 1024},
        against=(*_both(20.0, 1.0), Against(OURS)),
        ours=OURS,
        first=10_000,
        most=200_000,
        floor=60_000,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-flight-1000",
        question="stream 100 B, 1,000 in flight, to three stores and a receiver",
        ask={**PUBLISH, "flight": 1_000},
        against=_both(None, None),
        ours=OURS,
        first=10_000,
        floor=150_000,
        most=MOST,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-flight-1",
        question="stream 100 B, each stable before the next",
        ask={**PUBLISH, "flight": 1},
        against=_both(None, None),
        ours=OURS,
        first=200,
        floor=1_200,
        most=MOST,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-fan-out",
        question="stream 100 B, 10,000 in flight, to three stores and four receivers",
        ask={**PUBLISH, "receivers": 4},
        against=(*_both(None, None), Against(OURS, None, "safe", {"receivers": 1})),
        ours=OURS,
        first=10_000,
        most=MOST,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-stopped",
        question="stream 100 B, 10,000 in flight, beside a receiver that takes nothing",
        ask={**PUBLISH, "stopped": 1, "filled": FILLED},
        against=(Against(OURS, 0.95, "safe", {"stopped": 0}),),
        ours=OURS,
        first=50_000,
        most=MOST,
        rounds=ROUNDS,
    ),
    Case(
        name="stream-catch-up",
        question="a new receiver is shown what is stable, 100 B, from the start on",
        ask={"do": "catch_up"},
        against=_both(None, None),
        ours=OURS,
        first=20_000,
        most=500_000,
        floor=200_000,
        rounds=ROUNDS,
    ),
)
