"""The history checker: one linear pass over the events, then the final state, against G1 to G8.

`check(events, final)` for the simulator and for crash tests; events and files are those of
`onceq.testing.events`. Invariants: it knows nothing of how onceq works, only what it promises
(spec 2); events of one registrant are taken by (epoch, at), so that an older life that writes
late is judged as what it was. Never looks at a clock or a database.

What must be recorded: `SendBegun` before each send, and `ReceiveBegun` before each receive with a
checkpoint and each acknowledge, or a death in between looks like a loss.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.testing import events as ev
from onceq.testing.events import FinalState, Place, Recorder, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceq.testing.events import Client

__all__ = ["FinalState", "Place", "Recorder", "Violation", "check", "load"]

REJECTED = frozenset({"Reject", "HandlerMisuse", "InvalidValue"})
"""Abort codes that fail an element at once, whatever its limit."""

_REQUEST_ROLES = frozenset({"request", "datagram"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that was broken: its id (G1 to G12), the rid if any, and how."""

    guarantee: str
    rid: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee} {self.rid or '-'}: {self.text}"


@dataclass(slots=True)
class _Life:
    """What a client's events say, so far.

    stable: the rid that a connect must show; maybe: begun since, in doubt. void: a connect has
    shown that these were not submitted. r_known, ckpt_known: whether a connect must show
    `received_last` and `ckpt`. handed: replies by rid, the first time. held: the reply that the
    next send acknowledges.
    """

    client: Client
    found: list[Violation] = field(default_factory=list[Violation])
    begun: dict[str, ev.SendBegun] = field(default_factory=dict[str, ev.SendBegun])
    acked: dict[str, int] = field(default_factory=dict[str, int])
    void: set[str] = field(default_factory=set[str])
    maybe: list[str] = field(default_factory=list[str])
    handed: dict[str, ev.ReplyEvent] = field(default_factory=dict[str, ev.ReplyEvent])
    stable: str | None = None
    current: str | None = None
    epoch: int = 0
    may_have_ended: bool = False
    r_known: bool = True
    received_last: str | None = None
    ckpt_known: bool = True
    ckpt: bytes | None = None
    held: str | None = None

    def broken(self, guarantee: str, rid: str | None, text: str) -> None:
        self.found.append(Violation(guarantee, rid, f"{self.client[0]}: {text}"))

    def take(self, event: ev.ClientEvent) -> None:
        match event:
            case ev.Connected():
                self._connected(event)
            case ev.SendBegun() | ev.SendOk() | ev.SendFailed():
                self._sending(event)
            case ev.ReplyEvent():
                self._reply(event)
            case ev.ReceiveBegun():
                self.r_known = False
            case ev.DisconnectBegun():
                self.may_have_ended, self.r_known = True, False
            case ev.Satisfied():
                self._satisfied()
            case _:
                pass

    def _connected(self, event: ev.Connected) -> None:
        if event.epoch <= self.epoch:
            self.broken("G6", None, f"epoch {event.epoch} was given to two lives")
        if event.was == "new" and self.epoch:
            self.broken("G6", None, "a connect says 'new' of a registrant that was there before")
        if event.was == "disconnected" and not self.may_have_ended:
            self.broken("G6", None, "a connect says 'disconnected' of one that never did")
        self.epoch, self.may_have_ended = event.epoch, False
        self._shown_sent(event.s_rid)
        self._shown_received(event)

    def _shown_sent(self, s_rid: str | None) -> None:
        if s_rid != self.stable and s_rid not in self.maybe:
            self.broken("G6", s_rid, f"connect shows {s_rid!r} sent last; {self.stable!r} was")
        first_void = self.maybe.index(s_rid) + 1 if s_rid in self.maybe else 0
        later = self.maybe[first_void:]
        self.void.update(rid for rid in later if rid not in self.acked and rid != s_rid)
        self.maybe = []
        self.stable = self.current = s_rid
        if s_rid is not None:
            self.acked.setdefault(s_rid, 0)
            self.void.discard(s_rid)

    def _shown_received(self, event: ev.Connected) -> None:
        if self.r_known and event.r_rid != self.received_last:
            shown = f"connect shows {event.r_rid!r} received last; {self.received_last!r} was"
            self.broken("G6", event.r_rid, shown)
        elif self.r_known and self.ckpt_known and event.ckpt != self.ckpt:
            shown = f"connect shows checkpoint {event.ckpt!r}; {self.ckpt!r} was given"
            self.broken("G6", event.r_rid, shown)
        if event.r_rid is not None and event.r_rid not in self.begun:
            self.broken("G6", event.r_rid, "connect shows a reply received to what was never sent")
        self._stable_receive(event.r_rid, event.ckpt)
        self.held = event.r_rid

    def _stable_receive(self, rid: str | None, ckpt: bytes | None) -> None:
        self.r_known, self.received_last = True, rid
        self.ckpt_known, self.ckpt = True, ckpt

    def _sending(self, event: ev.SendBegun | ev.SendOk | ev.SendFailed) -> None:
        rid = event.rid
        match event:
            case ev.SendBegun():
                self.begun[rid] = event
                self.void.discard(rid)
                self.maybe.append(rid)
                self.r_known = self.r_known and self.held == self.received_last
            case ev.SendOk(state="new"):
                self.acked[rid] = event.at
                self.maybe, self.stable, self.current = [], rid, rid
                self._acknowledged(rid)
            case ev.SendOk():
                self.acked.setdefault(rid, event.at)
                self.current = rid
            case ev.SendFailed():
                if not event.unknown:
                    self.maybe.remove(rid)

    def _acknowledged(self, rid: str) -> None:
        if rid in self.begun and self.begun[rid].alone:
            self.r_known = True
            self.ckpt_known = self.ckpt_known and self.held == self.received_last
            self.received_last = self.held

    def _reply(self, event: ev.ReplyEvent) -> None:
        rid = event.rid
        if rid not in self.begun:
            self.broken("G1", rid, "a reply to what was never sent")
        elif self.begun[rid].alone and rid not in {self.current, self.stable}:
            self.broken("G1", rid, f"a reply while {self.current!r} is outstanding")
        if event.answers is not None and event.answers != rid:
            self.broken("G1", rid, f"its reply answers {event.answers!r}")
        first = self.handed.setdefault(rid, event)
        if _content(first) != _content(event):
            self.broken("G5", rid, f"handed out as {_content(first)}, then as {_content(event)}")
        self.held = rid
        if isinstance(event, ev.Received) and event.ckpt is not None:
            self._stable_receive(rid, event.ckpt)

    def _satisfied(self) -> None:
        for rid in self.acked:
            if rid not in self.handed:
                self.broken("G5", rid, "its reply was never handed out")


