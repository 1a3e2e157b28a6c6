"""How long each fault was felt: from the fault to the next reply.

For a client, its own next reply; for a server, its own next execution, which is sooner answered
for than replied to; for anything else the next reply to anybody. A fault after which nothing
came, because the run ended, is not counted.
"""

from __future__ import annotations

import bisect
from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.testing.events import Executed, Fault, ReplyEvent

if TYPE_CHECKING:
    from onceq.testing.events import Event

SPARK: Final = "-spark"
OF_SPARK: Final = "(of Spark)"
"""A client of Spark waits for as long as Spark takes to begin: half a busy minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recoveries from one kind of fault, in milliseconds."""

    kind: str
    count: int
    median_ms: float
    p99_ms: float
    max_ms: float


class Marks:
    """Collects faults, and the moments at which things went on."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._marks: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def take(self, event: Event) -> None:
        """Takes an event."""
        if isinstance(event, ReplyEvent):
            self._marks[event.registrant].append(event.at)
            self._marks[""].append(event.at)
        elif isinstance(event, Executed):
            self._marks[event.actor.rpartition(" ")[2]].append(event.at)
        elif isinstance(event, Fault):
            self.faults.append(event)

    def recoveries(self) -> list[Recovery]:
        """Returns the recoveries by kind of fault."""
        marks = {name: sorted(times) for name, times in self._marks.items()}
        felt: defaultdict[str, list[float]] = defaultdict(list)
        for fault in self.faults:
            times = marks.get(fault.target) or marks.get("", [])
            index = bisect.bisect(times, fault.at)
            if index < len(times):
                of = f" {OF_SPARK}" if fault.target.endswith(SPARK) else ""
                felt[fault.what + of].append((times[index] - fault.at) / 1e6)
        return [_recovery(kind, sorted(found)) for kind, found in sorted(felt.items())]


def _recovery(kind: str, found: list[float]) -> Recovery:
    return Recovery(
        kind=kind,
        count=len(found),
        median_ms=round(found[len(found) // 2], 1),
        p99_ms=round(found[min(len(found) - 1, len(found) * 99 // 100)], 1),
        max_ms=round(found[-1], 1),
    )
