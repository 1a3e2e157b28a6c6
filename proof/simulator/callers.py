"""Who uses the queue manager itself in a simulation: by `QueueOperations`, as it ships.

Used by the simulator. Each is a function over a line; what it has done stands in a plan that it
shares with its next life, as a person would who watches it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from onceq import errors
from onceq.engine.embedded.locate import Located
from onceq.history import events as ev
from onceq.manager.queue_manager import QueueOperations
from onceq.model import admin_ops, ops
from onceq.model.element import Charge, RequestOutcome
from onceq.model.queue import Queue
from proof.simulator.functions import LineTaker
from proof.simulator.participants import FLASH, HASTE, NOTES, QUEUE, Death, World, kind_of
from proof.simulator.steps import Caller, CallerBegins, CallerWrites

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.engine.perform.driver import PostgresDriver
    from onceq.model.element import Element, RequestState
    from proof.simulator.functions import Line

SCRATCH: Queue[bytes, bytes] = Queue("scratch", bytes, bytes)
NEVER = (None, None, None)
"""What a registration shows that has no operation."""
DEREGISTER = ("deregister", b"")


class CallerConnection(ops.Runs):
    """A caller's own connection, and the transaction on it."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def perform(self, op: ops.Op[Any]) -> Any:
        """Performs an Op in the transaction, as a driver on this connection does."""
        return self._line.perform(Caller(op=op))

    def begin(self) -> None:
        """Begins a transaction."""
        self._line.perform(CallerBegins())

    def write(self, key: str, element: Element) -> None:
        """Writes into the ledger."""
        self._line.perform(CallerWrites(key=key, element=element))

    def _leave(self) -> None:
        """Nothing: the simulator has what a Program holds."""


class SimulatedQueueManager(QueueOperations):
    """The queue manager, over a line."""

    def __init__(self, line: Line, process: UUID) -> None:
        super().__init__(Located("", None), "onceq")
        self._link = cast("Any", line)
        self._taker = LineTaker(line, process)

    def _caller(self, connection: CallerConnection) -> PostgresDriver:
        return cast("PostgresDriver", cast("object", connection))


@dataclass(slots=True)
class Producer:
    """Who enqueues what owes no reply. left: (queue, kind), not yet tried."""

    left: list[tuple[Queue[bytes, bytes], str]]


def produce(world: World, plan: Producer, line: Line) -> None:
    """Enqueues what is left; what is in doubt is not enqueued again, as nothing names it."""
    qm = SimulatedQueueManager(line, UUID(int=0))
    while plan.left:
        queue, kind = plan.left.pop()
        world.ledger.doubts += 2
        if world.likely(0.2):
            eids = qm.enqueue_many(queue, [kind.encode(), b"ok"])
        elif world.likely(0.3):
            eids = _enqueue_with_the_caller(world, qm, queue, kind)
        elif world.likely(0.3):
            eids = _enqueue_in_work(world, line, queue, kind)
        else:
            eids = [qm.enqueue(queue, kind.encode(), **_attributes(world, kind))]
        world.ledger.doubts -= 2
        for eid in eids:
            world.ledger.enqueued[eid] = world.step
            if queue is FLASH:
                world.ledger.volatile.add(eid)
            else:
                world.known[str(eid)] = eid


def _attributes(world: World, kind: str) -> Any:
    now = world.clock.time
    if kind == "hasty":
        return {"expires_at": now + HASTE}
    if world.likely(0.3):
        return {"not_before": now + timedelta(seconds=world.chance.choice((0.0, 2.0, 4e6)))}
    return {"priority": world.chance.randint(0, 9)}


def _enqueue_with_the_caller(
    world: World, qm: SimulatedQueueManager, queue: Queue[bytes, bytes], kind: str
) -> list[UUID]:
    """Enqueues in a transaction of the caller's, who commits or not."""
    connection = CallerConnection(qm._link)  # type: ignore[arg-type] # a Line  # noqa: SLF001 # its own
    connection.begin()
    eid = qm.enqueue(queue, kind.encode(), connection=connection)
    if world.likely(0.3):
        world.ledger.void.add(eid)
        connection.perform(ops.Rollback())
        return []
    connection.perform(ops.Commit())
    return [eid]


def _enqueue_in_work(world: World, line: Line, queue: Queue[bytes, bytes], kind: str) -> list[UUID]:
    """Enqueues in a transaction of its own of several operations, as a ledger in a queue does."""
    line.perform(ops.BeginWork())
    eid = line.perform(ops.Enqueue(queue=queue.name, body=kind.encode(), own_transaction=False))
    if world.likely(0.3):
        world.ledger.void.add(eid)
        line.perform(ops.Rollback())
        return []
    line.perform(ops.Commit())
    return [eid]


@dataclass(slots=True)
class Tagger:
    """A registrant that tags its operations (BHM90 4.3). left: operations not yet tried.

    known: (kind, eid, tag) of the last for certain; doubts: kind and tag of what may be it too.
    """

    name: str
    left: int
    known: tuple[str | None, UUID | None, bytes | None] = NEVER
    doubts: list[tuple[str, bytes]] = field(default_factory=list["tuple[str, bytes]"])


