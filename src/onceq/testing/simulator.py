"""The simulator: seeded schedules of clients, servers, killers and faults over the memory driver.

`python -m onceq.testing.simulator --seed N` replays one schedule and says every step. One seed is
one schedule, for ever the same on one version of onceq. At each step one participant performs one
Op, or a fault hits it: its process dies before or after the Op, the request or the answer is
lost, the database finishes it later (a ghost) or crashes, a second life of a client begins. When
the faults have stopped, all must finish (G12), and the history must keep G1 to G8.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.model import ops
from onceq.model.oracle import Blocked
from onceq.testing import events as ev
from onceq.testing.cast import Actor, Cast, Variant
from onceq.testing.history import FinalState, Place, Violation, check
from onceq.testing.participants import ABORT_LIMIT, Death

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.oracle import Session

STEPS_MAX = 6000
IDLE_ROUNDS_MAX = 200
FAULT_STEPS = 160
SERVER_DEATHS_MAX = 2
FAULTS = (
    "die before",
    "die after",
    "lost request",
    "lost answer",
    "ghost commits",
    "ghost rolls back",
    "database crash",
    "second life",
    "abandoned",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule came to. steps: how long it was; faults: how many hit."""

    seed: int
    violations: list[Violation]
    steps: int
    faults: int


