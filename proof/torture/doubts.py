"""Unknown commits: what was concluded from each after recovery, and what the database says.

A client whose send was in doubt learns at its next connect whether it took effect; the final state
must say the same: what took effect is there, and what did not is nowhere; or, if it was sent again,
it was new then.
A server concludes nothing; what it was finishing must have finished once. A receive, a kill, a
datagram in doubt are what the next connect, lookup or registration shows: the history checker
compares them. Given events in any order; judges, and repairs nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.history.events import Connected, Doubted, KillFailed, SendBegun, SendFailed, SendOk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceq.history.events import Client, Event
    from onceq.history.events.files import StoredFinal


@dataclass(slots=True)
class Doubts:
    """What became of unknown commits.

    took_effect, did_not: sends, as their clients concluded, compared with the database; unheard:
    with nothing, as those who sent again were killed before an answer. finishes: of servers.
    others: receives, acknowledges, kills, datagrams. wrong: where the database says otherwise.
    """

    took_effect: int = 0
    did_not: int = 0
    unheard: int = 0
    finishes: int = 0
    others: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """All of them."""
        return self.took_effect + self.did_not + self.unheard + self.finishes + self.others


class Resolution:
    """Collects what is in doubt (`take`), then what was sent again (`count`), then resolves it."""

    def __init__(self) -> None:
        self._doubts = Doubts()
        self._own: defaultdict[Client, list[SendFailed | Connected]] = defaultdict(list)
        self._eids: list[str] = []
        self._unknown: set[tuple[Client, str]] = set()
        self._begun: Counter[tuple[Client, str]] = Counter()
        self._again: defaultdict[tuple[Client, str], list[SendOk | SendFailed]] = defaultdict(list)

    def take(self, event: Event) -> None:
        """Takes an event, on the first pass."""
        if isinstance(event, Connected):
            self._own[event.client].append(event)
        elif isinstance(event, SendFailed) and event.unknown:
            self._own[event.client].append(event)
            self._unknown.add((event.client, event.rid))
        elif isinstance(event, Doubted) and event.what == "finish":
            self._doubts.finishes += 1
            self._eids += event.eids
        elif isinstance(event, Doubted) or (isinstance(event, KillFailed) and event.unknown):
            self._doubts.others += 1

    def count(self, event: Event) -> None:
        """Takes an event, on the second pass: how often what was in doubt was sent, and came."""
        if isinstance(event, (SendOk, SendFailed)) and (event.client, event.rid) in self._unknown:
            self._again[event.client, event.rid].append(event)
        if isinstance(event, SendBegun) and (event.client, event.rid) in self._unknown:
            self._begun[event.client, event.rid] += 1

    def resolve(self, final: StoredFinal) -> Doubts:
        """Returns what became of every unknown commit."""
        there: defaultdict[Client, set[str]] = defaultdict(set)
        finished: Counter[str] = Counter()
        eids = set(self._eids)
        for place in final.places():
            client = (place.registrant or "", place.thread or "")
            if (client, place.rid) in self._unknown:
                there[client].add(place.rid)
            if place.eid in eids:
                finished[place.eid] += place.state == "finished"
        self._doubts.wrong += [
            f"a finish in doubt: {eid} finished {finished[eid]} times"
            for eid in self._eids
            if finished[eid] != 1
        ]
        for client, own in self._own.items():
            own.sort(key=lambda event: (event.epoch, event.at))
            self._resolve_sends(client, own, there[client])
        return self._doubts

    def _resolve_sends(
        self, client: Client, own: Iterable[SendFailed | Connected], there: set[str]
    ) -> None:
        unknown: list[str] = []
        for event in own:
            if isinstance(event, SendFailed):
                unknown.append(event.rid)
            elif unknown:
                if event.s_rid in unknown:
                    self._doubts.took_effect += 1
                    wrong = [rid for rid in unknown if rid not in there]
                else:
                    wrong = self._resolve_vain(client, unknown, event, there)
                if wrong:
                    shown = f"connect showed {event.s_rid!r}, and the database says otherwise"
                    self._doubts.wrong.append(f"sends in doubt {wrong[:3]}: {shown}")
                unknown = []

    def _resolve_vain(
        self, client: Client, unknown: list[str], shown: Connected, there: set[str]
    ) -> list[str]:
        """Returns what is there of sends that were shown as vain.

        Or what was, when it was sent again: a send says whether there was such a request already.
        """
        since, found = (shown.epoch, shown.at), dict[str, bool]()
        for rid in unknown:
            later = [e for e in self._again[client, rid] if (e.epoch, e.at) > since]
            first = min(later, key=lambda one: (one.epoch, one.at), default=None)
            if self._begun[client, rid] == 1:
                found[rid] = rid in there
            elif isinstance(first, SendOk):
                found[rid] = first.state != "new"
        self._doubts.did_not += bool(found)
        self._doubts.unheard += not found
        return [rid for rid, was_there in found.items() if was_there]
