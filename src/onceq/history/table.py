"""The final state, and what events say of it: one record for each element.

Private to the checker. The final state is read into it first. Then servers' and killers' events
are added to the record of their element, in any order. Then each record is judged once. This is
what the checker keeps in memory, so each value is kept once.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from onceq.history import words
from onceq.history.events import Client, Effect, Place
from onceq.history.violation import Violation

REJECTED = frozenset({"Reject", "HandlerMisuse", "InvalidValue", "rejected"})
"""Abort codes that fail an element at once, whatever its limit."""

NEVER = -1
_WORDS_MAX = 1000


class Element(Struct, gc=False):
    """All that is known of a request or a datagram, by its eid.

    From the final state: role ("" if it is nowhere), outcome and ends (rows of history), state and
    lives (rows of queues), held and unheld (in its error queue, and taken from there), aborts (of
    one run), charges (of all), failed_after (how many aborts, unless it was rejected), code,
    correlation_id, is_volatile. From the ledger: effects, with the first one's key and xid. From
    events: executed, started; attempt, the highest; raised, excused: aborts recorded; retried:
    those of the excused that a handler asked for; ran_at, ran_before: the last two executions;
    ran_first, ran_by: an execution before all others, and who ran one; kills: those that may have
    taken effect; told_at: when its end was first known to somebody; acked_at: when its send was
    acknowledged, if somebody killed it. void: a connect has shown that it was not submitted.
    """

    eid: str
    rid: str
    who: Client | None = None
    role: str = ""
    outcome: str | None = None
    ends: int = 0
    state: str = ""
    lives: int = 0
    held: int = 0
    unheld: int = 0
    aborts: int = 0
    charges: int = 0
    failed_after: int = NEVER
    code: str | None = None
    correlation_id: str | None = None
    effects: int = 0
    key: str = ""
    xid: str = ""
    executed: int = 0
    started: int = 0
    attempt: int = 0
    raised: int = 0
    excused: int = 0
    retried: int = 0
    ran_at: int = NEVER
    ran_before: int = NEVER
    ran_first: int = NEVER
    ran_by: str = ""
    kills: int = 0
    told_at: int = NEVER
    acked_at: int = NEVER
    void: bool = False
    is_volatile: bool = False

    def places(self) -> str:
        """Returns where it is, in words."""
        named = [f"{self.role} finished {self.outcome}"] * self.ends
        named += [f"{self.role} {self.state}"] * self.lives
        return ", ".join(named + [words.HELD] * self.held) or "nowhere"


class WaitingReply(Struct, gc=False):
    """A reply that is still there in the end. correlation_id: the request's eid, if known."""

    eid: str
    outcome: str | None
    correlation_id: str | None


