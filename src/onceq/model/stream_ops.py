"""The Ops of the bridges between streams and queues: positions, and what a relay has planned. Pure.

Each is one transaction, but for `StreamHold` and `StreamMove`, which are the first and the last of
a handler's. Those that name a life or an epoch raise Fenced once a newer one has begun. Ids of
streams and sessions have 64 bits, and are in hex. Source: spec M38; streams.md 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from onceq.model.ops.base import Integer, Op


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a position is: a name's, in the stream of a topic and session, in one of its lives."""

    name: str
    topic: str
    session: str
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Everything below `number` has taken effect. stream: None: nothing was taken yet.

    epoch: the message before `number` is of this epoch, or of one before.
    """

    life: int
    stream: str | None
    epoch: int
    number: int


class StreamOpen(Op[StreamPosition], changes="a life begins at a position, and fences the former"):
    """Begins a life at a position, or goes on with one; makes the error queue NAME.error.

    life: to go on with, after a lost connection: what it had committed shows in the answer; None:
    a new one. Fenced, InvalidValue (no name for a queue): nothing happened.
    """

    name: str
    topic: str
    session: str
    life: int | None = None


class StreamHold(Op[bool]):
    """Begins a handler's transaction: a life that is over has no effects. Fenced.

    token: tells this transaction from another that the handler may begin instead.
    """

    holder: Holder
    epoch: int
    number: int
    token: str


class StreamMove(Op[bool], changes="a position moves, with the effects of a handler"):
    """Moves a position, as the last statement of a handler's transaction.

    epoch, number: where it is; stream, to_epoch, to_number: where it will be. Fenced (it is not
    there any more), HandlerMisuse (the handler ended its transaction): nothing more happened.
    """

    holder: Holder
    epoch: int
    number: int
    stream: str
    to_epoch: int
    to_number: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayState:
    """Where a relay is. stream: None: it has sent nothing. epoch: with which its last life began.

    next: the number that is planned next. lowest: the first that is planned and not finished, or
    `next`.
    """

    stream: str | None
    epoch: int
    next: int
    lowest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A number and what is sent under it."""

    number: int
    body: bytes


class RelayOpen(Op[RelayState], changes="a relay is made, if it is new"):
    """Finds a relay, or makes it. QueueNotFound, IllegalState, InvalidValue.

    It is of another queue, topic or session; or the queue is volatile, or has replies. Or, with
    InvalidValue, it is in strict order.
    """

    name: str
    queue: str
    topic: str
    session: str


class RelayPlanned(Op[list[Planned]]):
    """What a relay has planned and not finished, by number; waits for a plan under way."""

    name: str


class RelayBegin(Op[int], changes="a life of a relay begins, and what it knows the fate of ends"):
    """Begins a life, in an epoch of its source, and fences the former ones; returns how many ended.

    end: of the log that the epoch goes on with. there: the planned numbers that the stream has as
    planned; all others are given back, to be planned again. Fenced; IllegalState (the stream is
    another, or ends below what is finished): nothing happened.
    """

    name: str
    stream: str
    epoch: int
    end: int
    there: list[int]


class RelayPlan(Op[list[Planned]], changes="datagrams are claimed, and their numbers planned"):
    """Claims up to n datagrams in the queue's order, and plans numbers for them from `next` on.

    bytes_max: what has a longer body goes to the error queue. From then on they are not killable.
    Fenced: the relay is not at (stream, epoch, next); nothing happened.
    """

    name: str
    stream: str
    epoch: int
    next: int
    n: Integer
    bytes_max: Integer


class RelayFinish(Op[int], changes="what is stable in a stream ends in its queue"):
    """Ends what is planned below a number, all of which is stable; returns how many. Fenced.

    voids: numbers that the stream has as void: what was planned for them is given back.
    """

    name: str
    epoch: int
    below: int
    voids: list[int]


class StreamForget(Op[bool], changes="the positions and the relay of a name are forgotten"):
    """Forgets all that is known of a name, for a person who has decided that its stream is another.

    What was planned is given back, and may be sent again. Returns whether there was anything.
    """

    name: str
