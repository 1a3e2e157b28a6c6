"""A life of a source, the epochs that it begins, and why each ends, as values. Pure."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage, may_fill
from onceq.streams.model.losses import Acceptance
from onceq.streams.model.options import Creation
from onceq.streams.model.quorum import StoreList, are_stable
from onceq.streams.model.uses import InUse


class SourceLife(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a source. life: by which stores tell it from others; never used before.

    born_s: what the clock said then, in seconds since 1970. own: the list that the source is to
    use. session: by which stores know its stream; one that gives RegIDs has the session that stores
    know by those, and this one if they know none. regids: at stores. address: where receivers find
    it. late_join: whether they may begin with what was sent before them. activity_ms: a store that
    hears nothing of it for so long lets a later life take over; 0: at once. accepts: what a person
    accepts as lost, in its first epoch. creation: with how many stores a new stream may begin.
    """

    life: int
    born_s: int
    own: StoreList
    topic: str
    session: int
    address: str = ""
    activity_ms: int = 0
    regids: Mapping[str, int] = {}
    late_join: bool = True
    accepts: Acceptance | None = None
    creation: Creation = Creation.ALL

    @property
    def fresh(self) -> int:
        """The id of its stream, if that is new: the same for all lives of the source.

        With ids by chance, two lives that begin at once would each create a stream: a store can
        promise both of them, and each would be settled at all stores. A stream that is begun anew
        since all stores lost it has the same id, and is told by its epochs: they begin with the
        clock, behind any that the lost one had, unless it had more than one a second.
        """
        return self.fresh_beside(frozenset())

    def fresh_beside(self, gone: AbstractSet[int]) -> int:
        """Return that id, if streams of the source were deregistered. gone: their ids.

        Each that is follows from the one before. Who does not know the last of them tries one that
        a stable set of stores refuses, so that no two lives send in different ones.
        """
        name, stream = f"{self.session:x} {self.topic}", 0
        for turn in range(len(gone) + 1):
            named = hashlib.sha256((f"{name} {turn}" if turn else name).encode()).digest()
            stream = int.from_bytes(named[:8], "little") or 1
            if stream not in gone:
                break
        return stream


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch in which a source may send: a stable set of every list in `bridge` holds `log`.

    noted: the stage that each store has noted; ends: of the logs of those that keep messages. seen:
    the ends that stores answered to the fence. donors: stores to copy from, the best first.
    refused: stores that had promised more. unable: those that could not promise: they had no room,
    or another source has the RegID there (taken). fresh: those that have promised, and hold nothing
    of the stream. session: of the source. regids: its at stores. late_join: what those that hold
    the stream knew of it; None: it is new. creation: how many must note that.
    """

    stream: int
    bridge: Bridge
    log: Log
    noted: Mapping[str, Stage]
    ends: Mapping[str, int]
    seen: Mapping[str, int] = {}
    donors: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    unable: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    session: int = 0
    regids: Mapping[str, int] = {}
    late_join: bool | None = None
    creation: Creation = Creation.ALL

    @property
    def epoch(self) -> int:
        """Its number."""
        return self.bridge.epoch


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery could not be complete now. forgot: stores that answered, and hold nothing.

    silent: the others that are needed. If none is silent, no wait helps. used: those that hear
    another live user of the registration. taken: those where another source has the RegID. rest:
    what a person may accept, if something was sent; only a life that never sent can go by that.
    is_known: some store has told that the stream is not new, to this life.
    """

    forgot: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    rest: Acceptance | None = None
    is_known: bool = False


class Succeeded(msgspec.Struct, frozen=True, kw_only=True):
    """A later life has taken over: this one will never send again. epoch: the other's, at least."""

    epoch: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Another life is live, as stores say: what each of them does. lists: of the stream, all seen.

    Nothing was promised to this one.
    """

    users: Mapping[str, InUse]
    lists: tuple[StoreList, ...]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long a source waits. ask_s: for the answers of stores; admit_s: until they are admitted.

    interval_s: before a recovery that could not be complete is begun anew. retry_s: before a store
    is asked again, or sent again what it had no room for. resend_s: before it is sent again what it
    has not answered for; unresponsive_s: before it counts as one that does not answer. copy_s:
    until a store is admitted, which may have much to copy, while the source sends without it.
    change_s: before a change of lists that could not begin is tried again; at first interval_s.
    room_s: before a store that had no room for a promise is asked anything in the epoch, or one
    that had none for messages ends it since it lacks what was released. backup_s: until a backup
    takes the place of a store that does not answer. beat_s: so often each store hears of the
    source, though there is nothing to send; 0: it need not.
    """

    ask_s: float = 2.0
    admit_s: float = 10.0
    interval_s: float = 1.0
    retry_s: float = 0.5
    resend_s: float = 5.0
    unresponsive_s: float = 3.0
    copy_s: float = 3_600.0
    change_s: float = 60.0
    room_s: float = 60.0
    backup_s: float = 30.0
    beat_s: float = 0.0


class WhyEnded(enum.Enum):
    """Why a source sends no more in an epoch."""

    FORGOT = "a store forgot: it may have promised more to another"
    OVERTAKEN = "a store promised more to a life that did not last"
    BEHIND = "a store lacks what the source has released"
    LIST_CHANGES = "the list changes"
    GIVEN_UP = "a number is given up"
    SUCCEEDED = "the stores that promised more leave no stable set"
    CONFLICT = "a store has a number with another content"
    IN_USE = "another live user has the registration: it never began"


def admission(life: SourceLife, begun: Begun, store: str) -> asks.Admit:
    """Return what a store is asked, to be admitted to an epoch or to note its record anew."""
    return asks.Admit(
        stream=begun.stream,
        life=life.life,
        log=begun.log,
        bridge=begun.bridge,
        donors=tuple(one for one in begun.donors if one != store),
        address=life.address,
        activity_ms=life.activity_ms,
        late_join=life.late_join,
    )


def must_wait(log: Log, bridge: Bridge, store: str, noted: AbstractSet[str]) -> bool:
    """Whether a store that may have forgotten cannot be asked to be admitted yet.

    noted: the stores that are admitted to the epoch.
    """
    is_unsure = (store, bridge.epoch) in bridge.fillings
    return is_unsure and not may_fill(log, bridge, noted)


def is_succeeded(needed: tuple[StoreList, ...], refused: AbstractSet[str]) -> bool:
    """Whether the stores that promised more to others leave no stable set."""
    left = {store for one in needed for store in one.stores} - refused
    return bool(refused) and not are_stable(needed, left)
