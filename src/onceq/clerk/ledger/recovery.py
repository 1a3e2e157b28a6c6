"""Recovery with a ledger, as a Program: what it says, and what the repository says of it.

Run by LedgerClerk and AsyncLedgerClerk, once in each life, before anything else. It brings both
sides in step, and applies the policy for a request that was not submitted. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from msgspec.structs import replace

from onceq.clerk import receiving, recovery
from onceq.clerk.ledger import program
from onceq.clerk.session import ask
from onceq.model import ledger_ops, ops
from onceq.model.client_state import ClientState, Recovery
from onceq.model.ledger import Entry, LastRequest, Noted
from onceq.model.recovery import LEDGER, NONE, Place

if TYPE_CHECKING:
    from onceq.clerk.ledger.program import Kept
    from onceq.clerk.session import Session

Policy: TypeAlias = Literal["resubmit", "discard", "ask"]
"""What `recover` does with a request that was not submitted: send it, give it up, or nothing."""

POLICIES: Final = get_args(Policy)

LETTERS: Final[dict[str, str]] = {
    "NotSubmitted": "A",
    "Submitted": "B",
    "ReplyWaiting": "C",
    "Done": "D",
}


def recover(kept: Kept, policy: Policy) -> ops.Program[Recovery]:
    """Returns where the last request stands, by the ledger and the repository together."""
    session = kept.session
    entry = kept.entry
    places = yield from _places(session, entry)
    last = entry.last_request
    unknown_to_it = last is None or (
        places[last.rid] is not Place.NOWHERE and last.rid != session.s_rid
    )
    if unknown_to_it and session.s_rid is not None:
        return (yield from _adopt(kept))
    if last is None:
        kept.letter = NONE
        return recovery.found("A", session, "the ledger, which has no request", rid=None)
    letter, why = _judged(entry, places)
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


def _places(session: Session[Any, Any], entry: Entry) -> ops.Program[dict[str, Place]]:
    """Returns where the repository has each rid of a ledger."""
    op = ops.Outstanding(registrant_id=session.registrant_id, epoch=session.epoch)
    waiting = yield from ask(session, op)
    places = {one.rid: Place.REPLY if one.replied else Place.REQUEST for one in waiting}
    last = entry.last_request
    for rid in (None if last is None else last.rid, entry.last_enqueued, entry.last_dequeued):
        if rid is None or rid in places:
            continue
        if rid in {session.s_rid, session.r_rid}:  # also when history keeps it no longer
            places[rid] = Place.FINISHED
        else:
            places[rid] = yield from recovery.looked_up(session, rid)
    return places


def _judged(entry: Entry, places: dict[str, Place]) -> tuple[str, str]:
    """Returns the state, and what it rests on: first whether the repository knows all it should."""
    for rid in (entry.last_enqueued, entry.last_dequeued):
        if rid is not None and places[rid] is Place.NOWHERE:
            return "E", f"the ledger, which has {rid!r} as sent; the repository does not know it"
    rid = "" if entry.last_request is None else entry.last_request.rid
    place = places[rid]
    why = f"the ledger, which says {entry.noted.value}; the repository has {place.value}"
    return LEDGER[entry.noted, place], why


def _in_step(kept: Kept, letter: str, places: dict[str, Place]) -> ops.Program[None]:
    """Lets the ledger have what the repository knows of, and the session what the ledger does."""
    entry = kept.entry
    processed = entry.last_dequeued
    if processed is not None and places[processed] is Place.REPLY:
        _hand_out(kept.session, processed)  # the next send frees it
    if letter in {"B", "C", "D"} and entry.noted is Noted.NOT_SUBMITTED and entry.last_request:
        written = replace(entry, last_enqueued=entry.last_request.rid)
        yield from ledger_ops.WriteLedger(entry=written)
        kept.entry = written
    if letter == "C" and entry.last_request is not None:
        receiving.take_back(kept.session, entry.last_request.rid)


def _hand_out(session: Session[Any, Any], rid: str) -> None:
    """Counts a reply as handed out: its processing has committed."""
    if rid in session.outstanding:
        del session.outstanding[rid]
        session.received[rid] = None
        if not session.outstanding:
            session.state = ClientState.REPLY_RECVD


def _adopt(kept: Kept) -> ops.Program[Recovery]:
    """Takes over what the session has and the ledger does not.

    It is new, or an older copy, or the request after this one was given up: then the ledger still
    says that the reply to this one was processed.
    """
    session = kept.session
    found = yield from recovery.recover(session, None, acknowledged=False)
    letter = LETTERS[type(found).__name__]
    rid = session.s_rid or ""
    if letter == "C" and rid == kept.entry.last_dequeued:
        letter = LEDGER[Noted.DONE, Place.REPLY]
        _hand_out(session, rid)
    entry = Entry(
        last_request=LastRequest(rid=rid),
        last_enqueued=rid,
        last_dequeued=rid if letter == "D" else None,
    )
    yield from ledger_ops.WriteLedger(entry=entry)
    kept.entry, kept.letter = entry, letter
    why = f"{found.rests_on}; the ledger did not have this request, and was brought up to it"
    return recovery.found(letter, session, why, rid=rid)
