"""Unknown commits: what was concluded from each after recovery, and what the database says.

A client whose send was in doubt learns at its next connect whether it took effect; the final state
must say the same: what took effect is there, and what did not is nowhere, unless it was sent again.
A server concludes nothing; what it was finishing must have finished once. A datagram's sender
learns from its registration. Reads events, judges, and repairs nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.testing.events import (
    ClientEvent,
    Connected,
    Doubted,
    FinalState,
    SendBegun,
    SendFailed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceq.testing.events import Client, Event


@dataclass(slots=True)
class Doubts:
    """What became of unknown commits.

    took_effect, did_not: sends, as their clients concluded. finishes: of servers. others: receives,
    acknowledges, datagrams, ...: their next connect shows them. wrong: where the database says
    otherwise.
    """

    took_effect: int = 0
    did_not: int = 0
    finishes: int = 0
    others: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """All of them."""
        return self.took_effect + self.did_not + self.finishes + self.others


def resolve(events: Iterable[Event], final: FinalState) -> Doubts:
    """Returns what became of every unknown commit."""
    doubts = Doubts()
    by_client: defaultdict[Client, list[ClientEvent]] = defaultdict(list)
    finished = Counter(place.eid for place in final.places if place.state == "finished")
    for event in events:
        if isinstance(event, (SendBegun, SendFailed, Connected)):
            by_client[event.client].append(event)
        elif isinstance(event, Doubted):
            if event.what != "finish":
                doubts.others += 1
                continue
            doubts.finishes += 1
            doubts.wrong += [
                f"a finish in doubt: {eid} finished {finished[eid]} times"
                for eid in event.eids
                if finished[eid] != 1
            ]
    there: defaultdict[Client, set[str]] = defaultdict(set)
    for place in final.places:
        there[place.registrant or "", place.thread or ""].add(place.rid)
    for client, own in by_client.items():
        own.sort(key=lambda event: (event.epoch, event.at))
        _resolve_sends(doubts, own, there[client])
    return doubts


def _resolve_sends(doubts: Doubts, own: list[ClientEvent], there: set[str]) -> None:
    begun = Counter(event.rid for event in own if isinstance(event, SendBegun))
    unknown: list[str] = []
    for event in own:
        if isinstance(event, SendFailed) and event.unknown:
            unknown.append(event.rid)
        elif isinstance(event, Connected) and unknown:
            if event.s_rid in unknown:
                doubts.took_effect += 1
                missing = [rid for rid in unknown if rid not in there]
            else:
                doubts.did_not += 1
                missing = [rid for rid in unknown if rid in there and begun[rid] == 1]
            if missing:
                shown = f"connect showed {event.s_rid!r}, and the database says otherwise"
                doubts.wrong.append(f"sends in doubt {missing[:3]}: {shown}")
            unknown = []
