"""Measures two things in turn, slice by slice, and says their ratio.

A slice does a fixed number of operations. Rounds alternate A B, B A, ... The ratio is the median
over the rounds of A's rate by B's of the same round.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One side of a pair. run: does `operations` operations, once."""

    name: str
    operations: int
    run: Callable[[], None]


def _rate(case: Case) -> float:
    started = time.perf_counter()
    case.run()
    return case.operations / (time.perf_counter() - started)


def _line(kind: str, **fields: object) -> None:
    print(json.dumps({"v": 1, "kind": kind, **fields}), flush=True)


def pair(question: str, ours: Case, other: Case, *, target: float | None = None) -> float:
    """Prints a line a case and a ratio line; returns the median ratio, ours by the other's."""
    rates: dict[str, list[float]] = {ours.name: [], other.name: []}
    for number in range(ROUNDS + 1):
        for case in (ours, other) if number % 2 else (other, ours):
            rate = _rate(case)
            if number:  # the first round warms up
                rates[case.name].append(rate)
    for name, found in rates.items():
        _line(
            "case",
            question=question,
            case=name,
            per_s=[round(rate, 1) for rate in found],
            median_per_s=round(statistics.median(found), 1),
        )
    ratios = [a / b for a, b in zip(rates[ours.name], rates[other.name], strict=True)]
    ratio = statistics.median(ratios)
    _line(
        "ratio",
        question=question,
        ratio=round(ratio, 3),
        low=round(min(ratios), 3),
        high=round(max(ratios), 3),
        ours=ours.name,
        other=other.name,
        target=target,
    )
    return ratio
