"""The last recorded ratios, and what has moved since: unchanged, faster, slower.

`bench/recorded.json` is committed, and written only by `--record`. What counts as unchanged
follows from the spread that was recorded: a noisy pair must move further than a quiet one.
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
UNITS = ("ratio",)
"""Only these carry over from one machine to another of its class."""

Moved = Literal["new", "unchanged", "faster", "slower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of one result: the median, least and greatest of its rounds."""

    value: float
    low: float
    high: float
    better: Better = "more"

    @property
    def tolerance(self) -> float:
        """How far a new median may be from the recorded one: the recorded spread, or more."""
        return max(self.high - self.low, QUIETEST * self.value)


def recordable(results: Iterable[Result]) -> dict[str, Recorded]:
    """Return what is to be recorded of the results that have a ratio."""
    return {
        result.name: Recorded(
            value=round(result.value, 4),
            low=round(min(result.rounds), 4),
            high=round(max(result.rounds), 4),
            better=result.better,
        )
        for result in results
        if result.value is not None and result.unit in UNITS
    }


def moved(result: Result, recorded: Mapping[str, Recorded]) -> Moved | None:
    """Return what became of a ratio since it was recorded; None when there is no ratio."""
    if result.value is None or result.unit not in UNITS:
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
    """Return which of the names were recorded, and have no value now."""
    valued = {result.name for result in results if result.value is not None}
    return [name for name in names if name in recorded and name not in valued]


def read(path: Path = PATH) -> dict[str, Recorded]:
    """Return what was recorded; nothing when nothing was."""
    if not path.exists():
        return {}
    return {name: Recorded(**held) for name, held in json.loads(path.read_text()).items()}


def write(recorded: Mapping[str, Recorded], path: Path = PATH) -> None:
    """Record these, and keep what else was recorded."""
    kept = {**read(path), **recorded}
    held = {name: asdict(kept[name]) for name in sorted(kept)}
    path.write_text(json.dumps(held, indent=1) + "\n")
