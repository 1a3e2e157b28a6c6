"""How a client finds out where its last request stands, as tables: states A to E.

Pure. `TRANSITIONS` is the life of a request; `PLACES` and `LEDGER` say in which state it is, by
what each variant of recovery can see. Source: BN09 4.3 (states A to D, figure 4.6), CSEP 9.2.
"""

from __future__ import annotations

import enum
from typing import Final

from onceq.errors import IllegalState
from onceq.model.ledger import Noted


class Event(enum.Enum):
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
"""The state of a client that has no request."""
CANNOT_TELL: Final = "ABD"
"""What an empty reply queue leaves open (BN09)."""

TRANSITIONS: Final[dict[tuple[str, Event], str]] = {
    (NONE, Event.CONSTRUCTED): "A",
    ("A", Event.SUBMITTED): "B",
    ("A", Event.DISCARDED): NONE,
    ("A", Event.LOST): "E",
    ("B", Event.EXECUTED): "C",
    ("B", Event.LOST): "E",
    ("C", Event.PROCESSED): "D",
    ("C", Event.LOST): "E",
    ("D", Event.CONSTRUCTED): "A",
    ("D", Event.LOST): "E",
    ("E", Event.SUBMITTED): "B",
    ("E", Event.DISCARDED): NONE,
}
"""A to B to C to D, and to A again with the next request. Out of E only by a person's decision."""

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
"""By the client's ledger and the repository together. What a ledger has as sent, and a repository
does not know, was lost there: E, never A (finding 10). What the repository has, and the ledger not
yet, was sent by a life that died before it could write it down."""


def after(state: str, event: Event) -> str:
    """Returns the state after an event. Raises IllegalState when it cannot come about there."""
    following = TRANSITIONS.get((state, event))
    if following is None:
        where = f"in state {state}" if state else "without a request"
        raise IllegalState(f"{where} it cannot be that {event.value}: recover() says what is next")
    return following
