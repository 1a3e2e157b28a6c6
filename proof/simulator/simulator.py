"""The simulator: seeded schedules of all that ships, with faults, over the memory driver.

`python -m proof.simulator.simulator --seed N` replays one schedule and shows every step; `--shrink`
leaves out the faults that a violation does not need. One seed is one schedule, always the same
on one version of onceq. At each step one participant performs one Op, or a fault hits it
(`proof.simulator.misfortune`). Time is virtual: it moves as the schedule says, and to the next
deadline when nobody has anything to do. Once the faults have stopped, all must finish (G12), and
the history must keep G1 to G8.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.history import FinalState, Place, Violation, check
from onceq.history import events as ev
from onceq.model import ops
from proof.oracle import Blocked
from proof.simulator.accounts import check_accounts, is_drained, next_due_s
from proof.simulator.callers import SCRATCH
from proof.simulator.cast import Actor, Variant
from proof.simulator.chances import Coverage
from proof.simulator.desk import ANSWER
from proof.simulator.misfortune import Misfortune
from proof.simulator.participants import ABORT_LIMIT, Death, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

STEPS_MAX = 20_000
IDLE_ROUNDS_MAX = 3000
DUE = 0.8
"""How likely time moves on to what is due next when nobody has anything to do."""
CHANGES_SLEPT_MAX = (1, 4, 16)
"""A change of the repository wakes at most this many waiters: one of these for each schedule."""
DOUBLINGS_MAX = 26
"""After this many rounds in which nothing happened, each wait is for years."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a schedule. steps: how long it was; faults: which of those drawn have hit."""

    seed: int
    violations: list[Violation]
    steps: int
    faults: tuple[int, ...]
    coverage: Coverage = field(default_factory=Coverage)


