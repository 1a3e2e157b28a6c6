"""The participants of a simulation: clients, server processes, killers, and what handlers do.

Used by the simulator. Clients and servers run the shipped Programs; everything else here only
chooses, with the schedule's own randomness, and writes down what its program was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.recovery import recover
from onceq.clerk.session import Session
from onceq.engine.perform.gate import Gate
from onceq.history import events as ev
from onceq.model import client_state, ops
from onceq.model.client_state import ClientState
from onceq.model.queue import Queue
from onceq.server.program import Served, ServerSession

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from onceq.model.element import Element
    from onceq.server.telling import Told
    from proof.oracle.memory import MemoryClock, MemoryDriver
    from proof.oracle.rows import ElementRow

ABORT_LIMIT = 5
_SETTINGS: dict[str, Any] = {
    "abort_limit": ABORT_LIMIT,
    "backoff_ms": 10,
    "backoff_max_ms": 100,
}
QUEUE: Queue[bytes, bytes] = Queue("orders", bytes, bytes, **_SETTINGS)
NOTES: Queue[bytes, bytes] = Queue("notes", bytes, bytes, **_SETTINGS)
FLASH: Queue[bytes, bytes] = Queue("flash", bytes, bytes, durable=False, **_SETTINGS)
QUEUES = (QUEUE, NOTES, FLASH)
EXPECTS: dict[str, str | None] = {
    "ok": "done",
    "flaky": "done",
    "retry": "done",
    "poison": "failed",
    "deadly": "failed",
    "sudden": "failed",
    "reject": "failed",
    "hasty": None,
}
"""How a request of each kind must end. flaky: raises once; deadly: kills its server; sudden: before
it has done anything; hasty: soon expires."""
KINDS = ("ok", "ok", "ok", "ok", "flaky", "retry", "poison", "deadly", "sudden", "reject", "hasty")
RETRIES = 5
HASTE = timedelta(milliseconds=5)


class Death(Exception):
    """The process dies here."""


class PowerCut(Death):
    """So do all the others on its machine."""


def kind_of(body: bytes) -> str:
    """Returns the kind of a request: its body, or what a row of a file says."""
    return str(msgspec.json.decode(body)["kind"]) if body.startswith(b"{") else body.decode()


def reply_event(rid: str, eid: UUID, outcome: str, body: bytes) -> dict[str, Any]:
    """Returns what is written down of a reply that was handed out."""
    text = body.decode()
    answers = text.rpartition(" ")[2] or None
    return {"rid": rid, "eid": str(eid), "outcome": outcome, "digest": text, "answers": answers}


@dataclass(slots=True)
class Ledger:
    """What is known, to nobody in the simulation, of elements that no session sent.

    enqueued: eid to the steps at which it was, durably or not (volatile). void: of transactions
    that were rolled back. doubts: enqueues and redrives of which nobody knows. taken: dequeued,
    for certain. redriven: how often an element was, perhaps.
    """

    enqueued: dict[UUID, int] = field(default_factory=dict[UUID, int])
    volatile: set[UUID] = field(default_factory=set[UUID])
    void: set[UUID] = field(default_factory=set[UUID])
    taken: set[UUID] = field(default_factory=set[UUID])
    redriven: dict[UUID, int] = field(default_factory=dict[UUID, int])
    rolled_back: set[str] = field(default_factory=set[str])
    doubts: int = 0
    crashed_at: int = 0

    def may_be_lost(self, row: ElementRow | None) -> None:
        """Notes of a volatile element, whoever enqueued it, that a crash may lose it."""
        if row is not None and row.life is not None:
            self.volatile.add(row.eid)


@dataclass(slots=True)
class World:
    """What the participants share: chance, the clock, the history, and what was said aloud."""

    chance: random.Random
    clock: MemoryClock
    step: int = 0
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    broken: list[tuple[str, str | None, str]] = field(
        default_factory=list[tuple[str, str | None, str]]
    )
    known: dict[str, UUID] = field(default_factory=dict[str, UUID])
    raised: dict[str, int] = field(default_factory=dict[str, int])
    satisfied: set[str] = field(default_factory=set[str])
    ledger: Ledger = field(default_factory=Ledger)

    def record(self, kind: Callable[..., ev.Event], actor: str, **fields: Any) -> None:
        """Appends an event to the history."""
        self.events.append(kind(at=self.step, actor=actor, **fields))

    def likely(self, probability: float) -> bool:
        """Returns True as often as told."""
        return self.chance.random() < probability


@dataclass(slots=True)
class Client:
    """A registrant, and what it means to send: (rid, kind of request)."""

    name: str
    plan: list[tuple[str, str]]


@dataclass(slots=True)
class ServerProcess:
    """A process with some sessions, which live and die together.

    is_local: whether the machine of the others tells that it has ended.
    """

    number: int
    process: UUID
    gate: Gate
    batch: int = 1
    queues: tuple[str, ...] = (QUEUE.name,)
    stopping: bool = False
    is_local: bool = True

    def session(self) -> ServerSession:
        """Returns a session of this process, not yet born."""
        served = tuple(Served(name, "read committed", self.batch) for name in self.queues)
        return ServerSession(
            process=self.process,
            host="here",
            pid=self.number,
            served=served,
            identity=str(self.process) if self.is_local else None,
            tell=_log,
        )


def _log(_: Told) -> None:
    """As a process does that logs: nothing that others see, but a point at which it may die."""


def _retry(world: World, element: Element, driver: MemoryDriver) -> errors.Retry:
    """Records an excused abort, but in a batch, which is only undone; returns what to raise."""
    if not driver.is_batch:
        who = {"rid": element.rid, "eid": str(element.eid)}
        world.record(ev.Aborted, "server", **who, code="Retry", excused=True)
    return errors.Retry("later")


def handler(world: World) -> Callable[[Element, MemoryDriver], bytes]:
    """Returns the handler: writes its effect, then does what the kind of request says.

    The effect comes first: what is Blocked there is called again.
    """

    def handle(element: Element, driver: MemoryDriver) -> bytes:
        rid, kind = element.rid, kind_of(element.body)
        executed = {"rid": rid, "eid": str(element.eid), "attempt": element.aborts + 1}
        world.ledger.may_be_lost(driver.oracle.state.elements.rows.get(element.seq))
        if kind == "sudden":
            world.record(ev.Executed, "server", **executed)
            raise Death
        driver.effect("booked", element)
        world.record(ev.Executed, "server", **executed)
        times = world.raised[rid] = world.raised.get(rid, 0) + 1
        match kind:
            case "poison":
                raise errors.HandlerFailed("ValueError", "poison")
            case "flaky" if times == 1:
                raise errors.HandlerFailed("ValueError", "once")
            case "deadly":
                raise Death
            case "reject":
                raise errors.Reject("never")
            case "retry" if times <= RETRIES:
                raise _retry(world, element, driver)
            case _:
                return f"reply to {rid}".encode()

    return lambda element, driver: (
        _void(world, element) if driver.oracle.has_lost(element) else handle(element, driver)
    )


def _void(world: World, element: Element) -> bytes:
    """Executes what is no longer claimed: whatever is done now never takes effect."""
    who = {"rid": element.rid, "eid": str(element.eid)}
    world.record(ev.Executed, "server", **who, attempt=element.aborts + 1)
    return b"void"


class ClientLife:
    """One life of a client, which knows nothing but its name and its plan."""

    def __init__(self, world: World, client: Client) -> None:
        self._world = world
        self._client = client
        self._session = Session(name=client.name, thread="", queue=QUEUE, window=1)

    def _record(self, kind: Callable[..., ev.Event], **fields: Any) -> None:
        who = {"registrant": self._client.name, "epoch": self._session.who.epoch}
        self._world.record(kind, self._client.name, **who, **fields)

    def run(self) -> ops.Program[None]:
        """Connects, goes on where the former life stopped, sends and receives the rest."""
        yield from self._connect()
        yield from self._catch_up()
        rids = [rid for rid, _ in self._client.plan]
        done = rids.index(self._session.s_rid) + 1 if self._session.s_rid in rids else 0
        for rid, kind in self._client.plan[done:]:
            yield from self._request(rid, kind)
        self._record(ev.Satisfied)
        self._world.satisfied.add(self._client.name)

    def _connect(self) -> ops.Program[None]:
        yield from clerk.connect(self._session)
        session = self._session
        shown = {"s_rid": session.s_rid, "r_rid": session.r_rid, "ckpt": session.ckpt}
        self._record(ev.Connected, was=session.was, **shown)

    def _catch_up(self) -> ops.Program[None]:
        found = yield from recover(self._session, None, acknowledged=False)
        match found:
            case client_state.Submitted() | client_state.ReplyWaiting():
                yield from self._receive()
            case client_state.Done() if self._session.state is ClientState.REPLY_RECVD:
                yield from self._rereceive()
            case client_state.Done() | client_state.NotSubmitted():
                pass
            case _:
                text = f"{self._client.name}: recover says {type(found).__name__}"
                self._world.broken.append(("G6", found.rid, text))

    def _request(self, rid: str, kind: str) -> ops.Program[None]:
        self._record(ev.SendBegun, rid=rid, expects=EXPECTS[kind])
        request = ops.Request(rid=rid, body=kind.encode())
        if kind == "hasty":
            request = replace(request, expires_at=self._world.clock.time + HASTE)
        elif self._world.likely(0.15):
            later = timedelta(seconds=self._world.chance.choice((0.01, 3.0, 86_400.0)))
            request = replace(request, not_before=self._world.clock.time + later, priority=9)
        try:
            sent = yield from clerk.send(self._session, request)
        except errors.OnceqError as error:
            self._record(ev.SendFailed, rid=rid, unknown=error.outcome is errors.Outcome.UNKNOWN)
            raise
        self._record(ev.SendOk, rid=rid, state=sent.state, eid=str(sent.eid))
        self._world.known[rid] = sent.eid
        if self._world.likely(0.1):
            yield from self._cancel(rid)
        yield from self._receive()
        if self._world.likely(0.15):
            yield from self._rereceive()
        if self._world.likely(0.1):
            yield from self._leave_and_return()

    def _receive(self) -> ops.Program[None]:
        ckpt = str(self._session.s_rid).encode() if self._world.likely(0.5) else None
        if ckpt is not None:
            self._record(ev.ReceiveBegun)
        reply = None
        while reply is None:
            timeout_s = self._world.chance.choice((None, None, 0.0, 0.5))
            try:
                (reply,) = yield from receiving.receive(
                    self._session, ckpt=ckpt, rid=None, limit=1, timeout_s=timeout_s
                )
            except errors.ReceiveTimeout:
                yield from ops.Wait(key="client", first=True, timeout_s=10.0)
        self._handed(ev.Received, reply, ckpt)

    def _rereceive(self) -> ops.Program[None]:
        try:
            reply = yield from receiving.rereceive(self._session)
        except errors.ReplyGone as error:  # acknowledged by a disconnect whose answer was lost
            self._record(ev.ReplyMissing, rid=error.rid)
            return
        self._handed(ev.Rereceived, reply, None)

    def _handed(self, kind: Callable[..., ev.Event], reply: Any, ckpt: bytes | None) -> None:
        fields = reply_event(reply.rid, reply.eid, reply.outcome.value, reply.body)
        self._record(kind, ckpt=ckpt, **fields)

    def _cancel(self, rid: str) -> ops.Program[None]:
        name, eid = self._client.name, str(self._world.known[rid])
        self._world.record(ev.KillBegun, name, rid=rid, eid=eid)
        answer = yield from clerk.cancel_last_request(self._session, 10.0)
        self._world.record(ev.KillAnswered, name, rid=rid, eid=eid, answer=answer.value)

    def _leave_and_return(self) -> ops.Program[None]:
        self._record(ev.DisconnectBegun)
        yield from clerk.disconnect(self._session)
        self._record(ev.Disconnected)
        yield from self._connect()


def killer(world: World, kills: int) -> ops.Program[None]:
    """Kills requests that it has heard of, whatever has become of them."""
    for _ in range(kills):
        while not world.known:
            if not (yield from ops.Wait(key="killer", first=True)):
                return
        rids = sorted(rid for rid, eid in world.known.items() if eid not in world.ledger.redriven)
        rid = world.chance.choice(rids or sorted(world.known))
        eid = world.known[rid]
        world.record(ev.KillBegun, "killer", rid=rid, eid=str(eid))
        answer = yield from ops.Kill(eid=eid)
        world.record(ev.KillAnswered, "killer", rid=rid, eid=str(eid), answer=answer.value)
