"""The clerk's Programs about replies: receive, rereceive, acknowledge.

Run like those of `onceq.clerk.program`. A reply stays with the queue manager until the client
has acknowledged it. Source: BHM90 figure 5; spec C1, C6.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from onceq import errors
from onceq.clerk.session import Reply, Session, ask, check, perform, replies_of, reply_of, settle
from onceq.model import client_state, ops
from onceq.model.client_state import Call, ClientState
from onceq.model.element import Element

T = TypeVar("T")
R = TypeVar("R")

EXPIRY_LEAST_S = 0.02
"""A request just being claimed may not expire, so it must not be waited for without a pause."""
FEW = 100
SOON = 4
"""Up to FEW replies that are handed out but not acknowledged, every look leaves out all of them.
Beyond that, only a call's first look does, and those from wait SOON on, when waits are long."""
SETTLED = {"reply": 1, "receive": 3}
"""After this many waits of a kind, a receive asks when the next request expires."""


def receive(
    session: Session[T, R],
    *,
    ckpt: bytes | None,
    rid: str | None,
    limit: int,
    timeout_s: float | None,
) -> ops.Program[list[Reply[R]]]:
    """Returns the next replies, at least one; they stay with the queue manager until acknowledged.

    Raises ReceiveTimeout when none came (nothing is lost), ReplyGone when none will ever come,
    ReplyHeld once after the client's own transactions have given a reply up.
    """
    if session.held is not None:
        held, session.held = session.held, None
        raise held
    check(session, Call.RECEIVE)
    yield from _refuse_vain(session, rid)
    key = "reply" if session.rings and timeout_s != 0 else "receive"
    session.rings = False  # only once: a ring during another wait is not heard again
    found: list[Element] = []
    waits = 0
    within_s: float | None = None
    while True:  # who waits holds this frame: what is not needed meanwhile is not kept in it
        if waits > 0 or key == "receive":
            found = yield from _look(
                session,
                receive_op(session, rid=rid, skip=[], limit=limit, ckpt=ckpt),
                sleep=timeout_s != 0,
                turn=waits,
            )
            if found:
                break
        if waits == SETTLED[key] or within_s is not None:
            within_s = yield from _until_expiry(session)
        if not (yield ops.Wait(key=key, first=waits == 0, timeout_s=timeout_s, within_s=within_s)):
            raise _none_came(session, rid, timeout_s)
        waits += 1
    _hand_out(session, found, in_order=rid is None)
    if ckpt is not None:
        session.r_rid, session.ckpt = found[-1].rid, ckpt
    arrived(session)
    return replies_of(session, found)


def _none_came(
    session: Session[Any, Any], rid: str | None, timeout_s: float | None
) -> errors.ReceiveTimeout:
    whose = rid or (session.s_rid if session.window == 1 else None)
    return errors.ReceiveTimeout(
        f"no reply{'' if whose is None else f' to {whose!r}'} within {timeout_s} s: "
        "nothing is lost, receive again; `onceq request show` says where a request is"
    )


def _until_expiry(session: Session[Any, Any]) -> ops.Program[float | None]:
    """Returns in how many seconds the next request expires; the next look then makes its reply."""
    op = ops.NextExpiry(who=session.who)
    left_s = yield from perform(session, op)
    return None if left_s is None else max(left_s, EXPIRY_LEAST_S)


def receive_op(session: Session[Any, Any], **fields: Any) -> ops.Receive:
    """Returns the Op that looks for the replies of a session."""
    return ops.Receive(
        who=session.who,
        s_rid=session.s_rid,
        s_no=session.s_no,
        **fields,
    )


def _look(
    session: Session[Any, Any], look: ops.Receive, *, sleep: bool, turn: int
) -> ops.Program[list[Element]]:
    """Looks for replies; a session that finds some wakes, or does not fall asleep.

    It looks first behind those already handed out, where the list of what to leave out is short.
    A reply that committed late may be before them. If the whole list is long, that is searched for
    only at first and from turn `SOON` on. turn: how often this receive has waited. by_rid: it asks
    for one rid.
    """
    yield from settle(session)
    # After an error it counts as awake: a useless ring is harmless, waking twice is not.
    asleep, session.asleep = session.asleep, False
    by_rid = look.rid is not None
    many = not by_rid and session.seen > 0 and len(session.received) > FEW
    found: list[Element] = []
    if many:
        near = replace(look, after=session.seen, skip=list(session.beyond or ()))
        falls = sleep and not asleep
        found = yield from perform(session, replace(near, asleep=asleep, sleep=falls))
        asleep = (asleep or sleep) and not found
    if not found and (not many or turn == 0 or turn >= SOON):
        skip = [] if by_rid else list(session.received)
        falls = sleep and not asleep
        found = yield from perform(session, replace(look, skip=skip, asleep=asleep, sleep=falls))
    session.asleep = (asleep or sleep) and not found
    return found