def _content(event: ev.ReplyEvent) -> tuple[str, str, str]:
    return (event.eid, event.outcome, event.digest)


def check(events: Iterable[ev.Event], final: FinalState) -> list[Violation]:
    """Returns every violation found; an empty list is a history that keeps G1 to G8 (and G12)."""
    lives, others = _sorted(events)
    places = _Places(final)
    found: list[Violation] = []
    for life in lives.values():
        found += life.found
        found += _client_against(life, places, final)
    found += places.strangers(lives)
    found += _effects(places, final, lives)
    found += _executions(others, places, lives)
    found += _kills(others, places, lives)
    return found


def _sorted(events: Iterable[ev.Event]) -> tuple[dict[Client, _Life], list[ev.Event]]:
    by_client: defaultdict[Client, list[ev.ClientEvent]] = defaultdict(list)
    others: list[ev.Event] = []
    for event in events:
        if isinstance(event, ev.ClientEvent):
            by_client[event.client].append(event)
        else:
            others.append(event)
    lives: dict[Client, _Life] = {}
    for client, own in by_client.items():
        life = lives[client] = _Life(client)
        own.sort(key=lambda event: (event.epoch, event.at))
        for event in own:
            life.take(event)
    return lives, others


class _Places:
    """The final state, by rid and by eid."""

    def __init__(self, final: FinalState) -> None:
        self.by_rid: defaultdict[tuple[Client, str], list[Place]] = defaultdict(list)
        self.finished: defaultdict[str, list[Place]] = defaultdict(list)
        self.live: dict[str, Place] = {}
        self.by_name: defaultdict[str, list[Place]] = defaultdict(list)
        for place in final.places:
            if place.registrant is not None:
                self.by_rid[(place.registrant, place.thread or ""), place.rid].append(place)
            if place.state == "finished":
                self.finished[place.eid].append(place)
                self.by_name[place.rid].append(place)
            elif place.role in _REQUEST_ROLES:
                self.live[place.eid] = place

    def ended(self, eid: str, rid: str) -> Place | None:
        """Returns how an element ended; by rid where the eid is not known and the rid is unique."""
        rows = self.finished.get(eid, []) if eid else self.by_name.get(rid, [])
        return rows[0] if rows and (eid or len(rows) == 1) else None

    def strangers(self, lives: dict[Client, _Life]) -> Iterator[Violation]:
        """Yields what is there and was never sent."""
        for client, rid in self.by_rid:
            if client in lives and rid not in lives[client].begun:
                yield Violation("G4", rid, f"{client[0]}: is there and was never sent")


