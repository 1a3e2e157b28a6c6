"""What an execution that failed costs its request, and how that is told (spec G7).

Used by `server.execution`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from onceq import errors
from onceq.model import ops
from onceq.model.element import Charge, Element, Fate
from onceq.server.telling import Undone, counted, lost, paused, tell
from onceq.server.traces import storable, traced

if TYPE_CHECKING:
    from onceq.server.program import ServerSession

ERROR_CHARS_MAX = 4000
CHARGES: dict[type[errors.OnceqError], Charge] = {
    errors.Reject: Charge.REJECT,
    errors.HandlerMisuse: Charge.REJECT,
    errors.InvalidValue: Charge.REJECT,
    errors.ClaimLost: Charge.ENVIRONMENT,
    errors.Retry: Charge.RETRY,
    errors.EnvironmentFault: Charge.ENVIRONMENT,
    errors.DeadlineExceeded: Charge.ENVIRONMENT,
    errors.QueueFull: Charge.RELEASE,
}
"""What a failed execution costs its element; an error that is not listed is charged.

A lost claim may have been won again. A full queue may stay full for longer than any retry limit
lasts, and no request is to blame for it.
"""
FULL_WAIT_S = 1.0
"""The least time until a request is tried again that met a full queue."""


class Failed(NamedTuple):
    """A request whose execution failed, and by what."""

    element: Element
    error: errors.OnceqError


def release(life: ops.Incarnation, elements: list[Element]) -> ops.Program[None]:
    """Returns elements uncharged."""
    for one in elements:
        yield from ops.AbortElement(
            seq=one.seq, incarnation=life.incarnation, charge=Charge.RELEASE, code=None, error=None
        )


def account(
    session: ServerSession,
    life: ops.Incarnation,
    queue: str,
    failed: list[Failed],
) -> ops.Program[bool]:
    """Returns or fails what was undone; returns whether the environment is to blame, so all wait.

    It is not if the handler said how long, above 0, its request is to wait: others need not.
    """
    faulty = False
    for one in failed:
        fate, is_faulty = yield from _abort(session, life, queue, one)
        session.counts.failed += fate is Fate.FAILED
        session.counts.returned += fate in {Fate.RETURNED, Fate.HELD}
        session.counts.claims_lost += fate is Fate.LOST
        faulty = faulty or is_faulty
    return faulty


def _abort(
    session: ServerSession,
    life: ops.Incarnation,
    queue: str,
    failed: Failed,
) -> ops.Program[tuple[Fate, bool]]:
    """Returns or fails an element that was undone, and tells of it.

    Returns what became of it, and whether the environment is to blame, so that others wait too.
    """
    element, error = failed
    charge = Charge.CHARGE if never_fits(error) else CHARGES.get(type(error), Charge.CHARGE)
    code, text = storable(code_of(error)), storable(text_of(error)[:ERROR_CHARS_MAX])
    trace = traced(error)
    after_s = _after_s(error)
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
        yield from tell(session, lost(queue, element))
        return fate, False
    aborted = counted(queue, element, charge=charge, code=code, error=text, fate=fate)
    again = (element.code, element.error) == (code, text)
    yield from tell(session, Undone(aborted=aborted, error=error, trace=trace, again=again))
    is_faulty = charge in {Charge.ENVIRONMENT, Charge.RETRY} and not after_s
    if is_faulty:
        pause = yield from ops.FindPause(queue_id=element.queue_id, seq=element.seq)
        if pause is not None:
            yield from tell(session, paused(queue, pause))
    return fate, is_faulty


def never_fits(error: errors.OnceqError) -> bool:
    """Returns whether a handler enqueues more at once than a queue ever takes: its own fault."""
    return isinstance(error, errors.QueueFull) and math.isinf(error.retry_after_s)


def _after_s(error: errors.OnceqError) -> float | None:
    """Returns when the request is to be tried again; None: after its queue's back-off."""
    if isinstance(error, errors.QueueFull) and not never_fits(error):
        return max(FULL_WAIT_S, error.retry_after_s)
    return error.after_s if isinstance(error, errors.Retry) else None


def code_of(error: errors.OnceqError) -> str:
    """Returns the abort code: the class of the handler's exception, or of onceq's error."""
    return error.code if isinstance(error, errors.HandlerFailed) else type(error).__name__


def text_of(error: errors.OnceqError) -> str:
    """Returns the text of the handler's exception, without its class, which is the abort code."""
    return error.text if isinstance(error, errors.HandlerFailed) else str(error)
