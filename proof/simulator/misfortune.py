"""What happens to the participants of a simulation: faults, and how Ops are performed or lost.

Used by the simulator. A fault hits one Op of one participant: its process dies before or after
it, the request or the answer is lost, the database finishes it later (a ghost) or crashes, a
second life of a client begins, what a server holds is revoked, a machine loses its power.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceq import errors
from onceq.history import events as ev
from onceq.model import ops
from onceq.model.element import Lane
from proof.oracle import Blocked
from proof.simulator import steps
from proof.simulator.cast import Actor, Cast, Variant
from proof.simulator.participants import Death, PowerCut

if TYPE_CHECKING:
    from proof.oracle import Session
    from proof.oracle.memory import MemoryDriver

FAULT_STEPS = 600
SERVER_DEATHS_MAX = 2
"""Deaths, and losses of a taker, that may charge whoever is innocent."""
DEATHS = ("die before", "die after")
LOSSES = ("lost request", "lost answer", "ghost commits", "ghost rolls back", "database crash")
FAULTS = (*DEATHS, *LOSSES, "second life", "abandoned", "power cut")
KEPT_FOR = {
    "Acknowledge": 0.5,
    "CountOutstanding": 0.1,
    "ListAttempts": 0.5,
    "LookUp": 1.0,
    "Peek": 0.1,
    "Receive": 0.02,
    "Redrive": 0.2,
    "Settle": 0.2,
}
"""Ops for each of which a fault is kept, and how likely it hits. The others are spent by then."""
LATE = frozenset(("ListAttempts", "Peek", "Redrive", "Settle"))
"""Those of an operator; the rest are of `submit` and `collect`."""
USUALLY = 0.1
CHANCES = {
    **dict.fromkeys(("Claim", "Survey", "ListQueues", "Receive"), 0.04),
    **dict.fromkeys(
        (
            *("BeginWork", "FindRequests", "Identify"),
            *("Acknowledge", "ClaimEid", "CloseIncarnation", "Deregister", "DestroyQueue"),
            *(
                "EnqueueMany",
                "ListClients",
                "ListServers",
                "MeasureRates",
                "ReadElement",
                "Redrive",
                "ReplyTaken",
                "RidRange",
            ),
            "Undo",
        ),
        0.5,
    ),
    "AbortTaken": 0.9,
}
"""How likely a fault hits an Op that is performed often, or seldom."""
INSIDE = (
    ops.BeginWork,
    ops.Call,
    ops.Keep,
    ops.ReplyTaken,
    ops.Rollback,
    ops.Start,
    ops.Take,
    ops.Undo,
    steps.CallerWrites,
)
"""Ops of a transaction that others end: a ghost of one never commits."""
NEVER = (*(ops.Wait, ops.Sleep, ops.Rouse, ops.Stopping, ops.IsAlive), ops.Posted, steps.Renew)
"""Ops that no fault hits: nothing is performed, or, of Posted, nothing was posted."""
STARTING = (ops.Begin, ops.Start, ops.Take)
STEPS = frozenset(
    (steps.Caller, steps.CallerBegins, steps.CallerWrites, steps.DiskStep, steps.Renew)
)


@dataclass(frozen=True, slots=True)
class Offer:
    """An Op that a fault could hit: its name, and which faults."""

    op: str
    faults: tuple[str, ...]


@dataclass(slots=True)
class Coverage:
    """What was tried. ops: performed. offers: what a fault could hit. hits: what it did."""

    ops: Counter[str] = field(default_factory=Counter[str])
    offers: set[Offer] = field(default_factory=set[Offer])
    hits: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, other: Coverage) -> None:
        """Adds what another schedule has tried."""
        self.ops.update(other.ops)
        self.offers |= other.offers
        self.hits.update(other.hits)

    def missing(self) -> list[tuple[str, str]]:
        """Returns each Op with a fault that could have hit it and never did."""
        possible = {(offer.op, fault) for offer in self.offers for fault in offer.faults}
        return sorted(possible - self.hits.keys())


def plain(op: ops.Op[Any]) -> ops.Op[Any]:
    """Returns the Op itself, where it is one of a caller's own connection."""
    return op.op if isinstance(op, steps.Caller) else op


def commits(op: ops.Op[Any]) -> bool:
    """Returns whether an Op ends the transaction that it is performed in."""
    return isinstance(op, ops.Commit) or (isinstance(op, ops.Finish) and op.commit)