class Table:
    """The final state by eid and by (client, rid), and the errors found within it."""

    def __init__(self) -> None:
        self.elements: dict[str, Element] = {}
        self.by_client: dict[Client, dict[str, Element]] = {}
        self.replies: dict[Client, dict[str, WaitingReply]] = {}
        self.found: list[Violation] = []
        self.effects_twice: dict[tuple[str, str], int] = {}
        self._words: dict[str, str] = {}
        self._clients: dict[Client, Client] = {}
        self._who: Client | None = None
        self._by_rid: dict[str, list[Element]] = {}

    def element(self, eid: str, rid: str) -> Element:
        """Returns the record of an element, made if there is none."""
        found = self.elements.get(eid)
        if found is None:
            found = self.elements[eid] = Element(eid, rid)
        return found

    def named(self, eid: str, rid: str) -> Element | None:
        """Returns the record of an eid or, without one, of a rid that only one element has."""
        if eid:
            return self.elements.get(eid)
        same = self._of_rid(rid)
        return same[0] if len(same) == 1 else None

    def _of_rid(self, rid: str) -> list[Element]:
        if not self._by_rid:
            for element in self.elements.values():
                self._by_rid.setdefault(element.rid, []).append(element)
        return self._by_rid.get(rid, [])

    # --- places -------------------------------------------------------------------------------

    def place(self, row: Place) -> None:
        """Takes a row of the requests view."""
        who: Client | None = None
        if row.registrant is not None:
            who = self._who
            if who is None or who[0] != row.registrant or who[1] != (row.thread or ""):
                who = (row.registrant, row.thread or "")
                who = self._who = self._clients.setdefault(who, who)
        if row.role == words.REPLY or _is_held_reply(row):
            self._reply(row, who)
            return
        element = self.element(row.eid, row.rid)
        if row.role == words.IN_ERROR_QUEUE:
            element.held += row.state != words.FINISHED
            element.unheld += row.state == words.FINISHED
            element.who = element.who or who
            return
        if who is not None:
            self._only_one(element, who)
        element.who, element.role = who, self.shared(row.role)
        element.aborts = max(element.aborts, row.aborts)
        element.charges += row.aborts
        element.is_volatile = row.is_volatile
        element.correlation_id = row.correlation_id
        if row.state == words.FINISHED:
            self._ended(element, row)
        else:
            element.lives, element.state = element.lives + 1, self.shared(row.state)

    def _only_one(self, element: Element, who: Client) -> None:
        others = self.by_client.setdefault(who, {})
        if others.setdefault(element.rid, element) is not element:
            text = f"{who[0]}: in several places: as {element.eid} too"
            self.found.append(Violation("G4", element.rid, text))

    def _ended(self, element: Element, row: Place) -> None:
        element.ends += 1
        if row.outcome == words.FAILED and row.code not in REJECTED:
            element.failed_after = row.aborts
        if element.outcome in {None, words.FAILED}:  # a datagram that failed may have been redriven
            element.outcome = None if row.outcome is None else self.shared(row.outcome)
            element.code = None if row.code is None else self.shared(row.code)

    def _reply(self, row: Place, who: Client | None) -> None:
        if who is None:
            self.found.append(Violation("G4", row.rid, "a reply of nobody"))
            return
        replies = self.replies.setdefault(who, {})
        if row.rid in replies:
            text = f"{who[0]}: in several places: two replies wait"
            self.found.append(Violation("G4", row.rid, text))
        replies[row.rid] = WaitingReply(row.eid, row.outcome, row.correlation_id)

    def shared(self, word: str) -> str:
        """Returns a word that many records have, kept once."""
        found = self._words.get(word)
        if found is None:
            found = word
            if len(self._words) < _WORDS_MAX:
                self._words[word] = word
        return found

    # --- the ledger ---------------------------------------------------------------------------

    def effect(self, row: Effect) -> None:
        """Takes a row of the ledger of effects."""
        element = self._whose(row)
        element.effects += 1
        if element.effects == 1:
            element.key, element.xid = self.shared(row.key), row.xid
            return
        if row.xid != element.xid:
            text = "its effects were committed by several transactions"
            self.found.append(Violation("G2", element.rid, text))
        keys = self.effects_twice
        if element.effects == 2:
            keys[element.eid, element.key] = 1
        keys[element.eid, row.key] = keys.get((element.eid, row.key), 0) + 1

    def _whose(self, row: Effect) -> Element:
        """Returns an effect's owner: of several with its rid, one that is done and has fewest."""
        same = [] if row.eid else self._of_rid(row.rid)
        if not same:
            return self.element(row.eid or f"rid {row.rid}", row.rid)
        return min(same, key=lambda one: (one.outcome != words.DONE, one.effects))

    def effects_found(self) -> Iterator[Violation]:
        """Yields the effects that committed more than once."""
        for (eid, key), times in self.effects_twice.items():
            if times > 1:
                rid = self.elements[eid].rid
                yield Violation("G2", rid, f"its effect {key!r} committed {times} times")


def _is_held_reply(row: Place) -> bool:
    """Whether a row of an error queue is a reply whose processing failed; it shows an end."""
    is_there = row.role == words.IN_ERROR_QUEUE and row.state != words.FINISHED
    return is_there and row.outcome is not None
