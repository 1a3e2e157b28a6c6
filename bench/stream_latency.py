"""How long a message of a paced stream takes, until it is received and until it is stable.

5,000 messages of 100 B a second, which arrive in bunches of some, as a loop of asyncio sleeps for a
millisecond at least. Ours, a file that is synced page by page, and NATS take turns. The tail is the
p99 of what is stable by the p99 of such a sync of the same round.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bench.pairs import Runner, alternate
from bench.results import Result
from bench.rows import unmeasured
from bench.stream_cases import OURS, PEER, ROUNDS
from bench.systems import Named, Systems, UnmeasuredError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.results import Side, Slice
    from bench.scene import Scene

PER_S = 5_000
DISK = "synced_file"
SIDES: Mapping[str, tuple[Named, str]] = {
    "received": (Named(OURS, "safe"), "received"),
    "stable": (Named(OURS, "safe"), "stable"),
    "disk": (Named(DISK), "stable"),
    "nats-safe": (Named(PEER, "safe"), "stable"),
    "nats": (Named(PEER), "stable"),
}
"""What takes turns: of which system, and until when."""


@dataclass(frozen=True, slots=True)
class Row:
    """A result. of: the sides that it needs; value: of a round, by their slices."""

    name: str
    question: str
    of: tuple[str, ...]
    value: Callable[[Sequence[Slice]], float]
    unit: str = "ratio"
    target: float | None = None


def _p50_ms(slices: Sequence[Slice]) -> float:
    return (slices[0].p50_us or 0.0) / 1e3


def _by_p50(slices: Sequence[Slice]) -> float:
    return (slices[0].p50_us or 0.0) / (slices[1].p50_us or 1.0)


def _by_p99(slices: Sequence[Slice]) -> float:
    return (slices[0].p99_us or 0.0) / (slices[1].p99_us or 1.0)


def _p99_ms(slices: Sequence[Slice]) -> float:
    return (slices[0].p99_us or 0.0) / 1e3


PACED = "5,000 messages of 100 B a second: "
ROWS = (
    Row("stream-paced/received", f"{PACED}received, p50", ("received",), _p50_ms, "ms", target=0.3),
    Row("stream-paced/stable", f"{PACED}stable, p50", ("stable",), _p50_ms, "ms", target=1.2),
    Row("stream-paced/stable-p99", f"{PACED}stable, p99", ("stable",), _p99_ms, "ms"),
    Row(
        "stream-paced/tail",
        f"{PACED}p99 until stable by the p99 of an fdatasync",
        ("stable", "disk"),
        _by_p99,
        target=2.0,
    ),
    Row(
        "stream-paced/nats-safe",
        f"{PACED}p50 until stable by that of NATS, synced",
        ("stable", "nats-safe"),
        _by_p50,
    ),
    Row(
        "stream-paced/nats",
        f"{PACED}p50 until stable by that of NATS, not synced",
        ("stable", "nats"),
        _by_p50,
    ),
)
NAMES = tuple(row.name for row in ROWS)


def run(scene: Scene) -> None:
    """Measure all that can be had here."""
    scene.told.started("stream-paced")
    with scene.ground("stream-latency") as ground, contextlib.ExitStack() as stack:
        systems = Systems(ground, scene.logs)
        runners: dict[str, Runner] = {}
        reasons: dict[str, UnmeasuredError] = {}
        for side in SIDES:
            try:
                runners[side] = _runner(side, systems, stack)
            except UnmeasuredError as reason:
                reasons[side] = reason
        try:
            sides = dict(zip(runners, _alternated(runners, scene), strict=True))
        except UnmeasuredError as reason:
            sides, reasons = {}, dict.fromkeys(SIDES, reason)
        for row in ROWS:
            scene.told.found(found(row, sides, reasons))


def _runner(side: str, systems: Systems, stack: contextlib.ExitStack) -> Runner:
    """Start what measures a side. UnmeasuredError: it cannot be had here."""
    named, until = SIDES[side]
    running = systems.start(named)
    stack.callback(running.close)
    ready = running.ready
    return Runner(
        name=f"{ready['system']} {ready['setting']}, until {until}",
        run=partial(running.ask, command={"do": "pace", "per_s": PER_S, "until": until}),
        first=PER_S // 10,
        most=PER_S * 10,
        version=ready["version"],
        weaker=ready["weaker"],
        how=ready["how"],
    )


def _alternated(runners: Mapping[str, Runner], scene: Scene) -> tuple[Side, ...]:
    return alternate(tuple(runners.values()), scene.pace.of(ROUNDS))


def found(row: Row, sides: Mapping[str, Side], reasons: Mapping[str, UnmeasuredError]) -> Result:
    """Return a result; if one of its sides was not measured, it has no value, and says why."""
    result = Result(
        name=row.name, question=row.question, unit=row.unit, target=row.target, better="less"
    )
    for one in row.of:
        if one not in sides:
            return unmeasured(result, reasons[one])
    mine = tuple(sides[one] for one in row.of)
    rounds = zip(*(side.slices for side in mine), strict=True)
    return replace(result, rounds=tuple(row.value(slices) for slices in rounds), sides=mine)