class Misfortune(Cast):
    """The participants, and the faults that hit them.

    only: of the faults that are drawn, by their number from 0 on, those that hit; None: all.
    """

    def __init__(self, seed: int, variant: Variant, only: frozenset[int] | None) -> None:
        super().__init__(seed, variant)
        self.coverage = Coverage()
        self._only = only
        self._ghosts: list[tuple[Session, bool]] = []
        self._epochs: dict[int, int] = {}
        self._left = self._chance.choice((0, 1, 2, 3, 4, 6, 8))
        self._kept = set(KEPT_FOR)
        self._drawn = 0
        self._hit: list[int] = []
        self._deaths = 0

    # --- how an Op is performed ---------------------------------------------------------------

    def _do(self, actor: Actor, op: ops.Op[Any]) -> Any:
        """Performs an Op, or a step, of a participant."""
        if type(op) not in STEPS:  # most are of a participant's own connection
            return actor.driver.perform_once(op)
        match op:
            case steps.Renew():
                return self._renew(actor)
            case steps.DiskStep():
                assert actor.machine is not None  # noqa: S101 # whoever has a disk step has a disk
                return actor.machine.perform(actor, op)
            case steps.CallerBegins():
                return self.oracle.begin(self._connected(actor).session)
            case steps.CallerWrites():
                session = self._of(actor, op).session
                if session.is_over:
                    raise errors.ConnectionLost("the caller's connection is lost")
                return self.oracle.effect(session, op.key, op.element)
            case _:
                return self._of(actor, op).perform_once(plain(op))

    def _of(self, actor: Actor, op: ops.Op[Any]) -> MemoryDriver:
        """Returns the connection on which an Op is performed."""
        if isinstance(op, (steps.Caller, steps.CallerBegins, steps.CallerWrites)):
            return actor.caller or actor.driver
        return actor.driver

    def _connected(self, actor: Actor) -> MemoryDriver:
        if actor.caller is None or actor.caller.session.is_over or self._haunts(actor.caller):
            actor.caller = self._driver(None)
        self.oracle.rollback(actor.caller.session)
        return actor.caller

    def _renew(self, actor: Actor) -> bool:
        broken = actor.driver.session.is_over or self._haunts(actor.driver)
        if broken:
            actor.driver = self._driver(actor.process)
        return broken

    def _haunts(self, driver: MemoryDriver) -> bool:
        """Returns whether the session of a connection that was lost is still in the database."""
        return any(session is driver.session for session, _ in self._ghosts)

    def _perform(self, actor: Actor, op: ops.Op[Any]) -> Any:
        answer = self._do(actor, op)
        inner = plain(op)
        kind = type(inner)
        self.coverage.ops[kind.__name__] += 1
        if isinstance(inner, STARTING):
            if answer is not False:
                self._started(inner)
        elif isinstance(inner, ops.Connect):
            self._epochs[answer.registrant_id] = answer.epoch
        elif isinstance(inner, ops.Register):
            self._epochs[answer[0].registrant_id] = answer[0].epoch
        elif getattr(inner, "who", None) is not None:
            self._judge_epoch(inner)
        return answer

    def _judge_epoch(self, op: Any) -> None:
        """Notes that an Op of an epoch that is over has taken effect."""
        if op.who.epoch < self._epochs.get(op.who.registrant_id, 0):
            text = f"{type(op).__name__} of an old epoch took effect"
            self.world.broken.append(("G6", getattr(op, "rid", None), text))

    def _started(self, op: ops.Begin | ops.Start | ops.Take) -> None:
        row = self.oracle.state.elements.rows.get(op.seq)
        if row is not None:
            self.world.ledger.may_be_lost(row)
            self.world.record(ev.Started, "server", rid=row.rid, eid=str(row.eid))

    # --- faults -------------------------------------------------------------------------------

    def _faults_of(self, actor: Actor, op: ops.Op[Any]) -> tuple[str, ...]:
        """Returns the faults that may hit an Op of a participant."""
        if isinstance(op, NEVER):
            return ()
        machine = ("power cut",) if actor.machine is not None else ()
        if isinstance(op, steps.DiskStep):
            return (*DEATHS, *machine)
        inside = self._of(actor, op).session.transaction is not None and not commits(plain(op))
        inside = inside or isinstance(plain(op), INSIDE)
        possible = [one for one in LOSSES if not (inside and one == "ghost commits")]
        if actor.fences:
            possible.append("second life")
        elif actor.session is not None and actor.session.incarnation is not None:
            possible.append("abandoned")
        return (*DEATHS, *possible, *machine)

    def _draw(self, actor: Actor, op: ops.Op[Any]) -> str | None:
        """Returns the fault that hits now, if any."""
        if self.world.step > FAULT_STEPS:
            return None
        fault = self._kept_for(actor, op) or self._drawn_by_chance(actor, op)
        if fault is None:
            return None
        self._drawn += 1
        if self._only is not None and self._drawn - 1 not in self._only:
            return None
        name = type(plain(op)).__name__
        self._hit.append(self._drawn - 1)
        self._deaths += self._costs(actor, fault)
        self.coverage.hits[name, fault] += 1
        self.world.record(ev.Fault, actor.name, what=fault, target=name)
        return fault

    def _kept_for(self, actor: Actor, op: ops.Op[Any]) -> str | None:
        """Returns the fault that was kept for this Op, when it hits now.

        While that acknowledges what it wrote it is a power cut; else any.
        """
        name = type(plain(op)).__name__
        if actor.machine is None and name not in LATE:
            return None
        if name not in self._kept or not self.world.likely(KEPT_FOR[name]):
            return None
        self._kept.discard(name)
        if isinstance(op, ops.Acknowledge):
            return "power cut"
        return self._chance.choice(self._faults_of(actor, op))

    def _drawn_by_chance(self, actor: Actor, op: ops.Op[Any]) -> str | None:
        if not self._left:
            return None
        name = type(plain(op)).__name__
        faults = self._faults_of(actor, op)
        if not faults:
            return None
        self.coverage.offers.add(Offer(name, faults))
        if not self.world.likely(CHANCES.get(name, USUALLY)):
            return None
        fault = self._chance.choice(faults)
        if self._costs(actor, fault) and self._deaths >= SERVER_DEATHS_MAX:
            return None
        self._left -= 1
        return fault

    def _costs(self, actor: Actor, fault: str) -> bool:
        """Returns whether a fault may charge whoever is innocent."""
        return actor.caller is not None or (fault in DEATHS and actor.process is not None)

    def _suffer(self, actor: Actor, op: ops.Op[Any], fault: str) -> Any:
        driver = self._of(actor, op)
        is_inside = driver.session.transaction is not None and not commits(plain(op))
        match fault:
            case "die before":
                raise Death
            case "die after":
                self._perform(actor, op)
                raise Death
            case "power cut":
                self._cut_power(actor, op)
            case "lost request":
                self._lose(driver, lingers=self.world.likely(0.5))
                raise errors.ConnectionLost("the request was lost")
            case "lost answer":
                self._perform(actor, op)
                self._lose(driver, lingers=is_inside and self.world.likely(0.5))
            case "ghost commits" | "ghost rolls back":
                self._haunt(actor, op, commits=fault == "ghost commits")
            case "database crash":
                self._crash(actor, op)
            case _:
                self._beset(actor)
                return self._perform(actor, op)
        raise errors.ConnectionLost("lost") if is_inside else errors.InDoubt("the answer was lost")

    def _crash(self, actor: Actor, op: ops.Op[Any]) -> None:
        """Crashes the database, before or after the Op."""
        if self.world.likely(0.5):
            self._perform(actor, op)
        self._ghosts.clear()
        clean = self.world.likely(0.2)
        self._note_suspects()
        self.oracle.crash(clean=clean)
        if not clean:
            self.world.ledger.crashed_at = self.world.step

    def _note_suspects(self) -> None:
        """Records the suspects that are claimed and have not begun: a crash charges them too."""
        state = self.oracle.state
        slots = {row.incarnation: row.slot for row in state.servers.rows.values()}
        for row in state.elements.rows.values():
            slot = slots.get(row.claimed_by or 0)
            if slot is None or row.lane != Lane.SUSPECT:
                continue
            if state.markers.get(slot) != row.seq:
                self.world.ledger.may_be_lost(row)
                what = {"what": ev.HELD_IN_CRASH, "target": str(row.eid), "rid": row.rid}
                self.world.record(ev.Fault, "server", **what)

    def _cut_power(self, actor: Actor, op: ops.Op[Any]) -> None:
        """Ends all that runs on the machine of an actor, and what its disk had not made to last."""
        if self.world.likely(0.7):
            self._perform(actor, op)
        if actor.machine is not None:
            actor.machine.power_cut()
        raise PowerCut

    def _beset(self, actor: Actor) -> None:
        """Begins a second life of a client, or revokes what a server holds, as a stop does."""
        if actor.again is not None:
            actor.again()
        elif actor.session is not None and actor.session.incarnation is not None:
            operator = self._driver(None)
            operator.perform(ops.CloseIncarnation(incarnation=actor.session.incarnation))
            operator.end()

    def _lose(self, driver: MemoryDriver, *, lingers: bool) -> None:
        """Loses a connection; a transaction that is open may linger in the database."""
        session = driver.session
        if lingers and session.transaction is not None:
            self._ghosts.append((session, False))
        else:
            self.oracle.end(session)

    def _haunt(self, actor: Actor, op: ops.Op[Any], *, commits: bool) -> None:
        """Loses a connection while the database is still at the Op, and will end it later."""
        if isinstance(op, steps.CallerBegins):
            self._connected(actor)
        driver, inner = self._of(actor, op), plain(op)
        session = driver.session
        begins = isinstance(op, steps.CallerBegins)
        alone = session.transaction is None and not isinstance(inner, (ops.Begin, ops.BeginWork))
        if alone:
            self.oracle.begin(session)
        try:
            if isinstance(inner, ops.Finish):
                driver.perform_once(replace(inner, commit=False))
            elif not begins and not isinstance(inner, (ops.Commit, ops.Rollback, ops.Call)):
                self._do(actor, op)
        except (Blocked, errors.OnceqError):
            if alone:
                self.oracle.rollback(session)
            raise
        if isinstance(inner, STARTING):
            self._started(inner)
        self._ghosts.append((session, commits))

    def _end_ghost(self) -> str:
        """Ends a transaction that lingered; says how."""
        session, commits = self._ghosts.pop(self._chance.randrange(len(self._ghosts)))
        try:
            if commits:
                self.oracle.commit(session)
        except errors.OnceqError:
            self.oracle.rollback(session)
        self.oracle.end(session)
        return f"a ghost {'commits' if commits else 'rolls back'}"
