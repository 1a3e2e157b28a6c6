"""What a source and a receiver tell their application, as values. Pure.

In events, and only there, numbers are inclusive: first and last, as UM's are. Source: UM,
"Persistence Events"; spec M6, M11, M12, M15, M17, M18, M27.
"""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import msgspec


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a stream. stream: its id."""

    stream: int


class StoreRegistered(Happened, frozen=True, kw_only=True):
    """A store has registered this source or receiver.

    old: whether it knew it before; if not, this is its first life there. last: the last number that
    the store has, or that this receiver has acknowledged there; -1: none.
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


class StoreUnresponsive(Happened, frozen=True, kw_only=True):
    """A store does not answer, or closed the connection; told once, until it is back."""

    store: str
    why: str


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


class Confirmed(Happened, frozen=True, kw_only=True):
    """A receiver has processed messages; unique: how many different receivers have."""

    first: int
    last: int
    receiver: int
    unique: int


class Reclaimed(Happened, frozen=True, kw_only=True):
    """A source has released messages.

    forced: since a limit was reached. unstable: they were not stable: receivers may never get them.
    """

    first: int
    last: int
    forced: bool = False
    unstable: bool = False


class SourceFenced(Happened, frozen=True, kw_only=True):
    """A later life of this source has taken over; this one will never send again."""

    epoch: int


class ReceiverDead(Happened, frozen=True, kw_only=True):
    """A receiver said nothing for too long, or closed its connection."""

    receiver: int
    why: str


class WhyLost(enum.StrEnum):
    """Why a receiver does not get some numbers.

    ACKNOWLEDGED: stores gave them up since an earlier life had acknowledged them.
    """

    RECLAIMED = "reclaimed"
    TRIMMED = "trimmed"
    ACKNOWLEDGED = "acknowledged"
    LOST = "lost"
    SKIPPED = "skipped"


class Loss(Happened, frozen=True, kw_only=True):
    """Numbers that this receiver does not get; one made anew asks for them again."""

    first: int
    last: int
    why: WhyLost


class RolledBack(Happened, frozen=True, kw_only=True):
    """Numbers that this life was shown live, and that never became stable as they were shown."""

    first: int
    last: int


Event: TypeAlias = (
    StoreRegistered
    | RegistrationComplete
    | RegistrationError
    | StoreUnresponsive
    | SequenceNumbers
    | Stable
    | Confirmed
    | Reclaimed
    | SourceFenced
    | ReceiverDead
    | Loss
    | RolledBack
)
