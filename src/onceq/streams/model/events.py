"""What a source and a receiver tell their application, as values. Pure.

In events, and only there, numbers are inclusive: first and last, as UM's are. Where an event has
`given`, that is the object which the sender gave with the message, until it is reclaimed; messages
that came with one have events of their own, others those of several in a row. Source: UM,
"Persistence Events"; spec M6, M8, M11, M12, M15 to M18, M27, M31.
"""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import msgspec


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a stream. stream: its id."""

    stream: int


class Notification(enum.StrEnum):
    """Of which stability a source tells: of none, by its list's rule, or also at each store."""

    OFF = "off"
    STABLE = "stable"
    EACH_STORE = "each_store"


class StoreRegistered(Happened, frozen=True, kw_only=True):
    """A store has registered this source or receiver.

    regid: what it is called there, and no other source, or no other receiver of the stream. old:
    whether the store knew it before; if not, this is its first life there. last: the last number
    that the store has, or that this receiver has acknowledged there; -1: none.
    """

    store: str
    regid: int
    old: bool
    last: int


class RegistrationComplete(Happened, frozen=True, kw_only=True):
    """A source may send, or a receiver will get, what comes from `next_number` on.

    reported: the last number, as the stores agree on it by the source's consensus rule, in UM's
    way: for comparison only; to a receiver the greatest that a store has. epoch: of the stream.
    """

    next_number: int
    reported: int
    epoch: int


class RegistrationError(Happened, frozen=True, kw_only=True):
    """A store refused a registration. why: what, where, and what to do."""

    store: str
    why: str


class StoresForgot(Happened, frozen=True, kw_only=True):
    """Too few stores have what was sent for a source to begin: it waits. Told when that changes.

    forgot: stores that answered, and hold nothing, or damaged. silent: that do not answer: if they
    come back, the source goes on by itself. end: below it is all that is left, by those that did
    answer. accept_loss: what a life is given that is to go on with that.
    """

    forgot: tuple[str, ...]
    silent: tuple[str, ...]
    end: int
    accept_loss: str


class LossAccepted(Happened, frozen=True, kw_only=True):
    """A source began without what was lost, since its option `accept_loss` says so.

    first, last: numbers that nobody gets; last < first: none. What was shown under them is told as
    rolled back, and the numbers as a loss.
    """

    first: int
    last: int


class StoreUnresponsive(Happened, frozen=True, kw_only=True):
    """A store does not answer, closed the connection, or has no room; once, until it is back.

    why: which of these, and what to do.
    """

    store: str
    why: str


class OptionsChanged(Happened, frozen=True, kw_only=True):
    """A life of a source began with an option that stores know otherwise; it is changed there.

    option: its name, or "stores". before: what stores know. now: what the life wants.
    """

    option: str
    before: str
    now: str


class ListChanged(Happened, frozen=True, kw_only=True):
    """A change of lists has come one stage further.

    stage: "joint": what is stable is so by the old and the new list; "settling": all stores of the
    new list hold the stream; "settled": it alone counts. stores: of the lists that count now.
    """

    stage: str
    stores: tuple[str, ...]


class SequenceNumbers(Happened, frozen=True, kw_only=True):
    """The numbers that one `send` took, before it returns; given: the sender's object."""

    first: int
    last: int
    given: Any = None


class Stable(Happened, frozen=True, kw_only=True):
    """Messages are stable by the list's rule; store: None, or the one store that has them."""

    first: int
    last: int
    store: str | None = None
    given: Any = None


class NotStable(Happened, frozen=True, kw_only=True):
    """Messages are not stable, and their lifetime is over: they are given up.

    `Reclaimed` tells when that has come to its end; those that it leaves out, or does not call
    unstable, were found to be stable then.
    """

    first: int
    last: int
    given: Any = None


class FlightSize(Happened, frozen=True, kw_only=True):
    """A message was sent though there was no room in flight; not is_over: there is room again.

    messages, bytes: that are in flight.
    """

    is_over: bool
    messages: int
    bytes: int


class Confirmed(Happened, frozen=True, kw_only=True):
    """A receiver has processed messages; unique: how many different receivers have.

    receiver: its session id; without one, a number that stands for its registration.
    """

    first: int
    last: int
    receiver: int
    unique: int
    given: Any = None


class Reclaimed(Happened, frozen=True, kw_only=True):
    """A source has released messages; one that takes several numbers has an event for each.

    forced: since a limit was reached. unstable: they were not stable: receivers may never get them.
    """

    first: int
    last: int
    forced: bool = False
    unstable: bool = False
    given: Any = None


class SourceFenced(Happened, frozen=True, kw_only=True):
    """A later life of this source has taken over; this one will never send again."""

    epoch: int


class ReceiverDead(Happened, frozen=True, kw_only=True):
    """A receiver that confirms said nothing for too long, or its connection is gone.

    Told once, until it is back. receiver: as in `Confirmed`.
    """

    receiver: int
    why: str


class WhyLost(enum.StrEnum):
    """Why a receiver does not get some numbers.

    ACKNOWLEDGED: stores gave them up since an earlier life had acknowledged them. SKIPPED: the life
    began behind the beginning of their message. UNFINISHED: parts of a message whose source ended
    before all of it was sent: nobody was told that it is stable.
    """

    RECLAIMED = "reclaimed"
    TRIMMED = "trimmed"
    ACKNOWLEDGED = "acknowledged"
    LOST = "lost"
    SKIPPED = "skipped"
    UNFINISHED = "unfinished"


class Loss(Happened, frozen=True, kw_only=True):
    """Numbers that this receiver does not get; one made anew asks for them again."""

    first: int
    last: int
    why: WhyLost


class RolledBack(Happened, frozen=True, kw_only=True):
    """Numbers that this life was shown live, and that never became stable as they were shown.

    Or they were lost, and a person accepted that: then also what was stable.
    """

    first: int
    last: int


Event: TypeAlias = (
    StoreRegistered
    | RegistrationComplete
    | RegistrationError
    | StoresForgot
    | LossAccepted
    | StoreUnresponsive
    | OptionsChanged
    | ListChanged
    | SequenceNumbers
    | Stable
    | NotStable
    | FlightSize
    | Confirmed
    | Reclaimed
    | SourceFenced
    | ReceiverDead
    | Loss
    | RolledBack
)
