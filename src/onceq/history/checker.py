"""The checker itself: reads the final state and the events, and asks each part for what is wrong.

`check` is for events in memory, `check_files` for files of events, of which it holds no more at a
time than the clients that share files. Invariants: linear in the number of events; each event is
handled by the function for its type; no order of files is assumed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onceq.history import answers, judgements
from onceq.history import events as ev
from onceq.history.blame import Facts
from onceq.history.clients import judge_client, judge_silent
from onceq.history.diary import Diary
from onceq.history.elements import TAKE, Others
from onceq.history.events import Client
from onceq.history.events.files import EVENTS_PATTERN, read
from onceq.history.table import Table
from onceq.history.violation import Violation

Owned = defaultdict[Client, list[ev.ClientEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of checking some files. events: lines read; rows: of the final state.

    acknowledged: different requests whose send had returned or was shown to have taken effect.
    """

    violations: list[Violation]
    events: int
    rows: int
    acknowledged: int


def check(events: Iterable[ev.Event], final: ev.FinalState) -> list[Violation]:
    """Returns every violation found; an empty list means that G1 to G8 (and G12) are kept."""
    checker = Checker(final)
    checker.places(final.places)
    checker.effects(final.effects)
    owned: Owned = defaultdict(list)
    checker.take(events, owned)
    checker.judge_clients(owned)
    return checker.violations()


def check_files(folder: Path, final: ev.StoredFinal | None = None) -> Report:
    """Checks the files of events in a folder against `final`, or the final state saved there.

    Raises FileNotFoundError if none was saved, msgspec.DecodeError for a line that is not an event.
    """
    stored = final or ev.StoredFinal.open(folder)
    checker = Checker(stored.stated)
    checker.places(stored.places())
    checker.effects(stored.effects())
    paths = sorted(folder.glob(EVENTS_PATTERN))
    whose = {path: checker.read(path) for path in paths}
    for group in _sharing(whose):
        owned: Owned = defaultdict(list)
        for path in group:
            checker.read_clients(path, owned)
        checker.judge_clients(owned)
    found = checker.violations()
    return Report(
        violations=found,
        events=checker.events,
        rows=checker.rows,
        acknowledged=checker.acknowledged,
    )


class Checker:
    """Judges a history, or a part of one: all that is said of the clients and elements in it.

    Takes the places first, then the effects, then events that are not clients', then the clients'.
    """

    def __init__(self, final: ev.FinalState) -> None:
        self._final = final
        self._table = Table()
        self._others = Others(self._table)
        self._found: list[Violation] = []
        self._clients: set[Client] = set()
        self.events = self.rows = self.acknowledged = 0

    def places(self, places: Iterable[ev.Place]) -> None:
        """Takes places."""
        for place in places:
            self._table.place(place)
            self.rows += 1

    def effects(self, effects: Iterable[ev.Effect]) -> None:
        """Takes rows of the ledger of effects."""
        for effect in effects:
            self._table.effect(effect)
            self.rows += 1

    def take(self, events: Iterable[ev.Event], owned: Owned) -> None:
        """Takes events: clients' are kept for `judge_clients`, the others are handled at once."""
        others = self._others
        for event in events:
            taker = TAKE.get(type(event))
            if taker is not None:
                taker(others, event)
            elif isinstance(event, ev.ClientEvent):
                owned[event.client].append(event)

    def read(self, path: Path) -> set[Client]:
        """Takes a file's events that are not clients'; returns the clients of the others."""
        others, whose = self._others, set[Client]()
        registrant = thread = None
        for events in read(path):
            self.events += len(events)
            for event in events:
                taker = TAKE.get(type(event))
                if taker is not None:
                    taker(others, event)
                elif isinstance(event, ev.ClientEvent) and (
                    event.registrant != registrant or event.thread != thread
                ):
                    registrant, thread = event.registrant, event.thread
                    whose.add((registrant, thread))
        return whose

    @staticmethod
    def read_clients(path: Path, owned: Owned) -> None:
        """Reads the clients' events of a file."""
        own: list[ev.ClientEvent] = []
        registrant = thread = None
        for events in read(path):
            for event in events:
                if isinstance(event, ev.ClientEvent):
                    if event.registrant != registrant or event.thread != thread:
                        registrant, thread = event.registrant, event.thread
                        own = owned[registrant, thread]
                    own.append(event)

    def judge_clients(self, owned: Owned) -> None:
        """Judges clients whose events are all here."""
        for client in list(owned):
            diary = Diary(client)
            diary.run(owned.pop(client))
            self._clients.add(client)
            self._found += diary.found
            self._found += judge_client(diary, self._table)
            self.acknowledged += sum(one.acked_at is not None for one in diary.requests.values())
            own = self._table.by_client.get(client, {})
            for rid in self._others.killed.intersection(diary.requests).intersection(own):
                acked_at = diary.requests[rid].acked_at
                if acked_at is not None:
                    own[rid].acked_at = acked_at

    def violations(self, facts: Facts | None = None) -> list[Violation]:
        """Judges the elements, and returns all that was found. facts: None: this is everything."""
        table, others, final = self._table, self._others, self._final
        answers.tell_kills(others)
        found = self._found + table.found
        for client in table.replies.keys() - self._clients:
            found += judge_silent(client, table)
        found += table.effects_found()
        found += judgements.judge_all(table, others, final, facts or others.facts())
        found += answers.judge_kills(others)
        found += answers.judge_redrives(others)
        found += answers.judge_enqueued(others, all_recorded=final.all_recorded)
        if final.all_recorded:
            found += answers.judge_cancelled(table)
            found += self._strangers()
        return found

    def _strangers(self) -> Iterator[Violation]:
        """Yields what is there of clients about whom nothing was recorded (G4)."""
        table = self._table
        for client in (table.by_client.keys() | table.replies.keys()) - self._clients:
            rids = table.by_client.get(client, {}).keys() | table.replies.get(client, {}).keys()
            for rid in rids:
                yield Violation("G4", rid, f"{client[0]}: is there, and nobody sent it")


def _sharing(whose: dict[Path, set[Client]]) -> Iterator[list[Path]]:
    """Yields the files with clients' events, grouped by the clients that they share."""
    files_of: defaultdict[Client, list[Path]] = defaultdict(list)
    for path, clients in whose.items():
        for client in clients:
            files_of[client].append(path)
    seen: set[Path] = set()
    for path, clients in whose.items():
        if path in seen or not clients:
            continue
        seen.add(path)
        group = [path]
        for member in group:  # it grows while it is walked
            for client in whose[member]:
                news = [other for other in files_of.pop(client, []) if other not in seen]
                seen.update(news)
                group += news
        yield group
