"""What is asked of a store, and what it answers, as values with a tag. Pure.

`encoding` makes them bytes. A stream is named by its id, but where it is looked for by topic and
session. Every answer to an ask that changed something is sent when it is synced. Source: streams.md
5; spec M1, M3 to M8, M34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from onceq.streams.model import listings, uses
from onceq.streams.model.choice import Bridge, Firsts, Log, Promised, Stage, governing
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.losses import Losses
from onceq.streams.model.quorum import StoreList
from onceq.streams.model.tagged import Tagged
from onceq.streams.model.tombstones import Mark

NAME_MAX: Final = 255
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
EPOCH_MAX: Final = (1 << 32) - 1
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
"""As long as frames have room for it: no life could send in a later one."""
Regid: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An id that a receiver chooses: so many are left to those that choose none."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
"""A topic, or an address."""


class Look(Tagged, frozen=True):
    """What do you have of the stream of this topic and session? Changes nothing.

    regid: of its source at this store: a stream of this topic that has it is meant before another.
    """

    topic: Name
    session: Natural
    regid: Natural = 0


class Fence(Tagged, frozen=True):
    """Promise this epoch to this life of a source, and heed no former one. own: its list.

    topic, session: by which the stream is looked for. regid: of the source at this store; 0: find
    or make one.
    """

    stream: Natural
    epoch: Epoch
    life: Natural
    own: StoreList
    topic: Name = ""
    session: Natural = 0
    regid: Regid = 0


class Admit(Tagged, frozen=True):
    """Take the chosen log, cut what else you have, and note the bridge record.

    donors: addresses of stores that had all of the chosen log: to be asked first. address: the
    source's. activity_ms: after so long of silence it counts as gone; 0: at once. late_join:
    whether its receivers may begin with what was sent before them.
    """

    stream: Natural
    life: Natural
    log: Log
    bridge: Bridge
    donors: tuple[Name, ...] = ()
    address: Name = ""
    activity_ms: Natural = 0
    late_join: bool = True


class Fetch(Tagged, frozen=True):
    """Give me, a store, numbers from `begin` to before `end`, stable or not.

    Who asks takes only what is of the epoch that the chosen log has at that number.
    """

    stream: Natural
    begin: Natural
    end: Natural


class Read(Tagged, frozen=True):
    """Give me what is stable, or what there is if I have seen its epoch."""

    stream: Natural
    epoch: Natural
    begin: Natural
    end: Natural


class Register(Tagged, frozen=True):
    """Note this receiver, in this epoch.

    regid: 0: find or make one for topic and session; without a session, make one. A session that
    is known keeps the one that it has. life: of the receiver; 0: it does not say, and nobody is
    refused for it. activity_ms: as in Admit. mark: as in `tombstones`, at least.
    """

    stream: Natural
    epoch: Natural
    topic: Name
    session: Natural
    regid: Regid = 0
    below: Natural = 0
    life: Natural = 0
    activity_ms: Natural = 0
    mark: Mark = 0


class Acknowledge(Tagged, frozen=True):
    """This receiver has processed everything below.

    session: the receiver's, if it has one: a store that forgot may have given its id to another.
    life, activity_ms: as in Register. Asked again, it tells that the receiver lives.
    """

    stream: Natural
    regid: Natural
    below: Natural
    session: Natural = 0
    life: Natural = 0
    activity_ms: Natural = 0


class Deregister(Tagged, frozen=True):
    """Forget this receiver; what it did not acknowledge may be trimmed.

    session: as in Acknowledge. key: in place of both: its name at all stores, by which the store
    may know of it from others only, or not at all. mark: as in Register.
    """

    stream: Natural
    regid: Natural = 0
    session: Natural = 0
    key: Name = ""
    mark: Mark = 0


class Positions(Tagged, frozen=True):
    """What have the receivers acknowledged that are registered with you? Another store asks."""

    stream: Natural
    epoch: Natural


class Streams(Tagged, frozen=True):
    """What streams do you know, with an id greater than `after`? A person asks."""

    after: Natural = 0


class Learn(Tagged, frozen=True):
    """What must a receiver know of the stream of this topic and session? A store tells it too.

    session: 0: of the one stream of this topic, whoever sends it.
    """

    topic: Name
    session: Natural


class Confirm(Tagged, frozen=True):
    """This receiver has processed everything below. It is told to the source, and has no answer.

    epoch: that it follows. receiver: its session id; without one, a number that stands for its
    registration. Said again, it tells that the receiver lives.
    """

    stream: Natural
    epoch: Natural
    receiver: Natural
    below: Natural


class Information(Tagged, frozen=True):
    """What a receiver must know of a stream: the registration information (UM: SRI).

    epoch: 0: the store is between a promise and an admission. firsts: every epoch's first number.
    stage, lists, losses, keeps: of the bridge record. address: the source's. stable: everything
    below is, as is known. session: of the source.
    """

    stream: Natural
    epoch: Natural
    stage: Stage
    firsts: Firsts
    lists: tuple[StoreList, ...]
    address: str
    stable: Natural
    session: Natural = 0
    losses: Losses = ()
    keeps: bool = True

    @property
    def governs(self) -> tuple[StoreList, ...]:
        """The lists of which a recover set must say that numbers are lost."""
        return governing(self.stage, self.lists)


class Others(Tagged, frozen=True):
    """There is no one stream of this topic: what there is instead, each topic with a session."""

    streams: tuple[tuple[Name, Natural], ...]


class Known(Tagged, frozen=True):
    """The positions of the receivers that are registered here, in this epoch, by their keys."""

    epoch: Natural
    positions: Mapping[str, int]
    marks: Mapping[str, Mark] = {}


class Found(Tagged, frozen=True):
    """What a store has. promised: the greatest epoch that it promised, to `life`.

    session, regid, late_join: of the source, as this store knows them. used: the live user that the
    source's registration has there, as a look is told. gone: the streams of that topic and session
    which were deregistered here.
    """

    stream: Natural = 0
    promised: Natural = 0
    life: Natural = 0
    has: Promised = Promised()
    session: Natural = 0
    regid: Natural = 0
    late_join: bool = True
    used: uses.InUse | None = None
    gone: tuple[Natural, ...] = ()


class Taken(Tagged, frozen=True):
    """Another source has this RegID here."""

    regid: Natural


class Refused(Tagged, frozen=True):
    """A greater epoch was promised, or this one to another life; or a chosen id is another's."""

    promised: Natural


