"""The judgement: the whole history against the guarantees, and what only this run can know.

Called once, when everything has ended. The history checker judges G1 to G8 and G12; here are added:
the lines that the testable devices printed, what was ordered once and booked twice, the datagrams,
the doubts, and whoever died of something that nobody had done to it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.testing.events import Enqueued, Fault, ReplyEvent, load
from onceq.testing.history import check
from onceq.testing.torture.doubts import Doubts, resolve
from onceq.testing.torture.recoveries import Recovery, recoveries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from onceq.testing.events import Event, FinalState


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found. faults: by kind, as written down. took_s: reading and checking."""

    violations: list[str]
    doubts: Doubts
    recoveries: list[Recovery]
    faults: dict[str, int]
    events: int
    took_s: float


def judge(place: Path, final: FinalState) -> Judgement:
    """Judges what the participants have written down in a run's directory."""
    began = time.monotonic()
    events = load((place / "events").glob("*.events"))
    violations = [str(one) for one in check(events, final)]
    took_s = time.monotonic() - began
    doubts = resolve(events, final)
    violations += [f"G6 doubt: {text}" for text in doubts.wrong]
    violations += _booked_twice(final)
    violations += _datagrams(events, final)
    violations += _printed(place, events)
    faults = Counter(event.what for event in events if isinstance(event, Fault))
    return Judgement(
        violations=violations,
        doubts=doubts,
        recoveries=recoveries(events),
        faults=dict(faults),
        events=len(events),
        took_s=took_s,
    )


def _booked_twice(final: FinalState) -> Iterator[str]:
    """Yields what a client had ordered once, and two requests have done."""
    by_key: defaultdict[str, set[str]] = defaultdict(set)
    for effect in final.effects:
        by_key[effect.key].add(effect.eid)
    for key, eids in by_key.items():
        if len(eids) > 1:
            yield f"G2 {key}: was ordered once, and booked by {len(eids)} requests"


def _datagrams(events: Iterable[Event], final: FinalState) -> Iterator[str]:
    """Yields acknowledged datagrams that are nowhere (G4), or in two places."""
    there = Counter(place.eid for place in final.places if place.role == "datagram")
    for eid in {event.eid for event in events if isinstance(event, Enqueued)}:
        if there[eid] != 1:
            yield f"G4 {eid}: an acknowledged datagram is in {there[eid]} places"


def _printed(place: Path, events: Iterable[Event]) -> Iterator[str]:
    """Yields what a testable device printed twice, or not at all (C8)."""
    handed: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if isinstance(event, ReplyEvent):
            handed[event.registrant].add(event.rid)
    for device in sorted((place / "lines").iterdir()):
        lines = Counter(device.read_text().splitlines())
        for rid, times in lines.items():
            if times > 1:
                yield f"C8 {rid}: was printed {times} times"
        for rid in handed[device.name] - lines.keys():
            yield f"C8 {rid}: its reply was handed out, and never printed"
