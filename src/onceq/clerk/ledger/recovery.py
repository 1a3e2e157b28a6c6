"""Recovery with a ledger, as a Program: what the ledger says, and what the repository says of it.

Run by a clerk that has a ledger, once in each life, before anything else. It brings both sides
into step, and applies the policy for a request that was not submitted. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec.structs import replace

from onceq.clerk import receiving, recovery
from onceq.clerk.ledger import program
from onceq.clerk.ledger.program import Kept
from onceq.clerk.ledger.whole import whole
from onceq.clerk.session import Session, ask
from onceq.model import ledger_ops, ops
from onceq.model.client_state import ClientState, Recovery
from onceq.model.ledger import Entry, LastRequest, Noted
from onceq.model.recovery import Place, Standing, Tags, by_registration, decide

Policy: TypeAlias = Literal["resubmit", "discard", "ask"]
"""What `recover` does with a request that was not submitted: send it, give it up, or nothing."""

POLICIES: Final = get_args(Policy)


def recover(kept: Kept, policy: Policy) -> ops.Program[Recovery]:
    """Returns where the last request stands, by the ledger and the repository together."""
    session = kept.session
    entry = kept.entry
    if entry.last_dequeued == session.unsettled:
        session.unsettled = None  # what a checkpoint says was begun, the ledger has as processed
    tags, places = yield from _seen(session, entry)
    standing = decide(entry, tags, places)
    if standing.is_behind:
        return (yield from _adopt(kept, tags, standing))
    letter, why, last = standing.letter, standing.why, entry.last_request
    if last is None:
        kept.letter = letter
        return recovery.found("A", session, why, rid=None)
    yield from _in_step(kept, letter, places)
    kept.letter = letter
    if letter == "A" and policy == "resubmit":
        yield from program.resubmit(kept)
        letter, why = kept.letter, f"{why}; it was resubmitted"
    elif letter == "A" and policy == "discard":
        yield from program.discard(kept)
        why = f"{why}; it was discarded"
    request = None if last.body is None else session.queue.decode_request(last.body)
    return recovery.found(letter, session, why, rid=last.rid, request=request)


def recovered(kept: Kept, policy: Policy) -> ops.Program[Recovery]:
    """Recovers, whole: if it is cut short, only a connect may follow."""
    return whole(kept, recover(kept, policy))


def _seen(session: Session[Any, Any], entry: Entry) -> ops.Program[tuple[Tags, dict[str, Place]]]:
    """Returns what the registration says, and where the repository has each rid of the ledger."""
    op = ops.Outstanding(who=session.who)
    waiting = yield from ask(session, op)
    tags = recovery.tags_of(session, waiting)
    places = {one.rid: Place.REPLY if one.replied else Place.REQUEST for one in waiting}
    for rid in entry.rids:
        if rid in places:
            continue
        if rid in {session.s_rid, session.r_rid}:  # even if history no longer keeps it
            places[rid] = Place.FINISHED
        else:
            places[rid] = yield from recovery.looked_up(session, rid)
    return tags, places


def _in_step(kept: Kept, letter: str, places: dict[str, Place]) -> ops.Program[None]:
    """Gives the ledger what the repository knows, and the session what the ledger knows."""
    entry = kept.entry
    processed = entry.last_dequeued
    if processed is not None and places[processed] is Place.REPLY:
        hand_out(kept.session, processed)  # the next send frees it
    if letter in {"B", "C", "D"} and entry.noted is Noted.NOT_SUBMITTED and entry.last_request:
        written = replace(entry, last_enqueued=entry.last_request.rid)
        yield from ledger_ops.WriteLedger(entry=written)
        kept.entry = written
    if letter == "C" and entry.last_request is not None:
        receiving.take_back(kept.session, entry.last_request.rid)


def hand_out(session: Session[Any, Any], rid: str) -> None:
    """Counts a reply as handed out, if it is outstanding."""
    if rid in session.outstanding:
        del session.outstanding[rid]
        session.received[rid] = None
        if not session.outstanding:
            session.state = ClientState.REPLY_RECVD


def _adopt(kept: Kept, tags: Tags, standing: Standing) -> ops.Program[Recovery]:
    """Adopts what the session has and the ledger lacks."""
    session = kept.session
    letter, rid = standing.letter, standing.rid or ""
    if rid == kept.entry.last_dequeued and by_registration(tags)[0] == "C":
        hand_out(session, rid)
    entry = Entry(
        last_request=LastRequest(rid=rid),
        last_enqueued=rid,
        last_dequeued=rid if letter == "D" else None,
    )
    yield from ledger_ops.WriteLedger(entry=entry)
    kept.entry, kept.letter = entry, letter
    why = f"{standing.why}; the ledger did not have this request, and was brought up to it"
    return recovery.found(letter, session, why, rid=rid)
