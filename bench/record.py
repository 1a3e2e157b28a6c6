"""What was last recorded, and what has moved since: unchanged, faster, slower.

`bench/recorded.json` is committed, and written only by `--record`, from a tree without changes.
What counts as unchanged follows from the recorded spread: a noisy pair must move further
than a quiet one. Ratios carry over from one machine to another of its class. All else, rates and
sizes, is recorded for a machine, and compared only on that machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.results import Better, Result

PATH = Path(__file__).with_name("recorded.json")
QUIETEST = 0.05
"""No pair is trusted to less than this share of its ratio."""
QUIETEST_ALONE = 0.2
"""Nor is a rate to less than this: the same machine is this much slower when others use it."""
QUIETEST_COUNTED = 0.02
"""Nor is a count of instructions, which knows no noise, but a little of how tables are filled."""
RATIO = "ratio"
COUNTED = "k instructions"
ON = " on "
"""Between the name of a result and the machine, in the record."""

Moved = Literal["new", "unchanged", "faster", "slower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of one result: the median, least and greatest of its rounds.

    revision: of the tree that it is of.
    """

    value: float
    low: float
    high: float
    better: Better = "more"
    unit: str = RATIO
    revision: str = ""

    @property
    def tolerance(self) -> float:
        """How far a new median may be from the recorded one: the recorded spread, or more."""
        quietest = {RATIO: QUIETEST, COUNTED: QUIETEST_COUNTED}.get(self.unit, QUIETEST_ALONE)
        return max(self.high - self.low, quietest * self.value)


def recordable(
    results: Iterable[Result], machine: str = "", revision: str = ""
) -> dict[str, Recorded]:
    """Return what to record; values that are not ratios are for this machine."""
    return {
        result.name if result.unit == RATIO else f"{result.name}{ON}{machine}": Recorded(
            value=round(result.value, 4),
            low=round(min(result.rounds), 4),
            high=round(max(result.rounds), 4),
            better=result.better,
            unit=result.unit,
            revision=revision,
        )
        for result in results
        if result.value is not None
    }


def of_machine(recorded: Mapping[str, Recorded], machine: str) -> dict[str, Recorded]:
    """Return what a run on this machine is compared with, by the names of results."""
    found: dict[str, Recorded] = {}
    for key, one in recorded.items():
        name, _, where = key.partition(ON)
        if one.unit == RATIO or where == machine:
            found[name] = one
    return found


def moved(result: Result, recorded: Mapping[str, Recorded]) -> Moved | None:
    """Return what became of a result since it was recorded; None if it has no value."""
    if result.value is None:
        return None
    before = recorded.get(result.name)
    if before is None:
        return "new"
    gain = result.value - before.value
    if abs(gain) <= before.tolerance:
        return "unchanged"
    return "faster" if (gain > 0) == (before.better == "more") else "slower"


def lost(
    names: Iterable[str], results: Iterable[Result], recorded: Mapping[str, Recorded]
) -> list[str]:
    """Return which of the names were recorded but have no value now."""
    valued = {result.name for result in results if result.value is not None}
    return [name for name in names if name in recorded and name not in valued]


def read(path: Path = PATH) -> dict[str, Recorded]:
    """Return what was recorded; nothing if there is no record."""
    if not path.exists():
        return {}
    return {name: Recorded(**held) for name, held in json.loads(path.read_text()).items()}


def write(recorded: Mapping[str, Recorded], path: Path = PATH) -> None:
    """Record these, and keep what else was recorded."""
    kept = {**read(path), **recorded}
    held = {name: asdict(kept[name]) for name in sorted(kept)}
    path.write_text(json.dumps(held, indent=1) + "\n")
