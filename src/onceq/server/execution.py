"""How a server session executes what it has claimed: one request, or a batch of them.

Called by the server's Program. For one request, its handler's work, its end, its reply and the next
claim are one transaction. For a batch they are too, and nothing marks where one request ends and
the next begins. If anything fails, nothing of the batch happened: what was fine runs again
together, and what failed runs alone, where it meets its own evidence (spec S3, G7; ADR 29).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from onceq import errors
from onceq.model import ops
from onceq.server.charges import Failed, account, code_of, release
from onceq.server.telling import in_doubt, lost, tell, undone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.model.element import Element
    from onceq.server.program import Served, ServerSession

LIFE_IS_OVER = (errors.ConnectionLost, errors.InDoubt, errors.CannotConnect)
"""After these the session cannot go on; its next life learns the truth (spec finding 9)."""


@dataclass(slots=True)
class Width:
    """How many requests of a queue a session claims at once: at most, and now."""

    most: int
    now: int

    @property
    def wider(self) -> int:
        """The next one, once what was claimed has been executed: twice as many."""
        return min(2 * self.now, self.most)

    def halve(self) -> None:
        """Notes that a batch came to nothing."""
        self.now = max(1, self.now // 2)


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of claimed elements. turn: makes its token unlike any other's.

    chains: whether its finish claims the next element or, if there is none, falls asleep. drowsy:
    whether it expects to fall asleep. width: of the claims from this queue. again: of what it
    claimed, a batch came to nothing.
    """

    served: Served
    queue_id: int
    elements: list[Element]
    turn: int
    chains: bool
    width: Width
    drowsy: bool = False
    again: bool = False


class Answered(NamedTuple):
    """A request that its handler has answered, and its encoded reply."""

    element: Element
    reply: bytes


@dataclass(slots=True)
class Batch:
    """What has become of a batch. running: whose handler was called, and has not answered."""

    done: list[Answered] = field(default_factory=list[Answered])
    running: list[Element] = field(default_factory=list["Element"])


class After(NamedTuple):
    """What follows a run: what its finish claimed, and what is left of its own, in pieces.

    undone: a batch came to nothing. faulty: the environment is to blame.
    """

    following: list[Element] | None = None
    left: Sequence[list[Element]] = ()
    undone: bool = False
    faulty: bool = False


