"""What is recorded of streams, as values: the kinds of events of a history.

What a life of a source was told and is about to send, what a life of a receiver was shown and told,
and what stores have. Numbers are inclusive, as in the events of streams: first and last. `content`
tells messages of one number apart: of two that have the same one, the bytes are the same; "" says
that nobody knows it.
"""

from __future__ import annotations

from typing import Final

from onceq.history.events.kinds import Event


class StreamEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a stream. stream: its id; 0: not to one alone."""

    stream: int = 0


class OfSource(StreamEvent, frozen=True, kw_only=True):
    """Something that happened to a life of a source. life: a number that no other life has."""

    life: int


class Began(OfSource, frozen=True, kw_only=True):
    """A life of the source may send in an epoch. number: the one that its next message has."""

    epoch: int
    number: int


class Sent(OfSource, frozen=True, kw_only=True):
    """A life of the source is about to send numbers in a row, all of one content."""

    first: int
    last: int
    content: str = ""


class Refused(OfSource, frozen=True, kw_only=True):
    """A send raised: of what was about to be sent, nothing was from this number on."""

    number: int


class StableTold(OfSource, frozen=True, kw_only=True):
    """A life of the source was told that messages which it had sent are stable."""

    first: int
    last: int


class Reclaimed(OfSource, frozen=True, kw_only=True):
    """A life of the source was told that messages are released. unstable: they were given up."""

    first: int
    last: int
    forced: bool = False
    unstable: bool = False


class Accepted(OfSource, frozen=True, kw_only=True):
    """A life of the source began without numbers that were stable: a person accepted their loss."""

    first: int
    last: int


class Confirmed(OfSource, frozen=True, kw_only=True):
    """A life of the source was told that a receiver has processed messages. session: its id."""

    first: int
    last: int
    session: int


class Fenced(OfSource, frozen=True, kw_only=True):
    """A life of the source was told that another has taken over, in this epoch at least."""

    epoch: int


class Finished(OfSource, frozen=True, kw_only=True):
    """A life of the source was told that all it sent is stable, and sends no more.

    number: the one that its next message would have.
    """

    number: int


class OfReceiver(StreamEvent, frozen=True, kw_only=True):
    """Something that happened to a life of a receiver. life: ascends with its lives."""

    receiver: str
    life: int


class Entered(OfReceiver, frozen=True, kw_only=True):
    """A life is registered, and is to get what comes from `number` on.

    is_stable_only: it is shown only what is stable. session: its id. epoch: that it follows.
    """

    number: int
    epoch: int
    session: int = 0
    is_stable_only: bool = True


class Positioned(OfReceiver, frozen=True, kw_only=True):
    """A store has told a life, as it registered, the last number acknowledged there; -1: none."""

    store: str
    last: int


class Delivered(OfReceiver, frozen=True, kw_only=True):
    """A life was shown numbers in a row, of one epoch and content. again: marked retransmitted."""

    first: int
    last: int
    epoch: int
    content: str = ""
    again: bool = False


class Acknowledged(OfReceiver, frozen=True, kw_only=True):
    """A life's application is about to acknowledge all below a number, by a token."""

    below: int


class Lost(OfReceiver, frozen=True, kw_only=True):
    """A life was told that it does not get numbers. why: as in `WhyLost`."""

    first: int
    last: int
    why: str


class RolledBack(OfReceiver, frozen=True, kw_only=True):
    """A life was told that it was shown numbers in vain."""

    first: int
    last: int


class OfStore(StreamEvent, frozen=True, kw_only=True):
    """Something about a store."""

    store: str


class Opened(OfStore, frozen=True, kw_only=True):
    """What a store knew of a stream as a life of it began. life: ascends with its lives.

    promised, admitted: epochs. begin, end: of its log.
    """

    life: int
    promised: int
    admitted: int
    begin: int
    end: int


class Forgot(OfStore, frozen=True, kw_only=True):
    """A store has lost its disk, at some time."""


class Kept(OfStore, frozen=True, kw_only=True):
    """The log that a store has of a stream when all has ended: from `begin` to before `end`."""

    begin: int
    end: int


class Held(OfStore, frozen=True, kw_only=True):
    """What a store has of that log: numbers in a row, of one epoch and content.

    is_void: nobody gets them, since they were given up.
    """

    first: int
    last: int
    epoch: int
    content: str = ""
    is_void: bool = False


class Ended(StreamEvent, frozen=True, kw_only=True):
    """All has ended, and had the time to be finished.

    copies: so many stores must have what is stable; 0: that is not judged. receivers: who must have
    been shown everything from the number `first` on. may_trim: stores may have given up what a
    receiver had not acknowledged.
    """

    copies: int = 0
    receivers: tuple[str, ...] = ()
    first: int = 0
    may_trim: bool = False


Rows = Sent | StableTold | Reclaimed | Confirmed | Delivered | Lost | RolledBack | Held
"""The events of numbers in a row."""

KINDS: Final[tuple[type[StreamEvent], ...]] = (
    Began,
    Sent,
    Refused,
    StableTold,
    Reclaimed,
    Accepted,
    Confirmed,
    Fenced,
    Finished,
    Entered,
    Positioned,
    Delivered,
    Acknowledged,
    Lost,
    RolledBack,
    Opened,
    Forgot,
    Kept,
    Held,
    Ended,
)
"""Every kind of event that a file may hold."""
