"""How a client finds out where its last request stands, as tables: states A to E.

A request passes through four transactions, and a crash may fall between any two of them: the client
notes that it wants it (0), sends it (1), the server executes it (2), the client acts on the reply
(3). So there are four places where it can have stopped: A before the send, B before the execution,
C before the reply was acted on, D after all. What to do next differs in each, and a wrong guess
loses the request or runs it twice. E is ours: the repository was restored to a time before
something that the client knows to have happened. No rule can undo that, so a person decides.

Two witnesses can be asked, and neither is enough. The repository knows only what it has committed:
of a rid that it does not have, it cannot say whether it was never sent, or sent and lost. The
client's ledger knows only what the client lived to write down: a send that committed just before a
crash is missing there. `PLACES` is what the first witness says alone, `LEDGER` what both say
together. A pair of what they can say is a row, and there is no row that two states could share:
that is the reason to keep a ledger. Without either, an empty reply queue leaves A, B and D open
(`CANNOT_TELL`).

`TRANSITIONS` is the life of a request, against which tests hold the other two tables. `decide`
draws the conclusion for a clerk with a ledger, and for the bulk recovery of all clients.

Pure. Source: BN09 4.3 (states A to D, figure 4.6), CSEP 9.2.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from onceq.errors import IllegalState
from onceq.model.element import ElementState, Role
from onceq.model.ledger import Entry, Noted


class Move(enum.Enum):
    """What moves a request from one state to the next."""

    CONSTRUCTED = "a new request was constructed (transaction 0)"
    SUBMITTED = "the send committed (transaction 1)"
    DISCARDED = "the client gave the request up"
    EXECUTED = "the server committed (transaction 2)"
    PROCESSED = "the client committed what it did with the reply (transaction 3)"
    LOST = "the repository went back (failover, restore)"


class Place(enum.Enum):
    """Where a repository has a request."""

    NOWHERE = "nowhere: neither registration nor queue nor history has it"
    REQUEST = "the request, which is not finished"
    REPLY = "the reply, which is in the reply queue"
    FINISHED = "history or registration: it finished, and its reply is not in the reply queue"


NONE: Final = ""
"""The state of a client without any request."""
CANNOT_TELL: Final = "ABD"
"""The states that an empty reply queue leaves open (BN09)."""

TRANSITIONS: Final[dict[tuple[str, Move], str]] = {
    (NONE, Move.CONSTRUCTED): "A",
    ("A", Move.SUBMITTED): "B",
    ("A", Move.DISCARDED): NONE,
    ("A", Move.LOST): "E",
    ("B", Move.EXECUTED): "C",
    ("B", Move.LOST): "E",
    ("C", Move.PROCESSED): "D",
    ("C", Move.LOST): "E",
    ("D", Move.CONSTRUCTED): "A",
    ("D", Move.LOST): "E",
    ("E", Move.SUBMITTED): "B",
    ("E", Move.DISCARDED): NONE,
}
"""A to B to C to D, and to A with the next request. Only a person's decision leads out of E."""

PLACES: Final[dict[Place, str]] = {
    Place.NOWHERE: "A",
    Place.REQUEST: "B",
    Place.REPLY: "C",
    Place.FINISHED: "D",
}
"""By the queue manager's own record of a rid: the session, or history."""

LEDGER: Final[dict[tuple[Noted, Place], str]] = {
    (Noted.NOT_SUBMITTED, Place.NOWHERE): "A",
    (Noted.NOT_SUBMITTED, Place.REQUEST): "B",
    (Noted.NOT_SUBMITTED, Place.REPLY): "C",
    (Noted.NOT_SUBMITTED, Place.FINISHED): "D",
    (Noted.SUBMITTED, Place.NOWHERE): "E",
    (Noted.SUBMITTED, Place.REQUEST): "B",
    (Noted.SUBMITTED, Place.REPLY): "C",
    (Noted.SUBMITTED, Place.FINISHED): "D",
    (Noted.DONE, Place.NOWHERE): "E",
    (Noted.DONE, Place.REQUEST): "E",
    (Noted.DONE, Place.REPLY): "D",
    (Noted.DONE, Place.FINISHED): "D",
}
"""By the client's ledger and the repository together. What a ledger has as sent, and the repository
does not know, was lost there: E, never A (finding 10). What the repository has, and the ledger not
yet, was sent by a life that died before it could write it down."""


