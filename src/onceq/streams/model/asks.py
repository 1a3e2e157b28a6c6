"""What is asked of a store, and what it answers, as values with a tag. Pure.

They travel as msgpack, in the body of a frame. A stream is named by its id, but where it is looked
for by topic and session. Every answer to an ask that changed something is sent when it is synced.
Source: streams.md 5; spec M1, M3 to M8, M34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from onceq.streams.errors import FrameRefused
from onceq.streams.model.choice import Bridge, Log, Promised
from onceq.streams.model.quorum import StoreList


class Tagged(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The base: the name of the class tells what it is."""


class Look(Tagged, frozen=True):
    """What do you have of the stream of this topic and session? Changes nothing."""

    topic: str
    session: int


class Fence(Tagged, frozen=True):
    """Promise this epoch to this life of a source, and heed no former one. own: its list."""

    stream: int
    epoch: int
    life: int
    own: StoreList


class Admit(Tagged, frozen=True):
    """Take the chosen log, cut what else you have, and note the bridge record.

    donors: addresses of stores that had all of the chosen log: to be asked first.
    """

    stream: int
    life: int
    log: Log
    bridge: Bridge
    donors: tuple[str, ...] = ()
    accept_loss: bool = False


class Fetch(Tagged, frozen=True):
    """Give me, a store, numbers from `begin` to before `end`, stable or not.

    Who asks takes only what is of the epoch that the chosen log has at that number.
    """

    stream: int
    begin: int
    end: int


class Read(Tagged, frozen=True):
    """Give me what is stable, or what there is if I have seen its epoch."""

    stream: int
    epoch: int
    begin: int
    end: int


class Register(Tagged, frozen=True):
    """Note this receiver, in this epoch. regid: 0: find or make one for topic and session."""

    stream: int
    epoch: int
    topic: str
    session: int
    regid: int = 0
    below: int = 0


class Acknowledge(Tagged, frozen=True):
    """This receiver has processed everything below."""

    stream: int
    regid: int
    below: int


class Deregister(Tagged, frozen=True):
    """Forget this receiver; what it did not acknowledge may be trimmed."""

    stream: int
    regid: int


class Positions(Tagged, frozen=True):
    """What have the receivers acknowledged that are registered with you? Another store asks."""

    stream: int
    epoch: int


class Known(Tagged, frozen=True):
    """The positions of the receivers that are registered here, in this epoch, by their keys."""

    epoch: int
    positions: Mapping[str, int]


class Found(Tagged, frozen=True):
    """What a store has. promised: the greatest epoch that it promised, to `life`."""

    stream: int = 0
    promised: int = 0
    life: int = 0
    has: Promised = Promised()


class Refused(Tagged, frozen=True):
    """A greater epoch was promised, or this one to another life."""

    promised: int


class Forgot(Tagged, frozen=True):
    """The store knows nothing of the stream, and may have promised more to another."""


class NotAdmitted(Tagged, frozen=True):
    """The store must be admitted to the epoch first."""


class Holding(Tagged, frozen=True):
    """The store is in the epoch, and has everything below `end`, synced."""

    epoch: int
    end: int


class Conflict(Tagged, frozen=True):
    """The store has this number with another content; it keeps what it has."""

    number: int


class Lacking(Tagged, frozen=True):
    """The store could not copy what it lacks: nobody gave it. begin, end: what it lacks."""

    begin: int
    end: int


class Full(Tagged, frozen=True):
    """The store has no room. blocking: the registration that keeps the oldest numbers; 0: none."""

    end: int
    blocking: int = 0


class Registered(Tagged, frozen=True):
    """The receiver is noted. old: it was known; below: what it has acknowledged here."""

    epoch: int
    regid: int
    old: bool
    below: int


class Range(Tagged, frozen=True):
    """What follows, as frames: numbers from `begin` to before `end`.

    begin: greater than was asked for if what lies before was trimmed. missing: numbers that are
    damaged here.
    """

    begin: int
    end: int
    missing: tuple[int, ...] = ()


Ask: TypeAlias = (
    Look | Fence | Admit | Fetch | Read | Register | Acknowledge | Deregister | Positions
)
Answer: TypeAlias = (
    Found
    | Known
    | Refused
    | Forgot
    | NotAdmitted
    | Holding
    | Conflict
    | Lacking
    | Full
    | Registered
    | Range
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_ASKS: Final = msgspec.msgpack.Decoder(Ask)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


def packed(one: Ask | Answer) -> bytes:
    """Return the bytes of an ask or an answer."""
    return _ENCODER.encode(one)


def ask_of(data: bytes | memoryview) -> Ask:
    """Return the ask that these bytes are. Raises FrameRefused."""
    return _decoded(_ASKS, data)  # type: ignore[no-any-return] # the decoder's own type


def answer_of(data: bytes | memoryview) -> Answer:
    """Return the answer that these bytes are. Raises FrameRefused."""
    return _decoded(_ANSWERS, data)  # type: ignore[no-any-return] # the decoder's own type


def _decoded(decoder: Any, data: bytes | memoryview) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameRefused(f"these bytes are no ask and no answer of a store: {error}") from error
