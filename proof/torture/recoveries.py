"""How long each fault was felt: from the fault to the next reply.

For a client, this lasts until its own next reply; for a server, until its own next execution, which
it can answer for sooner than for a reply; for anything else, and for those with nothing more to do,
until the next reply to anybody. A fault after which nothing came was felt until the last recorded
event. How long each may be felt is bounded (G12); the bounds hold on a machine busy with ten
others.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.history.events import Enqueued, Executed, Fault, ReplyEvent, SendOk
from proof.torture.evidence import UNDONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.history.events import Event

SPARK: Final = "-spark"
OF_SPARK: Final = "(of Spark)"
"""A client of Spark waits for as long as Spark takes to begin: half a busy minute."""
LIMIT_S: Final = 120.0
AFTER_S: Final = 60.0
"""This long after the last fault nothing waits: no back-off here is longer than 5 s."""
OVERTAKEN_S: Final = 30.0
SPARK_LIMIT_S: Final = 600.0


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
        self._last = 0
        self._marks: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def take(self, event: Event) -> None:
        """Takes an event."""
        self._last = max(self._last, event.at)
        if isinstance(event, ReplyEvent):
            self._marks[event.registrant].append(event.at)
            self._marks[""].append(event.at)
        elif isinstance(event, Executed):
            self._marks[event.actor.rpartition(" ")[2]].append(event.at)
        elif isinstance(event, Fault) and event.what != UNDONE:
            self.faults.append(event)

    def recoveries(self) -> list[Recovery]:
        """Returns the recoveries by kind of fault."""
        felt: defaultdict[str, list[float]] = defaultdict(list)
        for fault, until in self._felt():
            if until is not None:
                of = f" {OF_SPARK}" if fault.target.endswith(SPARK) else ""
                felt[fault.what + of].append((until - fault.at) / 1e6)
        return [_recovery(kind, sorted(found)) for kind, found in sorted(felt.items())]

    def late(self) -> Iterator[str]:
        """Yields the faults that were felt for longer than they may be (G12)."""
        for fault, until in self._felt():
            is_spark = until is None or SPARK[1:] in f"{fault.what} {fault.target}"
            limit = SPARK_LIMIT_S if is_spark else LIMIT_S
            took = ((self._last if until is None else until) - fault.at) / 1e9
            if took > limit:
                text = f"was felt for {took:.0f} s, at most {limit:.0f} s are allowed"
                yield f"G12 {fault.what} {fault.target}: {text}"

    def _felt(self) -> Iterator[tuple[Fault, int | None]]:
        """Yields each fault, and when things went on."""
        marks = {name: sorted(times) for name, times in self._marks.items()}
        for fault in self.faults:
            yield fault, _next(marks, fault.target, fault.at) or _next(marks, "", fault.at)


class Waits:
    """How long each element has waited to be executed: first, and again (G12).

    After the last fault nothing waits for longer than AFTER_S. Under faults that never stop
    everything waits, on a busy machine for long. One that waited beyond the limit is late if
    another of its sender's, which began to wait OVERTAKEN_S later, was executed OVERTAKEN_S
    earlier; but a suspect is executed alone, one at a time in the repository, and may be overtaken:
    each fall of the database makes some of all that is under way.
    """

    def __init__(self) -> None:
        self._last_fault = 0
        self._sent: dict[str, tuple[int, str, str]] = {}
        self._ran: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def take(self, event: Event) -> None:
        """Takes an event."""
        if isinstance(event, Executed):
            self._ran[event.eid].append(event.at)
        elif isinstance(event, Fault) and event.what != UNDONE:
            self._last_fault = max(self._last_fault, event.at, event.until)
        elif isinstance(event, Enqueued) or (isinstance(event, SendOk) and event.state == "new"):
            self._sent[event.eid] = (event.at, event.actor, event.rid)

    def late(self, suspects: frozenset[str]) -> Iterator[str]:
        """Yields what waited for longer than it may. suspects: the eids that were any time."""
        waits: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for eid, (at, sender, rid) in self._sent.items():
            times = sorted([at, *self._ran.get(eid, ())])
            waited_s = (times[-1] - max(times[-2:][0], self._last_fault)) / 1e9
            if waited_s > AFTER_S:
                yield f"G12 {rid}: waited {waited_s:.0f} s after the last fault"
            if eid not in suspects:
                waits[sender] += [(begin, end, rid) for begin, end in itertools.pairwise(times)]
        for those in waits.values():
            yield from _overtaken(sorted(those))


def _overtaken(waits: list[tuple[int, int, str]]) -> Iterator[str]:
    begins = [begin for begin, _, _ in waits]
    ends = [end for _, end, _ in reversed(waits)]
    first = [*itertools.accumulate(ends, min)][::-1]  # the end of it or of a later one
    for begin, end, rid in waits:
        later = bisect.bisect(begins, begin + OVERTAKEN_S * 1e9)
        is_overtaken = later < len(waits) and first[later] < end - OVERTAKEN_S * 1e9
        if is_overtaken and end - begin > LIMIT_S * 1e9:
            yield f"G12 {rid}: waited {(end - begin) / 1e9:.0f} s, and others did not"


def _next(marks: dict[str, list[int]], target: str, at: int) -> int | None:
    times = marks.get(target, [])
    index = bisect.bisect(times, at)
    return times[index] if index < len(times) else None


def _recovery(kind: str, found: list[float]) -> Recovery:
    return Recovery(
        kind=kind,
        count=len(found),
        median_ms=round(found[len(found) // 2], 1),
        p99_ms=round(found[min(len(found) - 1, len(found) * 99 // 100)], 1),
        max_ms=round(found[-1], 1),
    )
