"""Every event of streams that onceq logs; `onceq.telemetry` says what an event is, and tells it."""

from __future__ import annotations

import logging

from onceq.telemetry import Event


class StreamGap(Event, level=logging.WARNING):
    """A receiver that has no `on_event`, nor its context, does not get some numbers of a stream.

    why: as in `onceq.streams.WhyLost`; `rolled back`: it saw them live, and they are void.
    """

    stream: str
    first: int
    last: int
    why: str


class StoreBegan(Event):
    """A store serves. directory: None: it is in memory. forgot: it was damaged, and knows nothing.

    metrics: where they are; None: nowhere.
    """

    address: str
    directory: str | None
    forgot: bool
    metrics: str | None


class StoreStopped(Event):
    """A store was told to stop, and what it took is committed."""

    address: str


class StoreFailed(Event, level=logging.ERROR):
    """The disk of a store failed: its process ends, for nobody knows what the disk has."""

    address: str
    error: str


class StoreFull(Event, level=logging.WARNING):
    """The disk of a store has no room: it takes no messages of any stream."""

    directory: str


class StoreHasRoom(Event):
    """The disk of a store has room again."""

    directory: str


class _OfStream(Event):
    """What happened to a stream at a store. stream: its id."""

    stream: str
    topic: str


class StreamFull(_OfStream, level=logging.WARNING):
    """A store takes no more of a stream. blocking: the id of the receiver for which it waits.

    receiver: its name at all stores, by which it is deregistered.
    """

    blocking: int
    receiver: str


class StreamHasRoom(_OfStream):
    """A store takes messages of a stream again."""


class StreamDamaged(_OfStream, level=logging.WARNING):
    """A store cannot read some numbers of a stream; others have them. count: 0: all are healed."""

    count: int


class StreamOverwritten(_OfStream, level=logging.WARNING):
    """A store gave up numbers that a receiver had not acknowledged. count: since it began."""

    count: int


class ReceiversForgotten(_OfStream, level=logging.WARNING):
    """A store forgot receivers of which nothing was heard for too long. count: since it began."""

    count: int


class EffectsGivenUp(Event, level=logging.WARNING):
    """A message of a stream raised too often, alone: it is in the queue, and was passed.

    number: of the message in the stream. code, error: of its last error, and what that said.
    traceback: where in the handler it was raised; None: by onceq, or by the database alone.
    """

    bridge: str
    topic: str
    number: int
    queue: str
    code: str
    error: str
    traceback: str | None


class EffectsUndone(Event, level=logging.WARNING):
    """A bridge into a database: the effects of some messages were undone, and are tried again.

    code: what kind of error it was; error: what it said. traceback: as of EffectsGivenUp; it is
    left out while the bridge's errors are the same.
    """

    bridge: str
    topic: str
    first: int
    last: int
    code: str
    error: str
    traceback: str | None


class EffectsMissed(Event, level=logging.WARNING):
    """Numbers of a stream were passed without effects. first, last: both included.

    why: reclaimed (void), or lost, as whoever receives them has allowed.
    """

    bridge: str
    topic: str
    first: int
    last: int
    why: str


class BridgeWaits(Event, level=logging.WARNING):
    """A bridge lost its connection, or the environment failed it: it tries again after the delay.

    code: of the error.
    """

    bridge: str
    code: str
    error: str
    delay_s: float


class BridgeGoesOn(Event):
    """A bridge that waited goes on. tries: how many were in vain."""

    bridge: str
    tries: int
    away_s: float


class BridgeLacksStore(Event, level=logging.WARNING):
    """A store does not answer a bridge, or refused it: others may do, else the bridge waits.

    Or what it answered is not believed. bridge: of a query of Spark its name, or `onceq-stream`.
    """

    bridge: str
    topic: str
    store: str
    why: str


class StoresForgot(Event, level=logging.ERROR):
    """A relay cannot begin: too few stores have what was sent. It waits until that changes.

    forgot: stores that hold nothing, or damaged. silent: that do not answer. end: all below it is
    left. accept_loss: what the next life is given that is to go on with that.
    """

    bridge: str
    topic: str
    forgot: str
    silent: str
    end: int
    accept_loss: str


class LossAccepted(Event, level=logging.WARNING):
    """A relay began without what was lost, as its option `accept_loss` says.

    first, last: numbers that nobody gets, both included; last < first: none.
    """

    bridge: str
    topic: str
    first: int
    last: int


class RelayBegan(Event):
    """A life of a relay begins, in an epoch of its source. next: the number that it plans first.

    finished: how many requests of former lives have ended, as the stream has them. again: how many
    are planned again, as it has not.
    """

    bridge: str
    queue: str
    topic: str
    epoch: int
    next: int
    finished: int
    again: int


class RelayedAgain(Event, level=logging.WARNING):
    """Numbers of a relay are void in the stream: what was planned for them is planned again.

    first, last: both included.
    """

    bridge: str
    topic: str
    first: int
    last: int


class RelayStopped(Event):
    """A life of a relay has ended. sent: how many requests it has ended, as stable.

    left: how many are planned, and not known to be stable: the next life settles them.
    """

    bridge: str
    sent: int
    left: int
