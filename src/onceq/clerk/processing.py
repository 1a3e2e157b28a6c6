"""The reply-processing loop as a Program: receive, process, and settle what was cut short.

Run by Clerk and AsyncClerk, in `process` and, for the replies that are there already, in `recover`.
The client may die between any two of its Ops. The next life's connect then tells which reply had
been begun, and the policy says what becomes of it.
Source: BHM90 figure 2; CSEP 9.2, recovery procedure for state C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from onceq.clerk import receiving
from onceq.clerk.policy import Processed, ReplyPolicy, Settled
from onceq.clerk.session import Reply, Session, perform
from onceq.errors import ReceiveTimeout
from onceq.model import ops
from onceq.model.client_state import Recovery, WentBack

T = TypeVar("T")
R = TypeVar("R")

Free: TypeAlias = "Callable[[str], ops.Program[None]]"


@dataclass(frozen=True, slots=True)
class Way(Generic[R]):
    """How replies are processed: by whom, what is done in doubt, and how one is freed, if it is."""

    handler: Callable[[Reply[R]], object]
    policy: ReplyPolicy
    free: Free | None


def process(
    session: Session[T, R],
    handler: Callable[[Reply[R]], object],
    policy: ReplyPolicy,
    timeout_s: float | None,
    *,
    free: Free | None = None,
    waits: bool = True,
) -> ops.Program[list[Processed[R]]]:
    """Settles the reply in doubt, if there is one, then processes each outstanding one.

    timeout_s: for each reply. free: frees each reply that is settled. None: it is acknowledged;
    with a window of 1, the policy may leave that to the next send. waits: otherwise only the
    replies that are there are processed, and timeout_s is of no matter.
    """
    if free is None and (policy.rule.frees or session.window > 1):
        free = partial(_acknowledge, session)
    way = Way(handler, policy, free)
    settled: list[Processed[R]] = []
    if session.unsettled in session.received:
        settled.append((yield from _resume(session, way)))
    while session.outstanding or session.gone:  # each turn takes one, or ends it
        try:
            reply = yield from _next(session, policy, timeout_s if waits else 0.0)
        except ReceiveTimeout:
            if waits:
                raise
            break
        settled.append((yield from _handle(session, way, reply)))
    return settled


def recover(
    find: Callable[[], ops.Program[Recovery]], process: ops.Program[list[Processed[Any]]]
) -> ops.Program[Recovery]:
    """Returns where the last request stands once the policy has been applied (C14).

    find: says where it stands. process: of the replies that are there; in E none is, because
    the repository lost what it had acknowledged, and a person decides first.
    """
    found = yield from find()
    if isinstance(found, WentBack):
        return found
    processed = yield from process
    if processed:
        found = yield from find()
    return replace(found, processed=tuple(processed))


def _resume(session: Session[T, R], way: Way[R]) -> ops.Program[Processed[R]]:
    """Settles the reply whose processing was cut short, as the policy says."""
    reply = yield from receiving.reread(session, session.unsettled or "")
    rule = way.policy.rule
    if (yield from rule.again(way.policy, reply, session.ckpt)):
        return (yield from _handle(session, way, reply))
    yield from _free(session, way, reply)
    return Processed(reply, rule.otherwise)


def _next(
    session: Session[T, R], policy: ReplyPolicy, timeout_s: float | None
) -> ops.Program[Reply[R]]:
    """Receives the next reply, marked if the policy needs that."""
    mark, late = policy.rule.mark, policy.late
    ckpt = None if mark is None or late else (yield from mark(policy))
    (reply,) = yield from receiving.receive(
        session, ckpt=ckpt, rid=None, limit=1, timeout_s=timeout_s
    )
    if mark is not None and late:
        yield from _log(session, reply.rid, mark(policy))
    return reply


def _log(session: Session[Any, Any], rid: str, mark: ops.Program[bytes]) -> ops.Program[None]:
    """Records durably that processing of this reply begins, with the device's state before it.

    If that is cut short, by a device that cannot be read or otherwise, the reply stays outstanding.
    """
    is_logged = False
    try:
        ckpt = yield from mark
        yield from perform(session, receiving.receive_op(session, rid=rid, skip=[], ckpt=ckpt))
        is_logged = True
    finally:
        if not is_logged:
            receiving.take_back(session, rid)
    session.r_rid, session.ckpt = rid, ckpt


def _handle(session: Session[T, R], way: Way[R], reply: Reply[R]) -> ops.Program[Processed[R]]:
    session.unsettled = reply.rid
    yield from ops.Act(act=partial(way.handler, reply))
    yield from _free(session, way, reply)
    return Processed(reply, Settled.PROCESSED)


def _free(session: Session[Any, Any], way: Way[Any], reply: Reply[Any]) -> ops.Program[None]:
    """Frees a reply that is settled."""
    if way.free is not None:
        yield from way.free(reply.rid)
    session.unsettled = None


def _acknowledge(session: Session[Any, Any], rid: str) -> ops.Program[None]:
    yield from receiving.acknowledge(session, [rid], None)
