"""How a life of a receiver finds its place, and registers: Programs. Pure.

A receiver is registered when a stable set of every list has noted it in one epoch. So a recover set
in one epoch knows what an earlier life acknowledged. Source: streams.md 5; spec M5, M6, M24, M33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

import msgspec

from onceq.model.ops.base import Program
from onceq.streams.errors import RegistrationInUse
from onceq.streams.model import asks, low
from onceq.streams.model.choice import Firsts, Promised, newest
from onceq.streams.model.ops import AskStores, WaitUntil
from onceq.streams.model.quorum import StoreList, are_recovered, are_stable
from onceq.streams.model.tombstones import agreed, registered
from onceq.streams.model.uses import InUse, Leave, Watch, is_receiver_in_use, own_part

ROUNDS: Final = 3


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver. topic, source: of the stream, with the session of its source.

    session: the receiver's; regid: the id that it chose itself, if it has no session; 0: it has
    one. key: by which stores know its position. known: stores to begin with.
    from_newest: a receiver that no store knows begins behind what is stable, not with the first.
    life: by which stores tell it from others of the same session or id; 0: they do not, and others
    are neither refused nor noticed. activity_ms: after so long of silence others are let in.
    """

    topic: str
    source: int
    session: int
    key: str
    known: StoreList
    from_newest: bool = False
    maximum: int | None = None
    rule: low.Consensus = low.Consensus.MAJORITY
    regid: int = 0
    life: int = 0
    activity_ms: int = 0


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a life may begin. shown: to the application's call-back. is_known: it lived before.

    below: by the rule, it had acknowledged all below. acknowledged: some store says so. stable:
    everything below is, for all that stores know. begin: what lies before, no store has any more.
    firsts: every epoch's first number. mark: with which it registers, see `tombstones`. late_join:
    whether the source lets receivers begin with what was sent before them; if not, a life begins
    with the next message.
    """

    stream: int
    epoch: int
    lists: tuple[StoreList, ...]
    shown: low.RecoveryInfo
    is_known: bool
    below: int
    acknowledged: int = 0
    stable: int = 0
    begin: int = 0
    firsts: Firsts = ()
    mark: int = 0
    late_join: bool = True


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Another life of a receiver is live, as stores say. lists: of the stream."""

    users: Mapping[str, InUse]
    lists: tuple[StoreList, ...]


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A life that is registered. begin: the first number that it gets. position: as it was found.

    regids: its ids at stores; answers: what they answered beside that.
    """

    position: Position
    begin: int
    regids: Mapping[str, int]
    answers: Mapping[str, asks.Registered] = {}

    @property
    def below(self) -> int:
        """What stores note as acknowledged."""
        return _noted(self.position, self.begin)


def _noted(position: Position, begin: int) -> int:
    """Return what a life acknowledges as it registers: at most what is stable.

    What is not may be cut, and the next life would leave out what comes instead.
    """
    return position.below if position.is_known else min(begin, position.stable)


def enter(
    who: Who,
    within_s: float,
    rest_s: float,
    *,
    choose: Callable[[low.RecoveryInfo], int | None] | None = None,
    check: Callable[[Position], None] | None = None,
    joins_late: bool = False,
) -> Program[Registration]:
    """Find where a life begins, and register it, however long that takes.

    rest_s: how long to wait when too few stores have answered in one epoch. check: called with what
    was found, before any store notes the life; what it raises ends this. joins_late: also where the
    source has turned late join off, which else has a life begin with the next message. Raises
    RegistrationInUse if another life is live: so many stores go on hearing it that no stable set is
    left.
    """
    watch, turn = Watch(), 0
    while True:
        rest_part = 1.0
        position = yield from place(who, within_s)
        if position is not None:
            if check is not None:
                check(position)
            may_choose = position.late_join or joins_late
            chooses = choose if may_choose else low.next_number
            registration = yield from try_to_register(who, position, within_s, chooses)
            if isinstance(registration, Registration):
                return registration
            if registration is not None:
                watch.note(registration.users)
                if is_receiver_in_use(registration.lists, watch.sure):
                    raise in_use(who, watch.sure)
                turn += 1
                rest_part = 0.5 + own_part(who.life, turn)
        yield from WaitUntil(within_s=rest_s * rest_part)


def in_use(who: Who, stores: Iterable[str]) -> RegistrationInUse:
    """Return the error for a life, since stores hear another one of the same registration."""
    return RegistrationInUse(
        f"the receiver of topic {who.topic!r} that stores know as {who.key!r} is in use: another"
        f" live program is heard as that by {' '.join(sorted(stores))}. End the other one; or wait"
        " until it is silent for its activity_timeout_ms, and begin again; or give this one a"
        " session of its own"
    )


def place(who: Who, within_s: float) -> Program[Position | None]:
    """Find where a life may begin; None: no recover set of stores has answered in one epoch."""
    stores = who.known.stores
    answers: dict[str, asks.Found] = {}
    for _ in range(ROUNDS):
        ask = asks.Look(topic=who.topic, session=who.source)
        given = yield from AskStores(
            asked=dict.fromkeys(sorted(stores), ask),
            enough=partial(has_all, stores),
            within_s=within_s,
        )
        answers |= {store: one for store, one in given.items() if isinstance(one, asks.Found)}
        found = _position(who, answers)
        if found is not None:
            return found
        lists = [one.has.bridge.lists for one in answers.values() if one.has.bridge is not None]
        stores = stores | {store for ones in lists for one in ones for store in one.stores}
    return None


def has_all(stores: AbstractSet[str], answered: Mapping[str, asks.Answer]) -> bool:
    """Whether all of some stores have answered."""
    return answered.keys() >= stores


def _serving(one: asks.Found) -> int:
    """Return the epoch in which a store heeds receivers; 0: none."""
    return one.has.admitted if one.has.admitted == one.promised else 0


def _position(who: Who, answers: Mapping[str, asks.Found]) -> Position | None:
    epoch = max(map(_serving, answers.values()), default=0)
    if epoch == 0:
        return None
    of_epoch = {store: one.has for store, one in answers.items() if _serving(one) == epoch}
    record = newest(of_epoch.values())
    if record is None or not are_recovered(record.governs, of_epoch.keys()):
        return None
    streams = [one.stream for one in answers.values() if _serving(one) == epoch]
    receivers = {store: one.receivers for store, one in of_epoch.items()}
    mark = agreed(record.governs, receivers).mark(who.key)
    counted = [one.below for one in receivers.values() if one.mark(who.key) == mark]
    known = [one[who.key] for one in counted if who.key in one]
    below = _acknowledged(who, known, of_epoch)
    return Position(
        stream=streams[0],
        epoch=epoch,
        lists=record.lists,
        shown=low.info(
            acknowledged_below=below,
            end=max(one.end for one in of_epoch.values()),
            maximum=who.maximum,
        ),
        is_known=bool(known),
        below=below if known else 0,
        acknowledged=max(known, default=0),
        stable=max(one.stable for one in of_epoch.values()),
        begin=min((one.begin for one in of_epoch.values() if one.passed is None), default=0),
        firsts=record.firsts,
        mark=registered(max(one.mark(who.key) for one in receivers.values())),
        late_join=all(one.late_join for one in answers.values() if _serving(one) == epoch),
    )


def _acknowledged(who: Who, known: list[int], has: Mapping[str, Promised]) -> int:
    if known:
        return low.acknowledged(known, [one.begin for one in has.values()], who.rule)
    return max(one.stable for one in has.values()) if who.from_newest else 0


def register(
    who: Who,
    position: Position,
    within_s: float,
    choose: Callable[[low.RecoveryInfo], int | None] | None = None,
) -> Program[Registration | None]:
    """As `try_to_register`; None also if another life is live."""
    found = yield from try_to_register(who, position, within_s, choose)
    return found if isinstance(found, Registration) else None


def try_to_register(
    who: Who,
    position: Position,
    within_s: float,
    choose: Callable[[low.RecoveryInfo], int | None] | None = None,
) -> Program[Registration | Used | None]:
    """Register at a stable set of every list, in one epoch; None: too few have noted it.

    choose: the application's call-back; it may name another number to begin with. If too few have
    noted it since others hear another life, it leaves all: so one of two that enter at once is in.
    """
    begin = low.low(position.shown, None if choose is None else choose(position.shown))
    stores = {store for one in position.lists for store in one.stores}
    ask = asks.Register(
        stream=position.stream,
        epoch=position.epoch,
        topic=who.topic,
        session=who.session,
        regid=who.regid,
        below=_noted(position, begin),
        life=who.life,
        activity_ms=who.activity_ms,
        mark=position.mark,
    )
    noted: dict[str, asks.Registered] = {}
    users: dict[str, InUse] = {}
    for _ in range(ROUNDS):
        answers = yield from AskStores(
            asked=dict.fromkeys(sorted(stores - noted.keys()), ask),
            enough=partial(has_all, stores - noted.keys()),
            within_s=within_s,
        )
        noted |= {store: one for store, one in answers.items() if isinstance(one, asks.Registered)}
        if are_stable(position.lists, noted.keys()):
            regids = {store: one.regid for store, one in noted.items()}
            return Registration(position=position, begin=begin, regids=regids, answers=noted)
        users |= {store: one for store, one in answers.items() if isinstance(one, InUse)}
        if users:
            break
    if not users:
        return None
    leave = Leave(stream=position.stream, key=who.key, life=who.life)
    yield from AskStores(
        asked=dict.fromkeys(sorted(stores), leave),
        enough=partial(has_all, stores),
        within_s=within_s,
    )
    return Used(users=users, lists=position.lists)
