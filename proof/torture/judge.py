"""The judgement: the whole history against the guarantees, and what only this run can know.

Called once, when everything has ended. The history checker judges G1 to G8 and G12; here are added:
the evidence for whatever was executed again or charged, what waited too long, the lines that the
testable devices printed, what was ordered once and booked twice, the datagrams, the doubts, and
whoever died of something that nobody had done to it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.history import check_files
from onceq.history.events import Enqueued, FinalState, ReplyEvent
from onceq.history.events.files import EVENTS_PATTERN, read
from proof.torture.doubts import Doubts, Resolution
from proof.torture.evidence import Evidence, load_aborts
from proof.torture.life import ABORT_LIMIT, SPARK_CLIENT
from proof.torture.recoveries import Marks, Recovery, Waits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceq.history.events import Event
    from onceq.history.events.files import StoredFinal

FELT_NS: Final = 10_000_000_000
"""How long after its event a fault may still be felt: none lasts longer than 6 s."""

STATED: Final = FinalState(
    places=(),
    effects=(),
    effects_each=1,
    abort_limit=ABORT_LIMIT,
    all_recorded=True,
    unrecorded=(SPARK_CLIENT,),
    slack=FELT_NS,
)
"""What is known of the end of every run: all participants record all that they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found. faults: by kind, as written down. took_s: reading and checking.

    acknowledged: different requests. falls: charges for falls of the database that coincided.
    """

    violations: list[str]
    doubts: Doubts
    recoveries: list[Recovery]
    faults: dict[str, int]
    acknowledged: int
    events: int
    took_s: float
    falls: int


def judge(place: Path, final: StoredFinal) -> Judgement:
    """Judges what the participants have written down in a run's directory."""
    events = place / "events"
    began = time.monotonic()
    checked = check_files(events, final)
    took_s = time.monotonic() - began
    aborts = load_aborts(place)
    unrecorded = frozenset(one.eid for one in final.places() if one.registrant == SPARK_CLIENT)
    resolution, marks, said = Resolution(), Marks(), _Said()
    evidence, waits = Evidence(aborts, unrecorded), Waits()
    for event in _all(events):
        for one in (resolution, marks, said, evidence, waits):
            one.take(event)
    for event in _all(events):
        resolution.count(event)
        evidence.again(event)
    doubts = resolution.resolve(final)
    violations = [str(one) for one in checked.violations]
    violations += [f"G6 doubt: {text}" for text in doubts.wrong]
    violations += marks.late()
    violations += waits.late(frozenset(one.eid for one in aborts if one.charge == "suspect"))
    violations += evidence.wrong()
    violations += _booked_twice(final)
    violations += said.datagrams(final)
    violations += said.printed(place / "lines")
    return Judgement(
        violations=violations,
        doubts=doubts,
        recoveries=marks.recoveries(),
        faults=dict(Counter(fault.what for fault in marks.faults)),
        acknowledged=checked.acknowledged,
        events=checked.events,
        took_s=took_s,
        falls=evidence.falls,
    )


def _all(folder: Path) -> Iterator[Event]:
    """Yields every event, file by file."""
    for path in sorted(folder.glob(EVENTS_PATTERN)):
        for piece in read(path):
            yield from piece


def _booked_twice(final: StoredFinal) -> Iterator[str]:
    """Yields what a client had ordered once, and several requests have done."""
    booked: dict[str, str] = {}
    for effect in final.effects():
        if booked.setdefault(effect.key, effect.eid) != effect.eid:
            yield f"G2 {effect.key}: was ordered once, and booked by several requests"


class _Said:
    """What clients say that they were handed, and what they say that they enqueued."""

    def __init__(self) -> None:
        self._handed: defaultdict[str, set[str]] = defaultdict(set)
        self._enqueued: set[str] = set()

    def take(self, event: Event) -> None:
        if isinstance(event, Enqueued):
            self._enqueued.add(event.eid)
        elif isinstance(event, ReplyEvent) and event.ckpt is not None:
            self._handed[event.registrant].add(event.rid)

    def datagrams(self, final: StoredFinal) -> Iterator[str]:
        """Yields acknowledged datagrams that are nowhere (G4), or in two places."""
        there: Counter[str] = Counter()
        for place in final.places():
            if place.eid in self._enqueued and place.state != "held":
                there[place.eid] += 1
        for eid in self._enqueued:
            if there[eid] != 1:
                yield f"G4 {eid}: an acknowledged datagram is in {there[eid]} places"

    def printed(self, lines: Path) -> Iterator[str]:
        """Yields what a testable device printed twice, or not at all (C8)."""
        for device in sorted(lines.iterdir()):
            found = Counter(device.read_text().splitlines())
            for rid, times in found.items():
                if times > 1:
                    yield f"C8 {rid}: was printed {times} times"
            for rid in self._handed[device.name] - found.keys():
                yield f"C8 {rid}: its reply was handed out, and never printed"
