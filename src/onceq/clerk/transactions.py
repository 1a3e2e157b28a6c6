"""Replies received in a transaction of the client's own (spec C15), as Programs.

Run by Clerk and AsyncClerk. The clerk's own connection notes that a reply's processing begins, the
client's connection takes it, and the client's commit is the decision. The clerk finds out how that
ended before it does anything else. Source: BHM90 2, the client's third transaction.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceq import errors
from onceq.clerk import receiving
from onceq.clerk.session import Reply, Session, perform
from onceq.model import ops
from onceq.model.element import Fate

R = TypeVar("R")


def begin(
    session: Session[Any, R], rid: str | None, timeout_s: float | None
) -> ops.Program[Reply[R]]:
    """Receives the next reply, or the one to `rid`, and notes that it is processed. ReplyHeld."""
    if session.taken is not None:
        yield from settle_taken(session)
    (reply,) = yield from receiving.receive(
        session, ckpt=None, rid=rid, limit=1, timeout_s=timeout_s
    )
    begun = yield from perform(
        session,
        ops.BeginReply(
            who=session.who,
            rid=reply.rid,
            s_rid=session.s_rid,
            s_no=session.s_no,
        ),
    )
    session.forget(reply.rid)
    if not begun:
        session.r_rid, session.ckpt = reply.rid, None
        raise _held(reply.rid)
    return reply


def take_op(session: Session[Any, Any], rid: str, ckpt: bytes | None) -> ops.TakeReply:
    """Returns the Op for the client's connection."""
    return ops.TakeReply(
        who=session.who,
        rid=rid,
        ckpt=ckpt,
        s_rid=session.s_rid,
        s_no=session.s_no,
    )


def give_back(session: Session[Any, Any], rid: str) -> ops.Program[None]:
    """Gives back a reply that was begun but that the client's connection did not take."""
    receiving.take_back(session, rid)
    yield from perform(session, _settle_op(session, rid, None, counts=False))


def settle_taken(session: Session[Any, Any]) -> ops.Program[None]:
    """Notes how the transaction that took a reply has ended. IllegalState: it has not.

    If the reply is held from now on, the next receive says so.
    """
    rid, xid, ckpt = session.taken or ("", 0, None)
    fate = yield from perform(session, _settle_op(session, rid, xid))
    if fate is Fate.RUNNING:
        raise errors.IllegalState(
            f"the transaction that received the reply to {rid!r} is still open: commit it, or roll "
            "it back, first"
        )
    session.taken = None
    if fate is Fate.RETURNED:
        receiving.take_back(session, rid)
        return
    session.r_rid, session.ckpt = rid, (ckpt if fate is Fate.LOST else None)
    if fate is Fate.FAILED:
        session.held = _held(rid)


def _settle_op(
    session: Session[Any, Any], rid: str, xid: int | None, *, counts: bool = True
) -> ops.SettleReply:
    return ops.SettleReply(
        who=session.who,
        rid=rid,
        xid=xid,
        counts=counts,
        s_rid=session.s_rid,
        s_no=session.s_no,
    )


def _held(rid: str) -> errors.ReplyHeld:
    return errors.ReplyHeld(
        rid,
        "held",
        "its processing was aborted too often; it is in the error queue of this client's reply "
        "queue, and `redrive` gives it back",
        0,
    )
