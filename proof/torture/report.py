"""The result of a run: its progress while it runs, and its report, as JSON and as Markdown.

Values, and how they are written down. A report names its seed and how to repeat it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proof.torture.plan import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from proof.torture.recoveries import Recovery

JSON_NAME: Final = "report.json"
PAGE_NAME: Final = "report.md"
CRASHES: Final = ("kill postmaster", "kill backend")
SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is. phase: what it is doing; violations: seen so far; made: faults by kind."""

    phase: str
    elapsed_s: float
    seconds: float
    acknowledged: int
    replies: int
    kills: int
    unknown: int
    made: dict[str, int]
    violations: int

    @property
    def kills_per_minute(self) -> float:
        """Processes killed a minute, so far."""
        return 60 * self.kills / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a run. All times are in seconds unless the name says otherwise.

    acknowledged: different requests, as the checker counts them. kills: processes killed with -9,
    by the conductor; crashes: from which PostgreSQL has recovered, as its log says. poisoned,
    starved: servers that a request, or the want of memory, has killed. not_made: faults that could
    not be made, with why. unknown: commits whose conclusion was compared with the truth;
    unknown_others: those whose was not. falls: charges for falls of the database that coincided.
    found_after_s: when the first violation was seen, if one
    was.
    """

    seed: int
    seconds: float
    wound_up_s: float
    acknowledged: int
    replies: int
    executions: int
    faults: dict[str, int]
    not_made: list[str]
    kills: int
    kills_per_minute: float
    crashes: int
    poisoned: int
    starved: int
    unknown: dict[str, int]
    unknown_others: dict[str, int]
    recoveries: list[Recovery]
    falls: int
    events: int
    events_per_s: int
    violations: list[str] = field(default_factory=list[str])
    found_after_s: float | None = None
    repeat: str

    @property
    def unknown_total(self) -> int:
        """Unknown commits whose conclusion was compared with the truth."""
        return sum(self.unknown.values())

    def made(self, what: str) -> int:
        """Returns how many faults were made whose kind begins with a word."""
        return sum(count for kind, count in self.faults.items() if kind.split()[0] == what)

    def to_builtins(self) -> dict[str, Any]:
        """Returns it in JSON's form."""
        return asdict(self)

    def save(self, place: Path) -> None:
        """Writes report.json and report.md."""
        (place / JSON_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        (place / PAGE_NAME).write_text(f"# Torture\n\n{self.page()}", "utf-8")

    def page(self) -> str:
        """Returns it in Markdown, without a heading."""
        return "\n".join([*self._summary(), *self._faults(), *self._violations()]) + "\n"

    def summary(self) -> dict[str, str]:
        """Returns what a person wants to know first, by name."""
        unknown = ", ".join(f"{count} {name}" for name, count in self.unknown.items())
        return {
            "seed": str(self.seed),
            "seconds of faults, and to wind up": f"{self.seconds:.0f} + {self.wound_up_s:.0f}",
            "requests acknowledged": f"{self.acknowledged:,}",
            "replies received": f"{self.replies:,}",
            "executions begun": f"{self.executions:,}",
            "processes killed with -9": f"{self.kills:,} ({self.kills_per_minute:.0f} a minute)",
            "crashes of PostgreSQL": f"{self.crashes:,}",
            "connections cut": f"{self.made('cut'):,}",
            "sessions ended": f"{self.made('end'):,}",
            "links that fell silent": f"{self.made('silence'):,}",
            "servers killed by a poison request": f"{self.poisoned:,}",
            "servers that memory ran out for": f"{self.starved:,}",
            "unknown commits resolved": f"{self.unknown_total:,} ({unknown})",
            "unknown commits judged by the history alone": ", ".join(
                f"{count} {name}" for name, count in self.unknown_others.items()
            ),
            "charges for falls of PostgreSQL that coincided": f"{self.falls:,}",
            "history events checked": f"{self.events:,} ({self.events_per_s:,} a second)",
            "violations": f"{len(self.violations):,}",
        }

    def _summary(self) -> list[str]:
        table = [f"| {name} | {value} |" for name, value in self.summary().items()]
        return ["| what | |", "|---|---|", *table, "", f"Repeat: `{self.repeat}`", ""]

    def _faults(self) -> list[str]:
        felt = {one.kind: one for one in self.recoveries}
        lines = [
            "From the fault to the next reply: to that client, by that server, or to anybody.",
            "",
            "| fault | how | made | median ms | p99 ms | max ms |",
            "|---|---|--:|--:|--:|--:|",
        ]
        for name, kind in BY_NAME.items():
            made = self.faults.get(name, 0)
            lines.append(f"| {name} | {kind.text} | {made:,} | {_times(felt.pop(name, None))} |")
        lines += [
            f"| {name} | | {one.count:,} of these | {_times(one)} |" for name, one in felt.items()
        ]
        return [*lines, "", *(f"- not made: {text}" for text in self.not_made), ""]

    def _violations(self) -> list[str]:
        if not self.violations:
            return ["No violation was found."]
        shown = [f"- {text}" for text in self.violations[:SHOWN_MAX]]
        left = len(self.violations) - len(shown)
        after = (
            f"first seen after {self.found_after_s:.0f} s" if self.found_after_s else "at the end"
        )
        return [f"Violations, {after}:", "", *shown, *([f"- and {left} more"] if left > 0 else [])]


def _times(one: Recovery | None) -> str:
    return "- | - | -" if one is None else f"{one.median_ms} | {one.p99_ms} | {one.max_ms}"


def reasons(not_made: Counter[tuple[str, str]]) -> list[str]:
    """Returns what could not be made, and why, for a report."""
    return [f"{kind}, {count} times: {why}" for (kind, why), count in sorted(not_made.items())]