def _hand_out(session: Session[Any, Any], found: list[Element], *, in_order: bool) -> None:
    """Notes that replies are handed out."""
    for element in found:
        session.outstanding.pop(element.rid, None)
        session.received[element.rid] = None
    if in_order:
        session.seen = max(session.seen, found[-1].seq)
        beyond = (session.beyond or {}).items()
        session.beyond = {rid: seq for rid, seq in beyond if seq > session.seen} or None
    else:
        session.beyond = session.beyond or {}
        session.beyond.update({one.rid: one.seq for one in found if one.seq > session.seen})


def _refuse_vain(session: Session[Any, Any], rid: str | None) -> ops.Program[None]:
    """ReplyGone: for a request sent again after it was done and its reply acknowledged.

    IllegalState: for one that is not outstanding.
    """
    gone = rid if rid in session.gone else None
    if rid is None and session.gone and not session.outstanding:
        gone = session.gone[0]
    if gone is None and rid is not None and rid not in session.outstanding:
        raise errors.IllegalState(f"{rid!r} is not outstanding: its reply would never come")
    if gone is None:
        return
    is_kept = yield from ask(session, receive_op(session, rid=gone, skip=[]))
    at = session.gone.index(gone)
    session.gone = [*session.gone[:at], *session.gone[at + 1 :]]
    arrived(session)
    why = "its reply was acknowledged, and is kept: rereceive(rid) returns it"
    raise errors.ReplyGone(
        gone, "done", f"done before; {why if is_kept else 'its reply is no longer kept'}", 0
    )


def arrived(session: Session[Any, Any]) -> None:
    """Notes that nothing is outstanding any more, if that is so."""
    if not session.outstanding and not session.gone:
        session.state = client_state.after(session.state, Call.REPLY_ARRIVED)


def take_back(session: Session[Any, Any], rid: str) -> None:
    """Counts a reply as not handed out, before all others: nothing lasting was done with it."""
    session.forget(rid)
    session.outstanding = {rid: None, **session.outstanding}
    session.state = ClientState.REQ_SENT


def rereceive(session: Session[T, R], rid: str | None = None) -> ops.Program[Reply[R]]:
    """Returns the reply that the last receive returned, identical, any number of times (G5).

    rid: that reply instead, if it is received but not acknowledged, or one of those kept.
    Also while others are outstanding (C6): a former life may have died before it had a reply that
    it received with a checkpoint, and otherwise nobody would be handed that reply.
    """
    kept = session.state is ClientState.REQ_SENT and session.received
    call = Call.RERECEIVE_KEPT if kept else Call.RERECEIVE
    check(session, call if rid is None else Call.RERECEIVE_BY_RID)
    if rid in session.outstanding:
        raise errors.IllegalState(f"{rid!r} was not received in this session: receive it")
    rid = rid or session.handed_out_last or session.r_rid
    return (yield from reread(session, rid or ""))


def reread(session: Session[T, R], rid: str) -> ops.Program[Reply[R]]:
    """Reads a reply that was already handed out. ReplyGone."""
    found = yield from ask(session, receive_op(session, rid=rid, skip=[]))
    if not found:
        raise errors.ReplyGone(rid, "done", "its reply was acknowledged and is not kept", 0)
    return reply_of(session, found[0])


def acknowledge(
    session: Session[Any, Any], rids: list[str], ckpt: bytes | None
) -> ops.Program[int]:
    """Frees replies that the client has recorded (C6); returns how many were still waiting.

    The last one counts as received last. Without a checkpoint, a reply that was received with one,
    and still waits or is freed here, keeps that place (G6).
    """
    following = check(session, Call.ACKNOWLEDGE)
    unknown = [rid for rid in rids if rid not in session.received]
    if unknown:
        raise errors.IllegalState(f"{unknown[0]!r} was not received in this session")
    if not rids:
        return 0
    removed = yield from perform(
        session,
        ops.Acknowledge(
            who=session.who,
            rids=rids,
            ckpt=ckpt,
            s_rid=session.s_rid,
            s_no=session.s_no,
            keep=session.keep,
        ),
    )
    keeps = session.r_rid in session.received or session.r_rid in session.outstanding
    if ckpt is not None or session.ckpt is None or not keeps:
        session.r_rid, session.ckpt = rids[-1], ckpt
    for rid in rids:
        session.forget(rid)
    session.state = session.state if session.received else following
    return removed
