"""Measures two things in turn, slice by slice, and returns their ratio.

Machines are noisy: the same thing may vary tenfold between sequential runs. So slices are short
and alternate, A B, B A, ...; the first round warms up and shows how many operations last about
one slice; the ratio is the median over the rounds of A's rate divided by B's of the same round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.results import Result, Side, Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.results import Better

SLICE_S = 0.5
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much is measured. rounds: without the one that warms up. slice_s: roughly, of each.

    is_asked: so many rounds are wanted, and not only usual.
    """

    rounds: int = ROUNDS
    slice_s: float = SLICE_S
    is_asked: bool = False

    def of(self, rounds: int | None) -> Pace:
        """Return the pace of what usually has so many rounds; None: as many as others."""
        return self if rounds is None or self.is_asked else replace(self, rounds=rounds)


@dataclass(slots=True, kw_only=True)
class Runner:
    """Something to measure. run: does this many operations, once. first: how many at first.

    step: their number is always a multiple of it. most: the most of one slice.
    """

    name: str
    run: Callable[[int], Slice]
    first: int
    step: int = 1
    most: int = 1_000_000
    version: str = ""
    weaker: str = ""
    how: str = ""

    def sized(self, warm: Slice, slice_s: float) -> int:
        """Return how many operations last about one slice, judging by the warm-up."""
        wanted = min(self.most, max(self.first // 4, int(warm.per_s * slice_s)))
        return max(1, wanted // self.step) * self.step

    def side(self, slices: Sequence[Slice]) -> Side:
        """Return what was measured of it."""
        return Side(
            name=self.name,
            slices=tuple(slices),
            version=self.version,
            weaker=self.weaker,
            how=self.how,
        )


def alternate(runners: Sequence[Runner], pace: Pace) -> tuple[Side, ...]:
    """Run all in turn, in the other order every round; the first round is not counted."""
    numbers = [
        runner.sized(runner.run(max(1, runner.first // runner.step) * runner.step), pace.slice_s)
        for runner in runners
    ]
    slices: list[list[Slice]] = [[] for _ in runners]
    order = list(range(len(runners)))
    for _ in range(pace.rounds):
        for index in order:
            slices[index].append(runners[index].run(numbers[index]))
        order.reverse()
    return tuple(runner.side(found) for runner, found in zip(runners, slices, strict=True))


def ratios(ours: Side, other: Side) -> tuple[float, ...]:
    """Return our rate divided by theirs, for each round."""
    return tuple(a.per_s / b.per_s for a, b in zip(ours.slices, other.slices, strict=True))


def pair(
    name: str,
    question: str,
    runners: tuple[Runner, Runner],
    pace: Pace,
    *,
    target: float | None = None,
    better: Better = "more",
) -> Result:
    """Measure ours against the other, and return the ratio."""
    ours, other = alternate(runners, pace)
    return Result(
        name=name,
        question=question,
        rounds=ratios(ours, other),
        target=target,
        better=better,
        sides=(ours, other),
    )