class Simulation(Misfortune):
    """One schedule. say: told every step, when somebody wants to know. only: see Misfortune."""

    def __init__(
        self,
        seed: int,
        variant: Variant | None = None,
        *,
        say: Callable[[str], None] | None = None,
        only: frozenset[int] | None = None,
    ) -> None:
        super().__init__(seed, variant or Variant(), only)
        self.seed = seed
        self._say = say
        self._idle_rounds = 0
        self._rings = self._chance.choice(CHANGES_SLEPT_MAX)
        self._quiet = (0, 0)

    # --- the schedule -------------------------------------------------------------------------

    def run(self) -> Result:
        """Runs the schedule to its end and returns what was found."""
        self._set_up()
        try:
            while not self._is_done():
                self.world.step += 1
                if self.world.step > STEPS_MAX or self._idle_rounds > IDLE_ROUNDS_MAX:
                    self.world.broken.append(("G12", None, "did not finish"))
                    break
                self._one_step()
        finally:
            for actor in self._actors:
                if actor.program is not None:
                    actor.program.close()
        return Result(self.seed, self._found(), self.world.step, tuple(self._hit), self.coverage)

    def _is_done(self) -> bool:
        waited_for = self._ghosts or any(actor.awaited for actor in self._actors)
        return not waited_for and is_drained(self.oracle)

    def _one_step(self) -> None:
        if self._ghosts and self.world.likely(0.1):
            self._told(None, None, self._end_ghost())
            return
        if self.world.likely(0.02):
            self.world.clock.advance(self._chance.choice((0.001, 0.05, 1.1)))
        version, now = self.oracle.version, self.world.clock.seconds
        ready = [
            actor
            for actor in self._actors
            if actor.rung_at <= version or (actor.wakes_at is not None and actor.wakes_at <= now)
        ]
        if ready:
            busy = [actor for actor in ready if not actor.rung_at]
            chosen = busy if busy and self.world.likely(0.75) else ready
            self._step(self._chance.choice(chosen))
        elif self._ghosts:
            self._told(None, None, self._end_ghost())
        else:
            self._idle(version)

    def _idle(self, version: int) -> None:
        """Moves the time on: to what is next due, or a little, the more the longer nothing happens.

        To what is due in most cases: else everybody looks often at what nothing but time changes.
        """
        self._idle_rounds += 1
        before, rounds = self._quiet
        rounds = rounds + 1 if before == version else 0
        self._quiet = (version, rounds)
        wakes = [actor.wakes_at for actor in self._actors if actor.wakes_at is not None]
        until_s = max(0.0, min(wakes, default=0.0) - self.world.clock.seconds)
        jump_s = self._chance.choice((0.0, 0.02, 0.2)) * 2 ** min(rounds, DOUBLINGS_MAX)
        due_s = next_due_s(self.oracle)
        if due_s is not None and self.world.likely(DUE):
            jump_s = due_s
        self.world.clock.advance(max(until_s, jump_s) + 1e-6)

    def _step(self, actor: Actor) -> None:
        """Lets one participant perform one Op, or suffer a fault."""
        if actor.program is None:
            self._advance(actor, next)
        op = actor.op
        if op is None:
            return
        fault = self._draw(actor, op)
        if fault is not None:
            self._told(actor, op, f"*** {fault}")
        try:
            answer = self._answered(actor, op, fault)
        except Blocked:
            self._block(actor, op)
            return
        except Death as death:
            if fault is None:  # what else ran in this process dies too, of no doing of its own
                self.world.record(ev.Fault, actor.name, what="dies", target=type(op).__name__)
            self._die(actor, machine=isinstance(death, PowerCut))
            return
        except errors.OnceqError as error:
            answer = _untraced(error)
        actor.blocked_s = None
        self._resume(actor, op, answer)

    def _answered(self, actor: Actor, op: ops.Op[Any], fault: str | None) -> Any:
        actor.rung_at, actor.wakes_at = 0, None
        if isinstance(op, ops.Wait) and op.key == ANSWER:  # it was rung
            return True
        if isinstance(op, ops.Wait):
            delay_s = actor.driver.wait_s(op)
            if delay_s is not None:
                actor.rung_at = self.oracle.version + self._chance.randint(1, self._rings)
                actor.wakes_at = self.world.clock.seconds + delay_s
            return delay_s is not None
        if isinstance(op, ops.Sleep):
            delay_s, rest = actor.driver.sleep_s(op)
            actor.rung_at = self.oracle.version + self._chance.randint(1, self._rings)
            actor.wakes_at = self.world.clock.seconds + delay_s
            return rest
        return self._perform(actor, op) if fault is None else self._suffer(actor, op, fault)

    def _block(self, actor: Actor, op: ops.Op[Any]) -> None:
        """Lets an actor wait for another's transaction; a kill's wait has a deadline.

        A desk does not wait: whoever meets a lock there comes again.
        """
        if actor.desk is not None:
            self._resume(actor, op, errors.DeadlineExceeded("another's transaction has the lock"))
            return
        now = self.world.clock.seconds
        actor.rung_at = self.oracle.version + 1
        if not isinstance(op, (ops.Kill, ops.CancelRequest)):
            return
        if actor.blocked_s is None:
            actor.blocked_s = now
        actor.wakes_at = actor.blocked_s + op.timeout_s
        if now >= actor.wakes_at:
            actor.rung_at, actor.wakes_at, actor.blocked_s = 0, None, None
            self._resume(actor, op, errors.DeadlineExceeded("another's transaction did not end"))

    def _resume(self, actor: Actor, op: ops.Op[Any], answer: Any) -> None:
        self._told(actor, op, answer)
        if isinstance(answer, errors.OnceqError):
            self._advance(actor, lambda program: program.throw(answer))
        else:
            self._advance(actor, lambda program: program.send(answer))

    def _advance(self, actor: Actor, move: Callable[[ops.Program[None]], ops.Op[Any]]) -> None:
        if actor.program is None:
            actor.program = actor.start()
        try:
            actor.op = move(actor.program)
            for _ in range(STEPS_MAX):
                if not isinstance(actor.op, (ops.Stopping, ops.MayTend)):
                    break
                actor.op = actor.program.send(actor.driver.perform_once(actor.op))
        except StopIteration:
            self._ended(actor)
        except errors.Fenced:
            self._told(actor, None, "is fenced: its life is over")
            self._ended(actor)
        except errors.OnceqError as error:
            self._told(actor, None, f"begins a new life after {error!r}")
            self._restart(actor)
        except Death:
            self.world.record(ev.Fault, actor.name, what="dies", target="")
            self._die(actor)

    def _ended(self, actor: Actor) -> None:
        self._end_sessions(actor)
        actor.program = actor.op = None
        self._actors.remove(actor)

    def _end_sessions(self, actor: Actor) -> None:
        """Ends the connections of an actor, except those that linger."""
        if actor.machine is not None:
            actor.machine.died(actor)
        actor.driver.leave()
        for driver in (actor.driver, actor.caller):
            if driver is not None and not self._haunts(driver):
                driver.end()

    def _restart(self, actor: Actor) -> None:
        """Gives a participant a new connection and a new life, as its supervisor would."""
        self._end_sessions(actor)
        actor.driver, actor.caller = self._driver(actor.process), None
        actor.program = actor.op = None
        actor.rung_at, actor.wakes_at = 0, None

    def _die(self, actor: Actor, *, machine: bool = False) -> None:
        """Kills the process of an actor: with a server's, all of its sessions; or the machine's."""
        dead = [
            one for one in self._actors if one is actor or _dies_with(one, actor, machine=machine)
        ]
        for one in dead:
            if one.program is not None:
                one.program.close()
            one.driver.leave()
            if one.machine is not None:
                one.machine.died(one)
            for driver in (one.driver, one.caller):
                if driver is not None and not self._haunts(driver):
                    self._lose(driver, lingers=self.world.likely(0.3))
            self._actors.remove(one)
        self._told(actor, None, "dies")
        if actor.process is not None:
            self._gone.add(str(actor.process.process))
            self._add_process(len(dead))
        elif actor.again is not None:
            actor.again()

    # --- the end ------------------------------------------------------------------------------

    def _found(self) -> list[Violation]:
        """Returns what is broken: seen on the way, in the history, in the accounts.

        What is volatile is judged by the accounts alone, and of what was redriven as itself an
        earlier kill's answer is right no longer.
        """
        found = [Violation(*one) for one in self.world.broken]
        redriven = {str(eid) for eid in self.world.ledger.redriven}
        volatile = {str(eid) for eid in self._volatile()}
        events = [
            event
            for event in self.world.events
            if not (isinstance(event, ev.KillAnswered) and event.eid in redriven)
            and _subject(event) not in volatile
        ]
        found += check(events, self._final(volatile))
        return found + list(check_accounts(self.world, self.oracle))

    def _volatile(self) -> set[UUID]:
        state = self.oracle.state
        rows = [
            *state.elements.rows.values(),
            *(one.element for one in state.history.rows.values()),
        ]
        known = {row.eid for row in rows if row.life is not None}
        return known | self.world.ledger.volatile

    def _final(self, volatile: set[str]) -> FinalState:
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
                correlation_id=row.correlation_id,
            )
            for row in self.oracle.requests()
            if str(row.eid) not in volatile and row.queue != SCRATCH.name
        )
        effects = tuple(
            ev.Effect(key=row.key, rid=row.rid, eid=str(row.eid))
            for row in self.oracle.effects()
            if row.key == "booked" and str(row.eid) not in volatile
        )
        return FinalState(places=places, effects=effects, abort_limit=ABORT_LIMIT)

    def _told(self, actor: Actor | None, op: ops.Op[Any] | None, what: object) -> None:
        if self._say is not None:
            name = "" if actor is None else actor.name
            text = what if isinstance(what, str) else repr(what)[:160]
            self._say(f"{self.world.step:5} {name:12} {'' if op is None else op} -> {text}")


