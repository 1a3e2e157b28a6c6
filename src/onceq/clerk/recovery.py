"""The clerk's recovery as a Program: in which of the states A to E the last request is.

Run by Clerk, AsyncClerk and anything else with a Driver. It only reads. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.model import client_state, ops

if TYPE_CHECKING:
    from onceq.clerk.program import Session

THREADS_SEEN = 100_000
"""How many places of one rid are looked at: its threads may all have sent it."""


def recover(
    session: Session[Any, Any], rid: str | None, *, acknowledged: bool
) -> ops.Program[client_state.Recovery]:
    """Returns where the last request stands: A to E (C3; Source: BN09 4.3).

    rid: the request that the client last meant to send, when it knows. acknowledged: it knows
    that the send had returned.
    """
    waiting = yield from ops.Outstanding(registrant_id=session.registrant_id, epoch=session.epoch)
    last = [one for one in waiting if one.rid == session.s_rid]
    session.s_state = ("reply" if last[0].replied else "request") if last else "done"
    letter, why = _last_request(session)
    if rid is not None and rid != session.s_rid:
        known = yield from ops.LookUp(rid=rid, registrant=session.name, limit=THREADS_SEEN)
        states = {one.state for one in known if one.thread == session.thread}
        letter, why = _known_request(states, acknowledged=acknowledged)
    kind, next_step = client_state.STATES[letter]
    return kind(rid=rid or session.s_rid, ckpt=session.ckpt, rests_on=why, next_step=next_step)


def _last_request(session: Session[Any, Any]) -> tuple[str, str]:
    if session.s_rid is None:
        return "A", "the registration, which has no send"
    if session.was == "disconnected":
        return "D", "the registration: the session had been ended"
    if session.s_rid == session.r_rid:
        return "D", "the registration: the rid of the last send is that of the last receive"
    if session.s_state == "done":
        return "D", "the registration: nothing is outstanding, its replies were acknowledged"
    if session.s_rid in session.received:
        return "D", "this session, which was handed its reply"
    if session.s_state == "request":
        return "B", "the registration and the request, which is not finished"
    return "C", "the registration and the reply, which is in the reply queue"


def _known_request(states: set[str], *, acknowledged: bool) -> tuple[str, str]:
    if "replied" in states:
        return "C", "the reply, which is in the reply queue"
    if "finished" in states:
        return "D", "history: the request finished, and its reply is gone from the reply queue"
    if states:
        return "B", "the request, which is not finished"
    if acknowledged:
        return "E", "the client's own record: the send had returned, and nothing of it is here"
    return "A", "the registration and history, which do not have this rid"
