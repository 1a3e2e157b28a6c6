"""The Programs of a dequeue in the caller's own transaction.

Run by Taker and AsyncTaker, one at a time. They change what is held, and ask which process this is.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from onceq.engine.sessions.identity import own_identity, this_process
from onceq.errors import OnceqError, Outcome
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
    """What a queue manager holds for its callers. turn: of its last claim; see `ops.Claim`.

    is_cut: a dequeue was cut short, so its life may have claimed what is not among `taken`.
    """

    process: UUID = field(default_factory=uuid.uuid4)
    life: ops.Incarnation | None = None
    taken: list[Taken] = field(default_factory=list[Taken])
    turn: int = 0
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no element can be held."""
        return not self.taken and not self.is_cut


def dequeue(op: ops.Dequeue, timeout_s: float | None) -> ops.Program[Element | None]:
    """Dequeues in the caller's transaction, after it has its registrant if it is tagged.

    None: none came in time.
    """
    if op.who is not None:
        yield from ops.BeginTagged(who=op.who, queue=op.queue, tag=op.tag)
    return (yield from program.dequeue(op, timeout_s, rings=False))


def take(held: Held, session: int, op: ops.Dequeue) -> ops.Program[Element | None]:
    """Claims an element and takes it in the caller's transaction; None if there is none now.

    session: the backend of the connection that claims; its life ended with an earlier one.
    """
    life = yield from _living(held, session)
    was_cut, held.is_cut = held.is_cut, True  # until it is known what it has claimed
    try:
        element = yield from _claim(held, life.incarnation, op)
    except OnceqError as error:
        held.is_cut = was_cut or error.outcome is Outcome.UNKNOWN
        raise
    held.is_cut = was_cut
    return element


def _claim(held: Held, incarnation: int, op: ops.Dequeue) -> ops.Program[Element | None]:
    held.turn = 1 - held.turn
    claim = program.claim(incarnation, op.queue, eid=op.eid, turn=held.turn)
    element = yield from claim
    if element is None:
        return None
    try:
        if op.has_terms:
            yield from ops.SetTerms(
                incarnation=incarnation,
                queue_id=element.queue_id,
                seq=element.seq,
                abort_limit=op.abort_limit,
                error_queue=op.error_queue,
            )
        xid = yield from _take_op(op, element.seq, incarnation)
    except OnceqError:
        yield from ops.AbortElement(
            seq=element.seq,
            incarnation=incarnation,
            charge=Charge.RELEASE,
            code=None,
            error=None,
        )
        raise
    held.taken.append(Taken(element.seq, xid))
    return element


def _take_op(op: ops.Dequeue, seq: int, incarnation: int) -> ops.Take | ops.TakeTagged:
    if op.who is None:
        return ops.Take(seq=seq, incarnation=incarnation)
    return ops.TakeTagged(who=op.who, queue=op.queue, tag=op.tag, seq=seq, incarnation=incarnation)


def _living(held: Held, session: int) -> ops.Program[ops.Incarnation]:
    """Returns the life that claims: the one that there is, or a new one."""
    if held.life is not None and held.life.backend_pid == session:
        yield from attend(held)
    if held.life is None or held.life.backend_pid != session:
        return (yield from _begin(held))
    return held.life


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
    held.is_cut = False
    return held.life


def attend(held: Held) -> ops.Program[bool]:
    """Gives back what nobody will conclude; returns whether anything may be held still.

    An element of a transaction that ended without concluding it is charged an abort. If a dequeue
    was cut short, the life ends once it has nothing in progress: so what nobody knows that it has
    claimed comes back, uncharged.
    """
    if held.life is None:
        return False
    yield from _settle(held, held.life.incarnation)
    if held.is_cut and not held.taken:
        yield from _end(held, held.life.incarnation)
    return not held.is_empty


def _settle(held: Held, incarnation: int) -> ops.Program[None]:
    for one in list(held.taken):
        fate = yield from ops.AbortTaken(seq=one.seq, incarnation=incarnation, xid=one.xid)
        if fate is not Fate.RUNNING:
            held.taken.remove(one)


def end(held: Held) -> ops.Program[None]:
    """Ends the life, if there is one; what is still held goes back, uncharged."""
    if held.life is not None:
        yield from _settle(held, held.life.incarnation)
        yield from _end(held, held.life.incarnation)


def _end(held: Held, incarnation: int) -> ops.Program[None]:
    held.life = None
    held.taken = []
    held.is_cut = False
    yield from ops.CloseIncarnation(incarnation=incarnation)