def execute(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[list[Element] | None]:
    """Runs what was claimed; returns what was claimed next, chained to its last finish.

    Returns None if no claim followed: this run chains none, its last piece came to nothing, or a
    stop is due. Before a later piece it asks again what is still claimed: what was killed while an
    earlier one ran is not called.
    """
    pieces = _pieces(run.elements)
    while True:
        piece = pieces.pop(0)
        part = run
        if len(piece) < len(run.elements):
            part = replace(run, elements=piece, chains=run.chains and not pieces)
        if len(piece) == 1:
            after = yield from _execute_one(session, life, part)
        else:
            after = yield from _execute_batch(session, life, part)
            run = replace(run, again=run.again or after.undone)
            pieces = [*after.left, *pieces]
        if after.faulty:
            pieces = yield from _wait_out(session, life, pieces)
        if not pieces or (yield from ops.Stopping()):
            return after.following
        if after.faulty or not after.undone:
            pieces = yield from _still_whole(session, life, run, pieces)
            if not pieces:
                return None


def _pieces(elements: list[Element]) -> list[list[Element]]:
    """Returns what may run together of what was claimed: each run of these is a batch.

    What failed before runs alone: it would fail with others. Suspects were claimed as they may run.
    """
    pieces: list[list[Element]] = []
    was_alone = True
    for element in elements:
        is_alone = element.code is not None and not element.is_suspect
        if is_alone or was_alone:
            pieces.append([])
        pieces[-1].append(element)
        was_alone = is_alone
    return pieces


def _wait_out(
    session: ServerSession, life: ops.Incarnation, pieces: list[list[Element]]
) -> ops.Program[list[list[Element]]]:
    """Waits for the environment; returns what this session still holds.

    If nothing was done since it waited last, others may have the rest meanwhile.
    """
    if session.fault_in_row:
        yield from release(life, [element for piece in pieces for element in piece])
        pieces = []
    yield from ops.Wait(key="environment", first=not session.fault_in_row)
    session.fault_in_row = True
    return pieces


def _execute_one(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[After]:
    (element,) = run.elements
    try:
        if not (yield from _begin(life, run, element.seq)):
            yield from _give_back(session, life, run)
            return After()
        reply = yield from ops.Call(queue=run.served.queue, element=element)
        finished = yield from _finish(session, life, run, [Answered(element, reply)])
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        yield from ops.Rollback()
        is_faulty = yield from account(session, life, run.served.queue, [Failed(element, error)])
        return After(faulty=is_faulty)
    session.counts.done += 1
    session.fault_in_row = False
    return After(finished.following if run.chains else None)


def _execute_batch(
    session: ServerSession, life: ops.Incarnation, run: Execution
) -> ops.Program[After]:
    """Runs as many as there is time for; the rest is a batch of its own."""
    batch = Batch()
    try:
        if not (yield from _begin(life, run, -run.elements[0].seq)):
            yield from _give_back(session, life, run)
            return After()
        yield from _call_each(run, batch)
        rest = run.elements[len(batch.done) :]
        run = replace(run, chains=run.chains and not rest)
        finished = yield from _finish(session, life, run, batch.done, batch=True)
    except LIFE_IS_OVER:
        raise
    except errors.OnceqError as error:
        return (yield from _undo(session, life, run, batch, error=error))
    session.counts.done += len(batch.done)
    session.fault_in_row = False
    if rest:  # next time no more than there is time for
        run.width.now = min(run.width.now, len(batch.done))
    return After(finished.following if run.chains else None, [rest] if rest else [])


def _call_each(run: Execution, batch: Batch) -> ops.Program[None]:
    """Calls the handler with one after another, until the batch is to finish."""
    for element in run.elements:
        batch.running.append(element)
        reply = yield from ops.Call(queue=run.served.queue, element=element)
        goes_on = yield from ops.MayGoOn()
        batch.running.clear()
        batch.done.append(Answered(element, reply))
        if not goes_on:
            return


def _undo(
    session: ServerSession,
    life: ops.Incarnation,
    run: Execution,
    batch: Batch,
    *,
    error: errors.OnceqError,
) -> ops.Program[After]:
    """Undoes a batch: who was running runs alone; if it failed at its finish, each one does.

    What is no longer claimed, as it was killed, is not called again. Who breaks the rules is to
    blame at once. If a handler has committed what others had done before it, that stays, and none
    of them may run again.
    """
    run.width.halve()
    was_committed = yield from ops.Rollback()
    begun = len(batch.done) + len(batch.running)
    yield from tell(session, undone(run.served.queue, run.elements, begun, code_of(error)))
    held = yield from _still_claimed(session, life, run, run.elements)
    done = [element for element, _ in batch.done if element.seq in held]
    running = [element for element in batch.running if element.seq in held]
    rest = [element for element in run.elements[begun:] if element.seq in held]
    failed: list[Failed] = []
    if was_committed:
        misuse = errors.HandlerMisuse(f"a handler committed what its batch had done: {error}")
        failed = [Failed(element, misuse) for element in (*done, *running)]
        left = []
    elif isinstance(error, errors.HandlerMisuse) and running:
        failed = [Failed(element, error) for element in running]
        left = [done]
    elif batch.running:
        left = [done, running]
    elif isinstance(error, errors.ClaimLost) and len(held) < len(run.elements):
        left = [done]
    elif begun:
        left = [[element] for element in done]
    else:  # it could not even begin
        left, rest = [[element] for element in rest], []
    is_faulty = yield from account(session, life, run.served.queue, failed)
    return After(None, [piece for piece in (*left, rest) if piece], undone=True, faulty=is_faulty)


def _still_whole(
    session: ServerSession, life: ops.Incarnation, run: Execution, pieces: list[list[Element]]
) -> ops.Program[list[list[Element]]]:
    """Returns what is still claimed of pieces."""
    elements = [element for piece in pieces for element in piece]
    held = yield from _still_claimed(session, life, run, elements)
    left = [[element for element in piece if element.seq in held] for piece in pieces]
    return [piece for piece in left if piece]


def _still_claimed(
    session: ServerSession, life: ops.Incarnation, run: Execution, elements: Sequence[Element]
) -> ops.Program[set[int]]:
    """Returns what of some elements is still claimed, by seq, and tells of what is not."""
    seqs = [element.seq for element in elements]
    held = set((yield from ops.StillClaimed(seqs=seqs, incarnation=life.incarnation)))
    for element in elements:
        if element.seq not in held:
            session.counts.claims_lost += 1
            yield from tell(session, lost(run.served.queue, element))
    return held


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
    batch: bool = False,
) -> ops.Program[ops.Finished]:
    """Finishes, claims the next and commits; a failure leaves the session awake."""
    width = run.width.now if run.again else run.width.wider
    try:
        finished = yield from ops.Finish(
            seqs=[element.seq for element, _ in done],
            incarnation=life.incarnation,
            replies=[reply for _, reply in done],
            content_type=None,
            token=_token(life, run),
            effects=run.served.effects,
            queue_id=run.queue_id,
            n=width if run.chains else 0,
            turn=run.turn,
            alone=True,
            slot=life.slot,
            sleep=[run.queue_id],
            drowsy=run.drowsy,
            batch=batch,
            commit=True,
        )
    except LIFE_IS_OVER as error:
        for element, _ in done if isinstance(error, errors.InDoubt) else ():
            yield from tell(session, in_doubt(run.served.queue, element))
        raise
    except errors.OnceqError:
        yield from ops.Rollback()
        yield from ops.Attend(slot=life.slot, queue_ids=[run.queue_id])
        raise
    run.width.now = width
    return finished


def _give_back(session: ServerSession, life: ops.Incarnation, run: Execution) -> ops.Program[None]:
    """Gives back what cannot begin now: others may run it while this session waits."""
    yield from release(life, run.elements)
    session.gave_back = True
