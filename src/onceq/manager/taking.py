"""The Programs of a dequeue in the caller's own transaction.

Run by Taker and AsyncTaker, one at a time. They change what is held, and ask which process this is.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from onceq.engine.sessions.identity import own_identity, this_process
from onceq.errors import OnceqError
from onceq.manager import program
from onceq.manager.taken_over import tell_taken
from onceq.model import ops
from onceq.model.element import Charge, Element, Fate


@dataclass(frozen=True, slots=True)
class Taken:
    """An element dequeued in a caller's transaction. xid: of that transaction."""

    seq: int
    xid: int


@dataclass(slots=True)
class Held:
    """What a queue manager holds for its callers. turn: of its last claim; see `ops.Claim`."""

    process: UUID = field(default_factory=uuid.uuid4)
    life: ops.Incarnation | None = None
    taken: list[Taken] = field(default_factory=list[Taken])
    turn: int = 0


def take(held: Held, session: int, op: ops.Dequeue) -> ops.Program[Element | None]:
    """Claims an element and takes it in the caller's transaction; None if there is none now.

    session: the backend of the connection that claims; its life ended with an earlier one.
    """
    life = held.life
    if life is None or life.backend_pid != session:
        life = yield from _begin(held)
    held.taken = yield from settle(held.taken, life.incarnation)
    held.turn = 1 - held.turn
    claim = program.claim(life.incarnation, op.queue, eid=op.eid, turn=held.turn)
    element = yield from claim
    if element is None:
        return None
    try:
        xid = yield from ops.Take(seq=element.seq, incarnation=life.incarnation)
    except OnceqError:
        yield from ops.AbortElement(
            seq=element.seq,
            incarnation=life.incarnation,
            charge=Charge.RELEASE,
            code=None,
            error=None,
        )
        raise
    held.taken.append(Taken(element.seq, xid))
    return element


def _begin(held: Held) -> ops.Program[ops.Incarnation]:
    """Begins a life, and takes over from whoever is missing."""
    host, pid = this_process()
    former = None if held.life is None else held.life.incarnation
    held.life = yield from ops.OpenIncarnation(
        process=held.process, host=host, pid=pid, former=former, identity=own_identity()
    )
    yield from program.take_over(held.process)
    for one in (yield from ops.ListTakenOver()):
        yield from ops.Act(act=partial(tell_taken, one))
    held.taken = []  # given back with the former life, charged as its end says (G7)
    return held.life


def settle(taken: list[Taken], incarnation: int) -> ops.Program[list[Taken]]:
    """Charges an abort to elements dequeued in transactions that ended without concluding them.

    Returns those still in progress.
    """
    running: list[Taken] = []
    for one in taken:
        fate = yield from ops.AbortTaken(seq=one.seq, incarnation=incarnation, xid=one.xid)
        if fate is Fate.RUNNING:
            running.append(one)
    return running


def end(held: Held) -> ops.Program[None]:
    """Ends the life, if there is one; what is still held goes back, uncharged."""
    life, held.life = held.life, None
    if life is not None:
        held.taken = yield from settle(held.taken, life.incarnation)
        yield from ops.CloseIncarnation(incarnation=life.incarnation)