class Forgot(Tagged, frozen=True):
    """The store knows nothing of the stream, and may have promised more to another."""


class NotAdmitted(Tagged, frozen=True):
    """The store must be admitted to the epoch first."""


class Holding(Tagged, frozen=True):
    """The store is in the epoch, and has everything below `end`, synced.

    regid: told of an admission: the source's here.
    """

    epoch: Natural
    end: Natural
    regid: Natural = 0


class Noted(Tagged, frozen=True):
    """The store is in the epoch, and keeps no messages: it counts for no stability.

    regid: as of Holding.
    """

    epoch: Natural
    regid: Natural = 0


class Conflict(Tagged, frozen=True):
    """The store has this number with another content; it keeps what it has."""

    number: Natural


class Lacking(Tagged, frozen=True):
    """The store could not copy what it lacks: nobody gave it. begin, end: what it lacks."""

    begin: Natural
    end: Natural


class Full(Tagged, frozen=True):
    """The store has no room. blocking: the registration that keeps the oldest numbers; 0: none."""

    end: Natural
    blocking: Natural = 0


class Registered(Tagged, frozen=True):
    """The receiver is noted. old: it was known; below: what it has acknowledged here."""

    epoch: Natural
    regid: Natural
    old: bool
    below: Natural


class Range(Tagged, frozen=True):
    """What follows, as frames: numbers from `begin` to before `end`.

    begin: greater than was asked for if what lies before was trimmed. frames: how many follow; the
    first may begin before. missing: the number behind them is damaged here. lost: the last epoch
    that was begun without what was stable: who was shown that must know of it first.
    """

    begin: Natural
    end: Natural
    frames: Natural = 0
    missing: bool = False
    lost: Epoch = 0


Ask: TypeAlias = (
    Look
    | Streams
    | Learn
    | Fence
    | Admit
    | Fetch
    | Read
    | Register
    | Acknowledge
    | Deregister
    | Positions
    | uses.Leave
    | EndStream
)
Said: TypeAlias = Learn | Confirm
"""What a receiver says to its source."""
Answer: TypeAlias = (
    Found
    | listings.Listing
    | Information
    | Others
    | Known
    | Taken
    | Refused
    | Forgot
    | NotAdmitted
    | Holding
    | Noted
    | Conflict
    | Lacking
    | Full
    | Registered
    | Range
    | uses.InUse
    | Gone
)
