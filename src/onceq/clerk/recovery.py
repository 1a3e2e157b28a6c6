"""The clerk's recovery as a Program: which of the states A to E the last request is in.

Run by Clerk, AsyncClerk and anything else with a Driver. It only reads. A table says which state
follows from what is seen: `onceq.model.recovery`. Source: BN09 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from onceq.clerk.session import Session, ask
from onceq.errors import InvalidValue
from onceq.model import client_state, ops
from onceq.model.recovery import CANNOT_TELL, PLACES, Place, Tags, by_registration, place_of

THREADS_SEEN = 100_000
"""How many places of one rid are looked at: every thread of a client may have sent it."""

Basis: TypeAlias = Literal["session", "reply queue", "history"]
"""What may be looked at: the persistent session (and history, for a rid that it does not have);
the reply queue alone; or history for the given rid, whatever the session says."""

BASES: Final = get_args(Basis)


def recover(
    session: Session[Any, Any], rid: str | None, *, acknowledged: bool, by: Basis = "session"
) -> ops.Program[client_state.Recovery]:
    """Returns where the last request stands: A to E (C3; Source: BN09 4.3).

    rid: the request that the client last meant to send, if it knows. acknowledged: it knows
    that the send returned.
    """
    op = ops.Outstanding(who=session.who)
    waiting = yield from ask(session, op)
    if by == "reply queue":
        letter, why, rid = _reply_queue(waiting, rid)
        return found(letter, session, why, rid=rid)
    tags = tags_of(session, waiting)
    if by == "history" and rid is None:
        raise InvalidValue("history is asked about a rid: say which request you mean")
    letter, why = by_registration(tags)
    if rid is not None and (by == "history" or rid != session.s_rid):
        place = yield from looked_up(session, rid)
        letter, why = _known_request(place, acknowledged=acknowledged)
    return found(letter, session, why, rid=rid or session.s_rid)


def found(
    letter: str, session: Session[Any, Any], why: str, *, rid: str | None, request: Any = None
) -> client_state.Recovery:
    """Returns a state in the form that the client gets."""
    kind, next_step = client_state.STATES[letter]
    return kind(rid=rid, ckpt=session.ckpt, rests_on=why, next_step=next_step, request=request)


def looked_up(session: Session[Any, Any], rid: str) -> ops.Program[Place]:
    """Returns where the repository has a rid, according to its queues and history."""
    known = yield from ops.LookUp(rid=rid, registrant=session.name, limit=THREADS_SEEN)
    return place_of({one.state for one in known if one.thread == session.thread})


def tags_of(session: Session[Any, Any], waiting: Sequence[ops.OutstandingRequest]) -> Tags:
    """Returns what the registration says, with the state of the last send from what waits now."""
    last = [one for one in waiting if one.rid == session.s_rid]
    session.s_state = ("reply" if last[0].replied else "request") if last else "done"
    return Tags(
        was=session.was,
        s_rid=session.s_rid,
        s_state=session.s_state,
        r_rid=session.r_rid,
        received=session.received,
    )


def _reply_queue(
    waiting: Sequence[ops.OutstandingRequest], rid: str | None
) -> tuple[str, str, str | None]:
    replied = [one.rid for one in waiting if one.replied and rid in {None, one.rid}]
    if replied:
        return PLACES[Place.REPLY], f"the reply queue alone: {Place.REPLY.value}", replied[0]
    return CANNOT_TELL, "the reply queue alone, which is empty: A, B and D look the same", rid


def _known_request(place: Place, *, acknowledged: bool) -> tuple[str, str]:
    if place is Place.NOWHERE and acknowledged:
        return "E", "the client's own record: the send had returned, and nothing of it is here"
    return PLACES[place], place.value
