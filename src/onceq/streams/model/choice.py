"""Which log a recovery goes on with, and what each store keeps of its own. Pure.

A source that recovers has fenced stores; their answers are `Promised`. `choose` takes the log with
the greatest (epoch of admission, end) among the stores that hold the stream, if these are a recover
set of every list that governs. Five rules; a broken variant of the model lacks each of the first
four, and `tests/streams/test_schedules_by_hand.py` what the fifth is made of:

1. Only what was answered after the promise counts.
2. A store that holds nothing says nothing about the past; nor does one that was only asked to
   create the stream, or whose log is damaged above what it knows to be stable, unless what it has
   had is less than what is chosen.
3. The lists that govern are those of the greatest admission, in the last stage that any answer has.
4. If no store holds the stream, it is new, and *every* store of every list seen has said so.
5. A store that forgot may have promised more than what it promises now, and nobody else may know.
   So those that promised must be a stable set of every list; it is admitted last, when a recover
   set of others has been (`may_fill`); and these note that (`Fillings`). A stable set and a recover
   set without it have a store in common that is another: either it refuses the lesser epoch, or a
   life with the greater one learns there that the promise is forgotten, and asks anew (`outdated`).

Source: streams.md 5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec
from msgspec.structs import replace

from onceq.streams.model.losses import Acceptance, Losses, still_stable, void_below
from onceq.streams.model.quorum import StoreList, are_recovered, are_stable, stores_of
from onceq.streams.model.tombstones import Mark, Positions, agreed

Firsts = tuple[tuple[int, int], ...]
"""The epochs of a log, ascending, each with its first number."""
Fillings = tuple[tuple[str, int], ...]
"""Stores, each with the last epoch whose source did not know that the store held the stream."""


class Stage(enum.IntEnum):
    """How far a bridge record has come.

    CREATING: a new stream, not yet noted by every store: nothing was ever sent. JOINT: a change of
    lists has begun; what is stable is so by both. SETTLING: all stores of the new list hold it.
    SETTLED: its one list governs.
    """

    CREATING = 1
    JOINT = 2
    SETTLING = 3
    SETTLED = 4


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """The bridge record: that a store was admitted to a stream in an epoch.

    lists: the one in use, or the old one and the new one. firsts: of the log, up to this epoch's.
    fillings: up to this epoch's. losses: that were accepted, up to this epoch's. keeps: not if it
    began in a list of stores of which none keeps messages: then these hold the stream without.
    """

    epoch: int
    stage: Stage
    lists: tuple[StoreList, ...]
    firsts: Firsts
    fillings: Fillings = ()
    losses: Losses = ()
    keeps: bool = True

    @property
    def first(self) -> int:
        """The first number of its epoch: where the chosen log ended."""
        return self.firsts[-1][1]

    @property
    def governs(self) -> tuple[StoreList, ...]:
        """The lists of which a recovery needs a recover set."""
        return governing(self.stage, self.lists)


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has, as it answers when a promise is synced.

    bridge: None if it never was admitted. hints: lists of former promises, if it holds nothing.
    stable: everything below is stable, for all it knows. whole: the log has no damage between that
    and its end. positions: what each registered receiver has acknowledged, exclusive. passed: of a
    store that keeps no messages: the number behind those that it saw; it holds a stream only if
    that began in a list of such stores. marks: of
    receivers that were deregistered, see `tombstones`.
    """

    bridge: Bridge | None = None
    hints: tuple[StoreList, ...] = ()
    begin: int = 0
    end: int = 0
    stable: int = 0
    whole: bool = True
    positions: Mapping[str, int] = {}
    passed: int | None = None
    marks: Mapping[str, Mark] = {}

    @property
    def admitted(self) -> int:
        """The epoch of its admission; 0 if it was never admitted to what was sent."""
        return self.bridge.epoch if self.bridge is not None and self.holds else 0

    @property
    def holds(self) -> bool:
        """Whether it was admitted to more than the creation of a stream."""
        return self.bridge is not None and self.bridge.stage is not Stage.CREATING

    @property
    def receivers(self) -> Positions:
        """What it knows of receivers."""
        return Positions(below=self.positions, marks=self.marks)

    def receivers_in(self, losses: Losses) -> Positions:
        """What it knows of receivers, without what was lost since it was admitted the last time."""
        below = {
            key: still_stable(its, self.admitted, losses) for key, its in self.positions.items()
        }
        return Positions(below=below, marks=self.marks)

    @property
    def fillings(self) -> Fillings:
        """The fillings that it tells."""
        return () if self.bridge is None else self.bridge.fillings

    @property
    def rank(self) -> tuple[int, int]:
        """What decides between two logs."""
        return self.admitted, self.end


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The log that a recovery goes on with: of the stores admitted in `admitted`, below `end`.

    admitted: 0 for a new stream. lists: that govern. losses: that were accepted before; accepted:
    what is lost now. keeps: as in Bridge.
    """

    admitted: int
    end: int
    lists: tuple[StoreList, ...]
    firsts: Firsts
    positions: Mapping[str, int]
    marks: Mapping[str, Mark] = {}
    losses: Losses = ()
    accepted: Acceptance | None = None
    keeps: bool = True

    @property
    def given_up(self) -> frozenset[str]:
        """The stores that count as answered, since what they had is accepted as lost."""
        return frozenset() if self.accepted is None else self.accepted.stores


class Insufficient(msgspec.Struct, frozen=True, kw_only=True):
    """Why no log can be chosen. forgot: stores that answered and hold nothing. silent: the others.

    If none is silent, no wait helps. rest: what a person would have to accept to go on; None: for
    all that is known, nothing was ever sent.
    """

    forgot: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    rest: Acceptance | None = None


def governing(stage: Stage, lists: tuple[StoreList, ...]) -> tuple[StoreList, ...]:
    """Return of which lists of a bridge record a recover set is needed.

    While a change is JOINT, everything stable is so by the old list too, which is enough: a change
    that came to nothing holds nobody up. Once it is SETTLING, the new list may be enough for a
    source, so that both are needed.
    """
    return lists[:1] if stage is Stage.JOINT else lists


def replaces(told: tuple[int, Stage], known: tuple[int, Stage]) -> bool:
    """Whether a receiver goes by the lists that it is told instead of those that it knows.

    Each is of an epoch and a stage. In one epoch the lists change as a change of them goes on: who
    kept those of a former stage would wait for stores that no source sends to any more.
    """
    return told > known


def seen(own: StoreList, answers: Iterable[Promised]) -> tuple[StoreList, ...]:
    """Return every list that a source has seen: its own, and those of all answers.

    A store that holds the stream has its lists in the bridge record. What it was asked with before
    may be a list that was left since, whose stores were wiped and began the stream anew for who
    knew no better: their epoch is greater, and their log is no successor.
    """
    lists = [own]
    for one in answers:
        if not one.holds:
            lists += one.hints
        if one.bridge is not None:
            lists += one.bridge.lists
    return tuple(dict.fromkeys(lists))


def newest(answers: Iterable[Promised]) -> Bridge | None:
    """Return the bridge record that counts: of the greatest epoch, and there of the last stage.

    None: no store was admitted to more than the creation of the stream.
    """
    bridges = [one.bridge for one in answers if one.bridge is not None and one.holds]
    return max(bridges, key=lambda bridge: (bridge.epoch, bridge.stage), default=None)


def holders(answers: Mapping[str, Promised]) -> dict[str, Promised]:
    """Return the answers of the stores that hold the stream; none if it was never settled.

    A store that was asked to create the stream that others have as settled holds it, and is empty.
    """
    record = newest(answers.values())
    if record is None:
        return {}
    created = record.firsts[0][0]
    return {
        store: one
        for store, one in answers.items()
        if one.holds or (one.bridge is not None and one.bridge.epoch == created)
    }


def choose(
    own: StoreList, answers: Mapping[str, Promised], accepts: Acceptance | None = None
) -> Log | Insufficient:
    """Return the log to go on with. answers: by store, of those that promised.

    accepts: what a person accepts as lost. It counts only if it is what is lost, now; and then
    something was there: nothing begins anew in a list whose stores know nothing of it.
    """
    record = newest(answers.values())
    found = _created(own, answers) if record is None else _chosen(own, record, answers)
    if accepts is None or (isinstance(found, Log) and found.admitted):
        return found
    if isinstance(found, Log):
        is_anew = accepts.end == 0
        return replace(found, accepted=accepts) if is_anew else Insufficient(forgot=own.stores)
    if not accepts.covers(found.rest) or not own.is_stable(answers.keys()):
        return found
    return _created(own, answers, accepts) if record is None else _left(record, answers, accepts)


def _chosen(own: StoreList, record: Bridge, answers: Mapping[str, Promised]) -> Log | Insufficient:
    lists, holding = record.governs, holders(answers)
    best, counted = _best(holding)
    is_recovered = best is not None and are_recovered(lists, counted)
    if best is None or not is_recovered or not are_stable(lists, answers.keys()):
        return _insufficient(own, record.lists, answers, counted)
    return _log(record, holding, best, best.end)


def _best(holding: Mapping[str, Promised]) -> tuple[Promised | None, set[str]]:
    """Return who has the log of the greatest (epoch, end), and which stores say no more."""
    complete = [one for one in holding.values() if one.whole and one.holds]
    best = max(complete, key=lambda one: one.rank, default=None)
    if best is None:
        return None, set()
    return best, {store for store, one in holding.items() if one.rank <= best.rank}


def _left(record: Bridge, answers: Mapping[str, Promised], accepted: Acceptance) -> Log:
    """Return the log that is left when too much is lost."""
    holding = holders(answers)
    best, end = _rest(record, holding)
    return replace(_log(record, holding, best, end), accepted=accepted)


def _rest(record: Bridge, holding: Mapping[str, Promised]) -> tuple[Promised, int]:
    """Return who has the log that is left, and where it ends.

    If a recover set holds the stream, it has all that is stable. Else only what a store knows to be
    that counts: the rest may be of an epoch that came to nothing, where stores that are lost went
    on with another.
    """
    best, counted = _best(holding)
    if best is not None and are_recovered(record.governs, counted):
        return best, best.end

    def stable(one: Promised) -> int:
        return still_stable(one.stable, one.admitted, record.losses)

    best = max((one for one in holding.values() if one.holds), key=stable)
    return best, stable(best)


def _log(record: Bridge, holding: Mapping[str, Promised], best: Promised, end: int) -> Log:
    lists = record.governs
    losses = record.losses
    known = agreed(lists, {store: one.receivers_in(losses) for store, one in holding.items()})
    return Log(
        admitted=best.admitted,
        end=end,
        lists=lists,
        firsts=(best.bridge or record).firsts,
        positions=known.below,
        marks=known.marks,
        losses=losses,
        keeps=record.keeps,
    )


def is_addable(
    wanted: StoreList, old: StoreList, promised: Mapping[str, Promised], *, keeps: bool = True
) -> bool:
    """Whether a change from one list to another may begin. promised: the answers to the fence.

    All stores that it adds have promised, and of the new list a stable set that keeps messages: no
    epoch begins with a change before a stable set of both lists holds the log. If the stream has
    none (`keeps`), a stable set that keeps none.
    """
    keeping = {store for store, one in promised.items() if (one.passed is None) is keeps}
    added = wanted.stores - old.stores
    return wanted != old and added <= promised.keys() and are_stable((wanted,), keeping)


def _created(
    own: StoreList, answers: Mapping[str, Promised], accepted: Acceptance | None = None
) -> Log | Insufficient:
    lists = seen(own, answers.values())
    given_up = frozenset[str]() if accepted is None else accepted.stores - own.stores
    is_known = accepted is None and _below(answers) > 0  # by stores that keep no messages
    if is_known or not stores_of(lists) <= answers.keys() | given_up:
        return _insufficient(own, lists, answers, set())
    keeps = any(answers[store].passed is None for store in own.stores)
    return Log(
        admitted=0,
        end=0,
        lists=(own,),
        firsts=(),
        positions={},
        accepted=accepted,
        keeps=keeps,
    )


def _insufficient(
    own: StoreList,
    lists: tuple[StoreList, ...],
    answers: Mapping[str, Promised],
    counted: set[str],
) -> Insufficient:
    stores, below = stores_of(lists), _below(answers)
    record, rest = newest(answers.values()), None
    if record is not None or below:
        end = 0 if record is None else _rest(record, holders(answers))[1]
        rest = Acceptance(
            end=end,
            below=max(end, below),
            epoch=0 if record is None else record.epoch,
            stores=stores - counted | stores - own.stores,
        )
    return Insufficient(
        forgot=frozenset(answers.keys() & stores) - counted,
        silent=stores - answers.keys(),
        rest=rest,
    )


def _below(answers: Mapping[str, Promised]) -> int:
    """Return the number behind all that was ever given, as far as any store knows."""
    return max((max(_told(one)) for one in answers.values()), default=0)


def _told(one: Promised) -> tuple[int, ...]:
    losses = () if one.bridge is None else one.bridge.losses
    return one.end, one.stable, one.passed or 0, void_below(losses), *one.positions.values()


def outdated(known: Mapping[str, int], answer: Promised) -> set[str]:
    """Return the stores that must be asked anew, if they answered before this answer was given.

    They were filled since, for all that is known, and may have forgotten what they promised.
    known: the fillings that former answers told, all that this recovery ever had.
    """
    return {store for store, epoch in answer.fillings if epoch > known.get(store, 0)}


def fillings(known: Mapping[str, int], epoch: int, unsure: Iterable[str]) -> Fillings:
    """Return the fillings up to an epoch. unsure: stores that are not known to hold the stream."""
    return tuple(sorted({**known, **dict.fromkeys(unsure, epoch)}.items()))


def may_fill(log: Log, bridge: Bridge, admitted: AbstractSet[str]) -> bool:
    """Whether stores that are not known to hold the stream may be asked to be admitted now.

    admitted: the stores that are. If the stream is new, all are asked at once.
    """
    unsure = {store for store, epoch in bridge.fillings if epoch == bridge.epoch}
    return log.admitted == 0 or are_recovered(log.lists, admitted - unsure | log.given_up)