def _client_against(life: _Life, places: _Places, final: FinalState) -> Iterator[Violation]:
    who = life.client[0]
    for rid, begun in life.begun.items():
        rows = places.by_rid.get((life.client, rid), [])
        ended = [row for row in rows if row.state == "finished"]
        live = [row for row in rows if row.state != "finished" and row.role != "failed"]
        if rid in life.acked:
            yield from _one_place(who, rid, live, ended)
        if rid in life.void and rows:
            yield Violation(
                "G6", rid, f"{who}: took effect after connect had shown that it did not"
            )
        if len(ended) > 1 or len(live) > 1:
            yield Violation("G4", rid, f"{who}: in several places: {_named(rows)}")
        elif ended and any(row.role == "request" for row in live):
            yield Violation("G4", rid, f"{who}: finished and still there: {_named(rows)}")
        if final.finished and any(row.role == "request" for row in live):
            yield Violation("G12", rid, f"{who}: never finished: {_named(live)}")
        if ended:
            yield from _outcome(life, begun, ended[0], final)


def _one_place(who: str, rid: str, live: list[Place], ended: list[Place]) -> Iterator[Violation]:
    if not live and not ended:
        yield Violation("G4", rid, f"{who}: acknowledged and lost")
    elif not ended and live[0].role == "reply":
        yield Violation("G4", rid, f"{who}: replied to without having finished")


def _named(rows: list[Place]) -> str:
    return ", ".join(f"{row.role} {row.state} {row.outcome or ''}".strip() for row in rows)


def _outcome(
    life: _Life, begun: ev.SendBegun, ended: Place, final: FinalState
) -> Iterator[Violation]:
    who, rid, outcome = life.client[0], begun.rid, ended.outcome
    told = life.handed.get(rid)
    if told is not None and told.outcome != outcome:
        yield Violation("G2", rid, f"{who}: was told {told.outcome}, history says {outcome}")
    if begun.expects == "done" and outcome == "failed":
        yield Violation("G7", rid, f"{who}: an innocent was convicted: {ended.code}")
    if begun.expects == "failed" and outcome == "done":
        yield Violation("G7", rid, f"{who}: was to fail and is done")
    counted = outcome == "failed" and ended.code not in REJECTED
    if counted and final.abort_limit is not None and ended.aborts != final.abort_limit:
        limit = final.abort_limit
        yield Violation(
            "G7", rid, f"{who}: failed after {ended.aborts} aborts, the limit is {limit}"
        )