def tag(world: World, plan: Tagger, line: Line) -> None:
    """Registers, learns how the former life ended, and performs the operations that are left."""
    qm = SimulatedQueueManager(line, UUID(int=0))
    (handle, *_) = qm.register(NOTES.name, plan.name)
    _compare(world, plan, (handle.kind, handle.eid, handle.tag))
    while plan.left:
        plan.left -= 1
        mark = f"{plan.name}-{plan.left}".encode()
        doubt = ("enqueue" if world.likely(0.6) else "dequeue", mark)
        with _doubting(plan, doubt):
            _operate_tagged(world, plan, doubt, on=(qm, handle))
        last = qm.read_last(NOTES.name, handle)
        if last is not None and (last.kind, last.eid, last.tag) != plan.known:
            world.broken.append(("G6", None, f"{plan.name}: the last is {last}"))
    if world.likely(0.5):
        with _doubting(plan, DEREGISTER):
            qm.deregister(NOTES.name, handle)
            plan.known = NEVER


def _operate_tagged(
    world: World,
    plan: Tagger,
    what: tuple[str, bytes],
    *,
    on: tuple[QueueOperations, ops.Registered],
) -> None:
    (kind, mark), (qm, handle) = what, on
    if kind == "enqueue":
        eid = qm.enqueue_tagged(NOTES.name, handle, b"ok", mark)
        world.ledger.enqueued[eid] = world.step
        plan.known = (kind, eid, mark)
        return
    element = qm.dequeue_tagged(NOTES.name, handle, mark)
    if element is not None:
        world.ledger.taken.add(element.eid)
        plan.known = (kind, element.eid, mark)


@contextlib.contextmanager
def _doubting(plan: Tagger, doubt: tuple[str, bytes]) -> Generator[None]:
    """Notes what is under way; it stays in doubt when its answer does not come."""
    plan.doubts.append(doubt)
    try:
        yield
    except errors.Fenced:
        raise  # the next life has judged it already, and may be at the same
    except errors.OnceqError as error:
        if error.outcome is errors.Outcome.NOTHING_HAPPENED and doubt in plan.doubts:
            plan.doubts.remove(doubt)
        raise
    if doubt in plan.doubts:
        plan.doubts.remove(doubt)


def _compare(
    world: World, plan: Tagger, shown: tuple[str | None, UUID | None, bytes | None]
) -> None:
    """Checks what a registration shows against what is known; what it does not show never was."""
    kind, eid, mark = shown
    if (kind, mark) in plan.doubts or (shown == NEVER and DEREGISTER in plan.doubts):
        plan.known = shown
        if kind == "enqueue" and eid is not None:
            world.ledger.enqueued[eid] = world.step
    elif shown != plan.known:
        text = f"{plan.name}: register shows {shown}; {plan.known} was"
        world.broken.append(("G6", None, text))
    plan.doubts.clear()


@dataclass(slots=True)
class Taker:
    """Who dequeues in transactions of its own. left: how many times still."""

    left: int
    lives: list[UUID] = field(default_factory=list[UUID])


def take(world: World, plan: Taker, line: Line) -> None:
    """Takes elements; commits, rolls back or dies, as their kind says."""
    qm = SimulatedQueueManager(line, UUID(int=world.chance.getrandbits(128)))
    connection = CallerConnection(line)
    while plan.left:
        plan.left -= 1
        try:
            _take_one(world, qm, connection)
        except (errors.ConnectionLost, errors.InDoubt):
            qm.connect()
        except errors.ClaimLost:
            pass  # killed, or taken back: nothing happened
    qm.close()


def _take_one(world: World, qm: SimulatedQueueManager, connection: CallerConnection) -> None:
    queue = world.chance.choice((QUEUE, NOTES))
    held = [row.eid for row in qm.lookup(state="queued", queue=queue.name)]
    eid = world.chance.choice(held) if held and world.likely(0.4) else None
    connection.begin()
    timeout_s = world.chance.choice((0.0, 0.0, 0.3))
    element = qm.dequeue(queue.name, eid=eid, timeout_s=timeout_s, connection=connection)
    if element is None:
        connection.perform(ops.Rollback())
        return
    kind = kind_of(element.body)
    world.record(
        ev.Executed, "taker", rid=element.rid, eid=str(element.eid), attempt=element.aborts + 1
    )
    connection.write("booked" if element.owes_reply else "taken", element)
    if kind in {"deadly", "sudden"}:
        raise Death
    if kind in {"poison", "reject"} or _rolls_back(world, element):
        connection.perform(ops.Rollback())
        return
    if element.owes_reply:
        qm.reply(connection, element, f"reply to {element.rid}".encode())
    connection.perform(ops.Commit())
    if not element.owes_reply:
        world.ledger.taken.add(element.eid)