def after(state: str, move: Move) -> str:
    """Returns the state after a move. Raises IllegalState if it cannot happen in that state."""
    following = TRANSITIONS.get((state, move))
    if following is None:
        where = f"in state {state}" if state else "without a request"
        raise IllegalState(f"{where} it cannot be that {move.value}: recover() says what is next")
    return following


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What a registration says of a client; see `ops.Connection`.

    received: rids whose replies were handed out to this life, and that it has not acknowledged.
    """

    was: str = "new"
    s_rid: str | None = None
    s_state: str | None = None
    r_rid: str | None = None
    received: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a client's last request, and what that rests on.

    is_behind: the ledger lacks this request, but the registration has it.
    """

    letter: str
    why: str
    rid: str | None
    is_behind: bool = False


def place_of(states: Collection[str]) -> Place:
    """Returns where a repository has a rid, by the states that queues and history show."""
    if ElementState.REPLIED in states:
        return Place.REPLY
    if ElementState.FINISHED in states:
        return Place.FINISHED
    return Place.REQUEST if states else Place.NOWHERE


def by_registration(tags: Tags) -> tuple[str, str]:
    """Returns the state of the last request, and what that rests on, without a ledger."""
    if tags.s_rid is None:
        return "A", "the registration, which has no send"
    if tags.s_state == "done" and tags.was == "disconnected":
        return "D", "the registration: the session had been ended"
    if tags.s_rid == tags.r_rid:
        return "D", "the registration: the rid of the last send is that of the last receive"
    if tags.s_state == "done":
        return "D", "the registration: nothing is outstanding, its replies were acknowledged"
    if tags.s_rid in tags.received:
        return "D", "this session, which was handed its reply"
    place = Place.REQUEST if tags.s_state == Role.REQUEST else Place.REPLY
    return PLACES[place], f"the registration and {place.value}"


def by_ledger(entry: Entry, places: Mapping[str, Place]) -> tuple[str, str]:
    """Returns the state of a ledger's last request; E if the repository lost what it had.

    places: of each rid in the ledger.
    """
    for rid in (entry.last_enqueued, entry.last_dequeued):
        if rid is not None and places[rid] is Place.NOWHERE:
            return "E", f"the ledger, which has {rid!r} as sent; the repository does not know it"
    rid = "" if entry.last_request is None else entry.last_request.rid
    place = places[rid]
    why = f"the ledger, which says {entry.noted.value}; the repository has {place.value}"
    return LEDGER[entry.noted, place], why


def decide(entry: Entry, tags: Tags, places: Mapping[str, Place]) -> Standing:
    """Returns where the last request of a client with a ledger stands.

    places: of each rid in the ledger. A request that the registration has and the ledger lacks was
    sent by a life whose ledger is lost or is an older copy; or after this one was given
    up: then the ledger may still say that the reply to the one before was processed.
    """
    last = entry.last_request
    unknown_to_it = last is None or (
        places[last.rid] is not Place.NOWHERE and last.rid != tags.s_rid
    )
    if unknown_to_it and tags.s_rid is not None:
        letter, why = by_registration(tags)
        if letter == "C" and tags.s_rid == entry.last_dequeued:
            letter = LEDGER[Noted.DONE, Place.REPLY]
        return Standing(letter=letter, why=why, rid=tags.s_rid, is_behind=True)
    if last is None:
        return Standing(letter=NONE, why="the ledger, which has no request", rid=None)
    letter, why = by_ledger(entry, places)
    return Standing(letter=letter, why=why, rid=last.rid)
