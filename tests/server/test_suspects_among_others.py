"""A suspect runs alone in its process, and nobody waits for that with claims in hand (G7, G12).

Sessions of one process on the in-memory driver, in any order of their steps. Handlers are slow in
that their session takes no step for a while.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

import onceq
from onceq.engine.perform.gate import Gate
from onceq.manager.program import declare
from onceq.model import ops
from onceq.model.element import Charge
from onceq.server.program import Served, ServerSession, serve
from proof.oracle import Blocked
from proof.oracle.memory import MemoryDriver, memory_repository

if TYPE_CHECKING:
    from onceq.model.element import Element

TICK_S = 0.01
"""How long a step takes."""
STEPS_MAX = 40_000
NEVER = 10**9
PROCESS, FORMER = uuid.UUID(int=1), uuid.UUID(int=2)


@dataclass(frozen=True)
class Load:
    """What waits in a queue. slow: for how many steps each handler runs."""

    fresh: int
    suspects: int
    slow: int
    batch: int


@dataclass
class Actor:
    """A session under way. sleeps: so many steps; answer: to its last Op."""

    session: ServerSession
    driver: MemoryDriver
    program: ops.Program[None]
    op: ops.Op[Any] | None = None
    sleeps: int = 0
    runs: Element | None = None


@dataclass
class Process:
    """A process of several sessions, and what has been done."""

    loads: list[Load]
    done: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        self.oracle, self.clock = memory_repository()
        self._gate = Gate(lambda: self.clock.seconds)
        self._fill()
        self.actors: list[Actor] = []

    @property
    def wanted(self) -> int:
        return sum(load.fresh + load.suspects for load in self.loads)

    def _fill(self) -> None:
        """Enqueues everything; a former process has left the first of each queue as suspects."""
        former = MemoryDriver(self.oracle, self.clock)
        life = former.perform(ops.OpenIncarnation(process=FORMER, host="here", pid=2))
        for number, load in enumerate(self.loads):
            former.run(declare(onceq.Queue(f"q{number}", bytes, bytes, backoff_ms=0)))
            (info,) = former.perform(ops.ListQueues(queue=f"q{number}"))
            bodies = [f"{number} {n}".encode() for n in range(load.fresh + load.suspects)]
            former.perform(ops.EnqueueMany(queue=info.name, bodies=bodies))
            if load.suspects:
                claim = ops.Claim(
                    incarnation=life.incarnation,
                    queue_id=info.queue_id,
                    n=load.suspects,
                    turn=1,
                    alone=True,
                )
                for one in former.perform(claim):
                    former.perform(
                        ops.AbortElement(
                            seq=one.seq,
                            incarnation=life.incarnation,
                            charge=Charge.SUSPECT,
                            code="test",
                            error="",
                        )
                    )
        former.perform(ops.CloseIncarnation(incarnation=life.incarnation))

    def add(self, queues: list[int]) -> None:
        """Adds a session that serves these queues."""
        served = tuple(Served(f"q{n}", "read committed", self.loads[n].batch) for n in queues)
        session = ServerSession(process=PROCESS, host="here", pid=1, served=served)
        actor = Actor(session, None, serve(session))  # type: ignore[arg-type] # at once
        calls = {f"q{n}": self._call(actor, self.loads[n]) for n in queues}
        actor.driver = MemoryDriver(self.oracle, self.clock, calls=calls, gate=self._gate)
        actor.op = next(actor.program)
        self.actors.append(actor)

    def _call(self, actor: Actor, load: Load) -> Any:
        def call(element: Element, _: Any) -> bytes:
            actor.sleeps = load.slow
            actor.runs = element
            self.done.append(element.body)
            return b""

        return call

    def step(self, actor: Actor) -> None:
        """Takes a step of a session, unless its handler is still running."""
        self.clock.advance(TICK_S)
        if actor.sleeps:
            actor.sleeps -= 1
            return
        assert actor.op is not None
        try:
            answer = actor.driver.perform_once(actor.op)
        except Blocked:
            if isinstance(actor.op, ops.Claim):
                assert self._held_by(actor) == []
            return
        if isinstance(actor.op, (ops.Finish, ops.Rollback)):
            actor.runs = None
        actor.op = actor.program.send(answer)
        self._check_alone()

    def _held_by(self, actor: Actor) -> list[int]:
        rows = self.oracle.state.elements.rows.values()
        return [one.seq for one in rows if one.claimed_by == actor.session.incarnation]

    def _check_alone(self) -> None:
        running = [one.runs for one in self.actors if one.runs is not None]
        assert len(running) < 2 or not any(one.is_suspect for one in running)


LOADS = st.builds(
    Load,
    fresh=st.integers(0, 8),
    suspects=st.integers(0, 3),
    slow=st.sampled_from([0, 3, 50]),
    batch=st.integers(1, 3),
)


@settings(max_examples=80, deadline=None, report_multiple_bugs=False)
@given(st.lists(LOADS, min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 10**6))
def test_a_suspect_runs_alone_and_nobody_waits_with_claims_in_hand(
    loads: list[Load], sessions: int, seed: int
) -> None:
    chance = random.Random(seed)
    process = Process(loads)
    for _ in range(sessions):
        process.add(chance.sample(range(len(loads)), len(loads)))
    for _ in range(STEPS_MAX):
        if len(process.done) >= process.wanted:
            break
        process.step(chance.choice(process.actors))
    assert len(set(process.done)) == len(process.done) == process.wanted


@settings(max_examples=20, deadline=None, report_multiple_bugs=False)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(0, 10**6))
def test_beside_a_handler_that_runs_for_long_the_others_go_on(
    others: int, fresh: int, seed: int
) -> None:
    """And its suspect waits for it, given back, as long as it runs, and no longer."""
    chance = random.Random(seed)
    process = Process([Load(1, 0, NEVER, 1), Load(fresh, 1, 2, 1)])
    process.add([0])
    slow = process.actors[0]
    while slow.sleeps == 0:  # until its handler runs
        process.step(slow)
    for _ in range(others):
        process.add([1])
    for _ in range(STEPS_MAX):
        if len(process.done) == 1 + fresh:
            break
        process.step(chance.choice(process.actors))
    assert b"1 0" not in process.done
    assert len(process.done) == 1 + fresh
    slow.sleeps = 0
    for _ in range(STEPS_MAX):
        if len(process.done) == 2 + fresh:
            break
        process.step(chance.choice(process.actors))
    assert b"1 0" in process.done


@settings(max_examples=15, deadline=None, report_multiple_bugs=False)
@given(st.integers(2, 4), st.sampled_from([10, 60, 150]), st.integers(0, 10**6))
def test_a_suspect_has_its_turn_although_there_is_always_more(
    sessions: int, slow: int, seed: int
) -> None:
    chance = random.Random(seed)
    fresh = 150
    process = Process([Load(fresh, 1, slow, 1)])
    for _ in range(sessions):
        process.add([0])
    for _ in range(STEPS_MAX):
        if b"0 0" in process.done:
            break
        process.step(chance.choice(process.actors))
    assert b"0 0" in process.done
    assert len(process.done) < 1 + fresh // 2