def _rolls_back(world: World, element: Element) -> bool:
    """Returns whether a caller changes its mind, which costs an abort: once for an element."""
    changes = element.rid not in world.ledger.rolled_back and world.likely(0.2)
    if changes:
        world.ledger.rolled_back.add(element.rid)
    return changes


@dataclass(slots=True)
class Operator:
    """Who looks after the queues. left: what it has still to do."""

    left: list[str]


def operate(world: World, plan: Operator, line: Line) -> None:
    """Does what is left to do; first it starts what a former life may have left stopped."""
    qm = SimulatedQueueManager(line, UUID(int=0))
    for queue in (QUEUE, NOTES):
        qm.start(queue.name)
    while plan.left:
        act = plan.left.pop()
        match act:
            case "stop":
                _stop_for_a_while(world, qm, line)
            case "redrive":
                _redrive(world, qm, line)
            case "scratch":
                _make_and_destroy(world, qm)
            case "kill":
                _kill(world, qm)
            case "watch":
                _watch(world, qm, line)
            case _:
                _look(world, qm, line)


def _stop_for_a_while(world: World, qm: QueueOperations, line: Line) -> None:
    queue = world.chance.choice((QUEUE, NOTES)).name
    enqueue = world.likely(0.4)
    qm.stop(queue, enqueue=enqueue, dequeue=not enqueue)
    for _ in range(world.chance.randint(1, 4)):
        line.perform(ops.Wait(key="operator", first=True))
    qm.start(queue)


def _redrive(world: World, qm: QueueOperations, line: Line) -> None:
    """Redrives what is held; waits a little for something that is."""
    redriven = world.ledger.redriven
    held: list[RequestState] = []
    for _ in range(12):
        held = [row for row in qm.lookup(state="held") if redriven.get(row.eid, 0) < 2]
        if held or not line.perform(ops.Wait(key="operator", first=True)):
            break
    if held:
        chosen = world.chance.choice(held)
        redriven[chosen.eid] = redriven.get(chosen.eid, 0) + 1
        world.ledger.doubts += 1
        again = qm.redrive(chosen.eid)
        world.ledger.doubts -= 1
        if again is not None:
            named = {"new_eid": str(again[0]), "new_rid": again[1]}
            world.record(ev.Redriven, "operator", rid=chosen.rid, eid=str(chosen.eid), **named)
            world.ledger.enqueued[again[0]] = world.step
            redriven.setdefault(again[0], 0)


def _make_and_destroy(world: World, qm: QueueOperations) -> None:
    """Makes a queue; it is destroyed when it is empty, and not before."""
    if not qm.declare(SCRATCH):
        while qm.dequeue(SCRATCH.name) is not None:
            pass
    eid = qm.enqueue(SCRATCH, b"scratch")
    world.ledger.redriven[eid] = 0  # nobody kills it
    try:
        qm.destroy(SCRATCH.name)
    except errors.QueueNotEmpty:
        qm.dequeue(SCRATCH.name)
        qm.destroy(SCRATCH.name)
    else:
        world.broken.append(("G4", None, "a queue that was not empty was destroyed"))


def _kill(world: World, qm: QueueOperations) -> None:
    eids = [eid for eid in world.ledger.enqueued if eid not in world.ledger.redriven]
    if eids:
        eid = world.chance.choice(eids)
        named = {"rid": str(eid), "eid": str(eid)}
        world.record(ev.KillBegun, "operator", **named)
        answer = qm.kill(eid)
        if eid not in world.ledger.volatile:
            world.record(ev.KillAnswered, "operator", answer=answer.value, **named)
        if answer.value == "NOT_FOUND" and eid not in world.ledger.volatile:
            world.broken.append(("G8", str(eid), "a kill did not find what had been enqueued"))


def _look(world: World, qm: QueueOperations, line: Line) -> None:
    """Looks at everything: nothing changes by that."""
    for eid in list(world.ledger.enqueued)[:2]:
        qm.read(eid)
        qm.resolve(eid)
        if not all(one.charge in Charge for one in qm.attempts(eid)):
            world.broken.append(("G7", str(eid), "an attempt that nobody can have charged"))
    # What failed may be redriven as itself, and end again.
    ended = [one.eid for one in qm.find() if one.outcome is not RequestOutcome.FAILED]
    if len(ended) != len(set(ended)):
        world.broken.append(("G4", None, f"a request has ended twice: {ended}"))
    if line.perform(admin_ops.Identify()) != line.perform(admin_ops.Identify()):
        world.broken.append(("G6", None, "a repository has two ids"))
    for queue in qm.queues():
        lanes = [one.lane for one in qm.peek(queue.name, 3)]
        if lanes != sorted(lanes):
            world.broken.append(("Q3", None, f"{queue.name} begins with lanes {lanes}"))


def _watch(world: World, qm: QueueOperations, line: Line) -> None:
    """Watches who is there and how fast they are: nothing changes by that either."""
    for server in line.perform(admin_ops.ListServers()):
        if server.claims < 0:
            world.broken.append(("G4", None, f"{server}"))
    qm.rates()
    qm.clients()
