"""What a benchmark found: one `Result` for each line of the report: measured, failed or skipped."""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

Better = Literal["more", "less"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One measured piece of work. p50_us, p99_us: of its round trips, if it has any."""

    number: int
    seconds: float
    p50_us: float | None = None
    p99_us: float | None = None

    @property
    def per_s(self) -> float:
        """Operations a second."""
        return self.number / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair: all its slices, and what it does not guarantee."""

    name: str
    slices: tuple[Slice, ...]
    version: str = ""
    weaker: str = ""
    how: str = ""

    @property
    def per_s(self) -> float:
        """The median rate."""
        return statistics.median(one.per_s for one in self.slices)

    def median_us(self, field: Literal["p50_us", "p99_us"]) -> float | None:
        """The median of a percentile over the slices; None if there are no round trips."""
        found = [value for one in self.slices if (value := getattr(one, field)) is not None]
        return statistics.median(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer to one question.

    name: unique, `question/other`. rounds: the value of each round; their median counts. unit:
    "ratio", "/s", "ms", "MB", ... target: None where none was set. better: which side of the target
    is wanted. skipped, error: why there is no value.
    """

    name: str
    question: str
    unit: str = "ratio"
    rounds: tuple[float, ...] = ()
    target: float | None = None
    better: Better = "more"
    sides: tuple[Side, ...] = ()
    note: str = ""
    skipped: str = ""
    error: str = ""

    @property
    def value(self) -> float | None:
        """The median of the rounds; None if there are none."""
        return statistics.median(self.rounds) if self.rounds else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target, or without a value."""
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.better == "more" else self.value <= self.target

    def line(self) -> dict[str, Any]:
        """Return what a JSON line and the report hold."""
        held = {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if key != "sides" and value not in ("", ())
        }
        return {"v": 1, "kind": self.unit, **held, "value": rounded(self.value), "met": self.met}


def side_line(question: str, side: Side) -> dict[str, Any]:
    """Return the JSON line of one side: rates, median, percentiles."""
    line: dict[str, Any] = {
        "v": 1,
        "kind": "case",
        "question": question,
        "case": side.name,
        "per_s": [rounded(one.per_s) for one in side.slices],
        "median_per_s": rounded(side.per_s),
        "p50_us": side.median_us("p50_us"),
        "p99_us": side.median_us("p99_us"),
        "version": side.version,
        "weaker": side.weaker,
        "how": side.how,
    }
    return {key: value for key, value in line.items() if value not in ("", None)}


def rounded(value: float | None) -> float | None:
    """Return the value with four significant digits."""
    return None if value is None else float(f"{value:.4g}")


class Told(Protocol):
    """Is told of what happens during a run."""

    def started(self, what: str) -> None:
        """Something begins that takes a while."""

    def found(self, result: Result) -> None:
        """A result has arrived."""


class Lines:
    """Writes a JSON line for each side and each result, as they come."""

    def __init__(self, files: Sequence[IO[str]]) -> None:
        self._files = files

    def write(self, result: Result) -> None:
        """Write the lines of a result."""
        lines = [side_line(result.question, side) for side in result.sides]
        for line in (*lines, result.line()):
            for file in self._files:
                file.write(json.dumps(line) + "\n")
                file.flush()