def _effects(places: _Places, final: FinalState, lives: dict[Client, _Life]) -> Iterator[Violation]:
    void = {rid for life in lives.values() for rid in life.void}
    seen: Counter[tuple[str, str]] = Counter((e.eid or e.rid, e.key) for e in final.effects)
    with_effect: set[str] = set()
    for effect in dict.fromkeys((e.eid, e.rid, e.key) for e in final.effects):
        eid, rid, key = effect
        with_effect.update((eid, f"rid {rid}"))
        times = seen[eid or rid, key]
        if times > 1:
            yield Violation("G2", rid, f"its effect {key!r} committed {times} times")
        yield from _effect_allowed(places, eid, rid, void)
    if not final.effects_expected:
        return
    for eid, rows in places.finished.items():
        row = rows[0]
        if row.outcome == "done" and not with_effect & {eid, f"rid {row.rid}"}:
            yield Violation("G2", row.rid, "is done and its effect is not there")


def _effect_allowed(places: _Places, eid: str, rid: str, void: set[str]) -> Iterator[Violation]:
    ended = places.ended(eid, rid)
    if rid in void:
        yield Violation("G6", rid, "an effect of what connect had shown as not submitted")
    if ended is None:
        if eid or rid not in places.by_name:
            yield Violation("G2", rid, "its effect is there and it has not finished")
    elif ended.outcome == "cancelled":
        yield Violation("G8", rid, "was killed, and its effect is there")
    elif ended.outcome != "done":
        yield Violation("G3", rid, f"is {ended.outcome}, and its effect is there")


def _executions(
    others: list[ev.Event], places: _Places, lives: dict[Client, _Life]
) -> Iterator[Violation]:
    told_at = _failures_told(places, lives)
    executed: Counter[str] = Counter()
    started: Counter[str] = Counter()
    faults = sum(isinstance(event, ev.Fault) for event in others)  # a death may precede the handler
    for event in others:
        if isinstance(event, ev.Executed):
            executed[event.eid] += 1
            if told_at.get(event.eid, event.at) < event.at:
                yield Violation("G3", event.rid, "was executed after its failure had been told")
        elif isinstance(event, ev.Started):
            started[event.eid] += 1
    for eid, rows in places.finished.items():
        row = rows[0]
        counted = row.outcome == "failed" and row.code not in REJECTED
        if executed and counted and executed[eid] + faults < row.aborts:
            text = f"charged {row.aborts} times, executed {executed[eid]} times"
            yield Violation("G7", row.rid, text)
        elif started and started[eid] < row.aborts:
            text = f"charged {row.aborts} times, started {started[eid]} times"
            yield Violation("G7", row.rid, text)


def _failures_told(places: _Places, lives: dict[Client, _Life]) -> dict[str, int]:
    """Maps the eid of each request that a client was told to have failed to when it was told."""
    return {
        row.eid: told.at
        for life in lives.values()
        for rid, told in life.handed.items()
        if told.outcome in {"failed", "expired"}
        for row in places.by_rid.get((life.client, rid), [])
        if row.state == "finished"
    }


def _kills(
    others: list[ev.Event], places: _Places, lives: dict[Client, _Life]
) -> Iterator[Violation]:
    acked_at = {rid: at for life in lives.values() for rid, at in life.acked.items()}
    begun_at: dict[tuple[str, str], int] = {}
    for event in others:
        if isinstance(event, ev.KillBegun):
            begun_at[event.actor, event.rid] = event.at
        elif isinstance(event, ev.KillAnswered):
            began = begun_at.get((event.actor, event.rid), event.at)
            known = acked_at.get(event.rid, began) < began
            ended = places.ended(event.eid, event.rid)
            text = _wrong_answer(
                event.answer, None if ended is None else ended.outcome, known=known
            )
            if text:
                yield Violation("G8", event.rid, text)


def _wrong_answer(answer: str, outcome: str | None, *, known: bool) -> str | None:
    if answer == "NOT_FOUND":
        return "a kill did not find what had been acknowledged" if known else None
    if (answer == "KILLED") is (outcome == "cancelled") and outcome is not None:
        return None
    return f"the kill answered {answer}, history says {outcome}"
