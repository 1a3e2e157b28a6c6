"""How a server session executes what it has claimed: one request, or a batch of them.

Called by the server's Program. For one request, its handler's work, its end, its reply and the next
claim are one transaction. A batch is one transaction too; each request is a part of its own, which
can fail alone. If a batch fails as a whole, nothing of it happened, and nobody knows whose fault
it was: its requests run again one at a time, so that each meets its own evidence (spec S3, G7).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from onceq import errors
from onceq.model import ops
from onceq.model.element import Charge, Element, Fate
from onceq.server.telling import Undone, counted, in_doubt, is_conflict, lost, tell
from onceq.server.traces import storable, traced

if TYPE_CHECKING:
    from onceq.server.program import Served, ServerSession

ERROR_CHARS_MAX = 4000
CHARGES: dict[type[errors.OnceqError], Charge] = {
    errors.Reject: Charge.REJECT,
    errors.HandlerMisuse: Charge.REJECT,
    errors.InvalidValue: Charge.REJECT,
    errors.ClaimLost: Charge.ENVIRONMENT,
    errors.Retry: Charge.RETRY,
    errors.EnvironmentFault: Charge.ENVIRONMENT,
    errors.DeadlineExceeded: Charge.ENVIRONMENT,
}
"""What a failed execution costs its element; an error that is not listed is charged.

A lost claim may have been won again, by the claim chained to the finish of its batch.
"""

LIFE_IS_OVER = (errors.ConnectionLost, errors.InDoubt, errors.CannotConnect)
"""After these the session cannot go on; its next life learns the truth (spec finding 9)."""


@dataclass(slots=True)
class Width:
    """How many requests of a queue a session claims at once: at most, and now."""

    most: int
    now: int

    def narrow(self) -> None:
        """Notes that a batch came to nothing: the next one has a single request."""
        self.now = 1

    def widen(self) -> None:
        """Notes that what was claimed has been executed: the next batch is twice as large."""
        self.now = min(2 * self.now, self.most)


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of claimed elements. turn: makes its token unlike any other's.

    chains: whether its finish claims the next element or, if there is none, falls asleep. drowsy:
    whether it expects to fall asleep. width: of the claims from this queue.
    """

    served: Served
    queue_id: int
    elements: list[Element]
    turn: int
    chains: bool
    width: Width
    drowsy: bool = False


class Answered(NamedTuple):
    """A request that its handler has answered, and its encoded reply."""

    element: Element
    reply: bytes


class Failed(NamedTuple):
    """A request whose execution failed, and by what."""

    element: Element
    error: errors.OnceqError


@dataclass(slots=True)
class Batch:
    """What has become of the requests of a batch. running: the one whose handler was called last.

    fenced: those that are done and whose element is locked. conflicts: the last one ran into
    a lock of another's, while those before it held their own.
    """

    waiting: deque[Element]
    done: list[Answered] = field(default_factory=list[Answered])
    fenced: list[Element] = field(default_factory=list["Element"])
    failed: list[Failed] = field(default_factory=list[Failed])
    running: list[Element] = field(default_factory=list["Element"])
    conflicts: bool = False