def _subject(event: ev.Event) -> str:
    """Returns the eid of what an event is about; of a fault, whom it befell."""
    return event.target if isinstance(event, ev.Fault) else getattr(event, "eid", "")


def _untraced(error: errors.OnceqError) -> errors.OnceqError:
    """Returns an error whose traceback nobody makes a text of: that takes a tenth of the time."""
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = None
    return error


def _dies_with(one: Actor, other: Actor, *, machine: bool) -> bool:
    if machine:
        return one.machine is other.machine
    return (one.process is not None and one.process is other.process) or (
        one.desk is not None and one.desk is other.desk
    )


def simulate(seed: int, variant: Variant | None = None) -> Result:
    """Runs the schedule of a seed."""
    return Simulation(seed, variant).run()


def shrunk(seed: int, variant: Variant | None = None) -> Result:
    """Returns the result of a seed that fails, with as few of its faults as it needs to fail."""
    best = simulate(seed, variant)
    smaller = bool(best.violations)
    while smaller:
        smaller = False
        for number in best.faults:
            only = frozenset(best.faults) - {number}
            tried = Simulation(seed, variant, only=only).run()
            if tried.violations and len(tried.faults) < len(best.faults):
                best, smaller = tried, True
                break
    return best


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs one schedule verbosely, or many; returns 0, or 1 when a guarantee was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m proof.simulator.simulator", description=__doc__
    )
    parser.add_argument("--seed", type=int, help="run this schedule and say every step")
    parser.add_argument("--shrink", action="store_true", help="with no more faults than it needs")
    parser.add_argument("--schedules", type=int, default=1000, help="how many seeds, from 0 on")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        only = frozenset(shrunk(chosen.seed).faults) if chosen.shrink else None
        results = [Simulation(chosen.seed, say=_say, only=only).run()]
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