class Simulation(Cast):
    """One schedule. say: told every step, when somebody wants to know."""

    def __init__(
        self, seed: int, variant: Variant | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, variant or Variant())
        self.seed = seed
        self._say = say
        self._ghosts: list[tuple[Session, bool]] = []
        self._epochs: dict[int, int] = {}
        self._left = self._chance.choice((0, 1, 2, 3, 4, 6, 8))
        self._hit = 0
        self._deaths = 0
        self._idle_rounds = 0

    # --- the schedule -------------------------------------------------------------------------

    def run(self) -> Result:
        """Runs the schedule to its end and returns what was found."""
        self._set_up()
        while not self._is_done():
            self.world.step += 1
            if self.world.step > STEPS_MAX or self._idle_rounds > IDLE_ROUNDS_MAX:
                self.world.broken.append(("G12", None, "did not finish"))
                break
            self._one_step()
        found = check(self.world.events, self._final())
        direct = [Violation(*one) for one in self.world.broken]
        return Result(self.seed, direct + found, self.world.step, self._hit)

    def _is_done(self) -> bool:
        return not self._ghosts and all(actor.client is None for actor in self._actors)

    def _one_step(self) -> None:
        if self._ghosts and self.world.likely(0.1):
            self._end_ghost()
            return
        version = self.oracle.version
        ready = [actor for actor in self._actors if actor.waits_at != version]
        if ready:
            busy = [actor for actor in ready if actor.waits_at is None]
            chosen = busy if busy and self.world.likely(0.75) else ready
            self._step(self._chance.choice(chosen))
        elif self._ghosts:
            self._end_ghost()
        else:
            self._idle_rounds += 1
            self.world.clock.advance(self._chance.choice((0.02, 0.2, 1.5)))
            for actor in self._actors:
                actor.waits_at = None

    def _step(self, actor: Actor) -> None:
        """Lets one participant perform one Op, or suffer a fault."""
        if actor.program is None or actor.op is None:
            actor.program = actor.start()
            actor.op = next(actor.program)
        op = actor.op
        fault = None if isinstance(op, ops.Wait) else self._draw(actor)
        try:
            answer = self._perform(actor, op) if fault is None else self._suffer(actor, op, fault)
        except Blocked:
            actor.waits_at = self.oracle.version
        except Death:
            if fault is None:  # what else ran in this process dies too, of no doing of its own
                self.world.record(ev.Fault, actor.name, what="dies", target=type(op).__name__)
            self._die(actor)
        except errors.OnceqError as error:
            told = error
            self._told(actor, op, told)
            self._advance(actor, lambda program: program.throw(told))
        else:
            self._told(actor, op, answer)
            if isinstance(op, ops.Wait):
                actor.waits_at = self.oracle.version
            self._advance(actor, lambda program: program.send(answer))

    def _advance(self, actor: Actor, move: Callable[[ops.Program[None]], ops.Op[Any]]) -> None:
        if actor.program is None:
            return
        try:
            actor.op = move(actor.program)
            for _ in range(STEPS_MAX):
                if not isinstance(actor.op, ops.Stopping):
                    break
                actor.op = actor.program.send(actor.driver.perform_once(actor.op))
        except StopIteration:
            self._ended(actor)
        except errors.Fenced:
            self._told(actor, None, "is fenced: its life is over")
            self._ended(actor)
        except errors.OnceqError:
            self._restart(actor)

    def _ended(self, actor: Actor) -> None:
        actor.driver.end()
        self._actors.remove(actor)

    def _restart(self, actor: Actor) -> None:
        """Gives a participant a new connection and a new life, as its supervisor would."""
        actor.driver.leave()
        ghostly = any(session is actor.driver.session for session, _ in self._ghosts)
        if not ghostly:
            actor.driver.end()
        actor.driver = self._driver(actor.process)
        actor.program = actor.op = None
        actor.waits_at = None

    def _perform(self, actor: Actor, op: ops.Op[Any]) -> Any:
        answer = actor.driver.perform_once(op)
        if isinstance(op, (ops.Begin, ops.Start)):
            self._started(op)
        if isinstance(op, ops.Connect):
            self._epochs[answer.registrant_id] = answer.epoch
        epoch = getattr(op, "epoch", None)
        if epoch is not None:
            registrant_id: int = getattr(op, "registrant_id", 0)
            if epoch < self._epochs.get(registrant_id, 0):
                text = f"{type(op).__name__} of an old epoch took effect"
                self.world.broken.append(("G6", getattr(op, "rid", None), text))
        return answer

    # --- faults -------------------------------------------------------------------------------

    def _draw(self, actor: Actor) -> str | None:
        """Returns the fault that hits now, if any."""
        if not self._left or self.world.step > FAULT_STEPS or not self.world.likely(0.06):
            return None
        fault = self._chance.choice(FAULTS)
        dies = fault.startswith("die") and actor.process is not None
        if dies and self._deaths >= SERVER_DEATHS_MAX:
            return None
        whose = {"second life": actor.client, "abandoned": actor.process}.get(fault, actor)
        if whose is None:
            return None
        self._left -= 1
        self._hit += 1
        self._deaths += dies
        self.world.record(ev.Fault, actor.name, what=fault, target=type(actor.op).__name__)
        self._told(actor, actor.op, f"*** {fault}")
        return fault

    def _suffer(self, actor: Actor, op: ops.Op[Any], fault: str) -> Any:
        session = actor.driver.session
        is_inside = session.transaction is not None and not commits(op)
        match fault:
            case "die before":
                raise Death
            case "die after":
                self._perform(actor, op)
                raise Death
            case "lost request":
                self._lose(actor, lingers=self.world.likely(0.5))
                raise errors.ConnectionLost("the request was lost")
            case "lost answer":
                self._perform(actor, op)
                self._lose(actor, lingers=is_inside and self.world.likely(0.5))
            case "ghost commits" | "ghost rolls back":
                self._haunt(actor, op, commits=fault == "ghost commits" and not is_inside)
            case "database crash":
                if self.world.likely(0.5):
                    self._perform(actor, op)
                self._ghosts.clear()
                self.oracle.crash(clean=self.world.likely(0.2))
            case _:
                self._beset(actor)
                return self._perform(actor, op)
        raise errors.ConnectionLost("lost") if is_inside else errors.InDoubt("the answer was lost")

    def _beset(self, actor: Actor) -> None:
        """Begins a second life of a client, or revokes what a server holds, as a stop does."""
        if actor.client is not None:
            self._add_client(actor.client)
        elif actor.session is not None and actor.session.incarnation is not None:
            operator = self._driver(None)
            operator.perform(ops.CloseIncarnation(incarnation=actor.session.incarnation))
            operator.end()

    def _lose(self, actor: Actor, *, lingers: bool) -> None:
        """Loses a connection; a transaction that is open may linger in the database."""
        session = actor.driver.session
        if lingers and session.transaction is not None:
            self._ghosts.append((session, False))
        else:
            self.oracle.end(session)

    def _haunt(self, actor: Actor, op: ops.Op[Any], *, commits: bool) -> None:
        """Loses a connection while the database is still at the Op, and will end it later."""
        session = actor.driver.session
        alone = session.transaction is None and not isinstance(op, ops.Begin)
        if alone:
            self.oracle.begin(session)
        try:
            if isinstance(op, ops.Finish):
                actor.driver.perform_once(replace(op, commit=False))
            elif not isinstance(op, (ops.Commit, ops.Call)):
                actor.driver.perform_once(op)
        except (Blocked, errors.OnceqError):
            if alone:
                self.oracle.rollback(session)
            raise
        if isinstance(op, (ops.Begin, ops.Start)):
            self._started(op)
        self._ghosts.append((session, commits))

    def _started(self, op: ops.Begin | ops.Start) -> None:
        row = self.oracle.state.elements.rows.get(op.seq)
        if row is not None:
            self.world.record(ev.Started, "server", rid=row.rid, eid=str(row.eid))

    def _end_ghost(self) -> None:
        session, commits = self._ghosts.pop(self._chance.randrange(len(self._ghosts)))
        try:
            if commits:
                self.oracle.commit(session)
        except errors.OnceqError:
            self.oracle.rollback(session)
        self.oracle.end(session)
        self._told(None, None, f"a ghost {'commits' if commits else 'rolls back'}")

    def _die(self, actor: Actor) -> None:
        """Kills the process of an actor: with a server's, all of its sessions."""
        dead = [one for one in self._actors if one is actor or self._shares(one, actor)]
        for one in dead:
            if one.program is not None:
                one.program.close()
            one.driver.leave()
            lingers = self.world.likely(0.3)
            self._lose(one, lingers=lingers)
            self._actors.remove(one)
        self._told(actor, None, "dies")
        if actor.process is not None:
            self._add_process(len(dead))
        elif actor.client is not None:
            self._add_client(actor.client)

    @staticmethod
    def _shares(one: Actor, other: Actor) -> bool:
        return one.process is not None and one.process is other.process

    # --- the end ------------------------------------------------------------------------------

    def _final(self) -> FinalState:
        places = tuple(
            Place(
                registrant=row.registrant,
                thread=row.thread,
                rid=row.rid,
                eid=str(row.eid),
                role=row.role,
                state=row.state,
                outcome=row.outcome,
                aborts=row.aborts,
                code=row.code,
            )
            for row in self.oracle.requests()
        )
        effects = tuple(
            ev.Effect(key=row.key, rid=row.rid, eid=str(row.eid)) for row in self.oracle.effects()
        )
        return FinalState(places=places, effects=effects, abort_limit=ABORT_LIMIT)

    def _told(self, actor: Actor | None, op: ops.Op[Any] | None, what: object) -> None:
        if self._say is not None:
            name = "" if actor is None else actor.name
            text = what if isinstance(what, str) else repr(what)[:160]
            self._say(f"{self.world.step:5} {name:12} {'' if op is None else op} -> {text}")


def commits(op: ops.Op[Any]) -> bool:
    """Returns whether an Op ends the transaction that it is performed in."""
    return isinstance(op, ops.Commit) or (isinstance(op, ops.Finish) and op.commit)


def simulate(seed: int, variant: Variant | None = None) -> Result:
    """Runs the schedule of a seed."""
    return Simulation(seed, variant).run()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs one schedule verbosely, or many; returns 0, or 1 when a guarantee was broken."""
    parser = argparse.ArgumentParser(prog="python -m onceq.testing.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this schedule and say every step")
    parser.add_argument("--schedules", type=int, default=1000, help="how many seeds, from 0 on")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        results = [Simulation(chosen.seed, say=_say).run()]
    else:
        results = [simulate(seed) for seed in range(chosen.schedules)]
    for result in results:
        for violation in result.violations:
            _say(f"seed {result.seed}: {violation}")
    broken = sum(bool(result.violations) for result in results)
    _say(f"{len(results)} schedules, {sum(one.steps for one in results)} steps, {broken} broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