def execute(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[list[Element] | None]:
    """Runs what was claimed; returns what was claimed next, chained to its finish.

    Returns None if no claim followed: this run chains none, or came to nothing.
    """
    while len(run.elements) > 1:
        following, rest = yield from _execute_batch(session, life, run)
        if not rest or (yield from ops.Stopping()):
            return following
        run = replace(run, elements=rest)
    return (yield from _execute_one(session, life, run))


def _execute_one(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[list[Element] | None]:
    (element,) = run.elements
    try:
        if not (yield from _begin(life, run, element.seq)):
            yield from _give_back(session, life, run)
            return None
        reply = yield from ops.Call(queue=run.served.queue, element=element)
        finished = yield from _finish(session, life, run, [Answered(element, reply)], must=1)
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        yield from ops.Rollback()
        yield from _account(session, life, run, [Failed(element, error)])
        return None
    session.counts.done += 1
    session.fault_in_row = False
    return finished.following if run.chains else None


def _execute_batch(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[tuple[list[Element] | None, list[Element]]]:
    """Returns what was claimed next, and what is left of a batch that ran into another's lock.

    What it has done by then is committed, which frees its locks and lets others go on.
    The rest is a batch of its own, which waits for that lock while holding none.
    """
    batch = Batch(deque(run.elements))
    try:
        if not (yield from _begin(life, run, -run.elements[0].seq)):
            yield from _give_back(session, life, run)
            return None, []
        while batch.waiting and not batch.conflicts and not (yield from ops.Stopping()):
            yield from _part(life, run, batch)
        rest = list(batch.waiting) if batch.conflicts else []
        # what failed is accounted for before the next claim
        run = replace(run, chains=run.chains and not batch.failed and not rest)
        finished = yield from _finish(session, life, run, batch.done, must=len(batch.fenced))
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        run.width.narrow()
        yield from ops.Rollback()
        yield from _one_at_a_time(session, life, run, _ended_by(error, batch))
        return None, []
    session.counts.done += len(batch.done) - finished.lost
    session.counts.claims_lost += finished.lost
    session.fault_in_row = session.fault_in_row and not batch.done
    if finished.lost:
        yield from tell(session, lost(run.served.queue, None, finished.lost))
    yield from _account(session, life, run, batch.failed)
    return (finished.following if run.chains else None), rest


def _part(life: ops.Incarnation, run: Execution, batch: Batch) -> ops.Program[None]:
    """Runs one request of a batch; an error in it undoes its part, and no other."""
    element = batch.waiting.popleft()
    batch.running.clear()
    try:
        yield from ops.Start(slot=life.slot, seq=element.seq, incarnation=life.incarnation)
        batch.running.append(element)
        reply = yield from ops.Call(queue=run.served.queue, element=element)
        fenced = yield from ops.Keep()
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        yield from ops.Undo()
        if batch.fenced and is_conflict(error):
            batch.conflicts = True
            batch.waiting.appendleft(element)
        else:
            batch.failed.append(Failed(element, error))
    else:
        batch.done.append(Answered(element, reply))
        if fenced:
            batch.fenced.append(element)


def _ended_by(error: errors.OnceqError, batch: Batch) -> list[Failed]:
    """Returns what failed in a batch that failed as a whole, each with its own error.

    A handler that ended the transaction also ended the parts before it. What they committed stays
    or is lost; nobody can say which, so they are not run again.
    """
    if not isinstance(error, errors.HandlerMisuse):
        return batch.failed
    failed = {element.seq for element, _ in batch.failed}
    ended = {one.seq: one for one in [*batch.fenced, *batch.running] if one.seq not in failed}
    return [*batch.failed, *(Failed(element, error) for element in ended.values())]


def _one_at_a_time(
    session: ServerSession,
    life: ops.Incarnation,
    run: Execution,
    failed: list[Failed],
) -> ops.Program[None]:
    """Records what failed in a batch, and runs the rest again, each on its own."""
    yield from _account(session, life, run, failed)
    accounted = {element.seq for element, _ in failed}
    for element in run.elements:
        if element.seq not in accounted and not (yield from ops.Stopping()):
            single = replace(run, elements=[element], chains=False, width=Width(1, 1))
            yield from _execute_one(session, life, single)


def _token(life: ops.Incarnation, run: Execution) -> str:
    return f"{life.incarnation}.{run.elements[0].seq}.{run.turn}"


def _begin(life: ops.Incarnation, run: Execution, seq: int) -> ops.Begin:
    return ops.Begin(
        slot=life.slot,
        seq=seq,
        token=_token(life, run),
        isolation=run.served.isolation,
        alone=run.elements[0].is_suspect,
        effects=run.served.effects,
    )


def _finish(
    session: ServerSession,
    life: ops.Incarnation,
    run: Execution,
    done: list[Answered],
    *,
    must: int,
) -> ops.Program[ops.Finished]:
    """Finishes, claims the next and commits; a failure leaves the session awake."""
    run.width.widen()
    try:
        return (
            yield from ops.Finish(
                seqs=[element.seq for element, _ in done],
                incarnation=life.incarnation,
                replies=[reply for _, reply in done],
                content_type=None,
                token=_token(life, run),
                must=must,
                effects=run.served.effects,
                queue_id=run.queue_id,
                n=run.width.now if run.chains else 0,
                turn=run.turn,
                alone=True,
                slot=life.slot,
                sleep=[run.queue_id],
                drowsy=run.drowsy,
                commit=True,
            )
        )
    except LIFE_IS_OVER as error:
        for element, _ in done if isinstance(error, errors.InDoubt) else ():
            yield from tell(session, in_doubt(run.served.queue, element))
        raise
    except errors.OnceqError:
        run.width.narrow()
        yield from ops.Rollback()
        yield from ops.Attend(slot=life.slot, queue_ids=[run.queue_id])
        raise


def _give_back(session: ServerSession, life: ops.Incarnation, run: Execution) -> ops.Program[None]:
    """Gives back, uncharged, what cannot begin now: others may run it while this session waits."""
    for one in run.elements:
        yield from ops.AbortElement(
            seq=one.seq, incarnation=life.incarnation, charge=Charge.RELEASE, code=None, error=None
        )
    session.gave_back = True


def _account(
    session: ServerSession,
    life: ops.Incarnation,
    run: Execution,
    failed: list[Failed],
) -> ops.Program[None]:
    """Returns or fails what was undone, and waits if the environment is to blame.

    It does not wait if the handler said how long, above 0, its request is to wait: others need not.
    """
    faulty = False
    for one in failed:
        fate, is_faulty = yield from _abort(session, life, run, one)
        session.counts.failed += fate is Fate.FAILED
        session.counts.returned += fate is Fate.RETURNED
        session.counts.claims_lost += fate is Fate.LOST
        faulty = faulty or is_faulty
    if faulty:
        yield from ops.Wait(key="environment", first=not session.fault_in_row)
        session.fault_in_row = True


def _abort(
    session: ServerSession,
    life: ops.Incarnation,
    run: Execution,
    failed: Failed,
) -> ops.Program[tuple[Fate, bool]]:
    """Returns or fails an element that was undone, and tells of it.

    Returns what became of it, and whether the environment is to blame, so that others wait too.
    """
    element, error = failed
    charge = CHARGES.get(type(error), Charge.CHARGE)
    code, text = storable(code_of(error)), storable(text_of(error)[:ERROR_CHARS_MAX])
    trace = traced(error)
    after_s = error.after_s if isinstance(error, errors.Retry) else None
    fate = yield from ops.AbortElement(
        seq=element.seq,
        incarnation=life.incarnation,
        charge=charge,
        code=code,
        error=text,
        traceback=None if trace is None else trace.text,
        after_s=after_s,
    )
    if fate is Fate.LOST:
        yield from tell(session, lost(run.served.queue, element, 1))
        return fate, False
    aborted = counted(run.served.queue, element, charge=charge, code=code, error=text, fate=fate)
    again = (element.code, element.error) == (code, text)
    yield from tell(session, Undone(aborted=aborted, error=error, trace=trace, again=again))
    return fate, charge in {Charge.ENVIRONMENT, Charge.RETRY} and not after_s


def code_of(error: errors.OnceqError) -> str:
    """Returns the abort code: the class of the handler's exception, or of onceq's error."""
    return error.code if isinstance(error, errors.HandlerFailed) else type(error).__name__


def text_of(error: errors.OnceqError) -> str:
    """Returns the text of the handler's exception, without its class, which is the abort code."""
    return error.text if isinstance(error, errors.HandlerFailed) else str(error)
