"""How a life of a source begins an epoch: it looks, fences, chooses, and has stores admitted. Pure.

A Program over the tables and the choice of the model. It looks for what stores have promised, asks
every store of every list that it hears of for the promise of a greater epoch, and goes on with the
log that `choose` finds in what they answer *after* it. What a store answered before another told
that it was filled since is dropped, and asked anew. Source: streams.md 5; ADR 24.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from onceq.model.ops.base import Program
from onceq.streams.model import asks
from onceq.streams.model.choice import (
    Insufficient,
    Log,
    Promised,
    Stage,
    choose,
    holders,
    outdated,
    seen,
)
from onceq.streams.model.ending import Gone
from onceq.streams.model.log import merged, recorded
from onceq.streams.model.ops import AskStores, WaitUntil
from onceq.streams.model.options import Creation
from onceq.streams.model.quorum import StoreList, stores_of
from onceq.streams.model.states import LOOKS_MAX
from onceq.streams.model.uses import InUse, may_take_over, own_part
from onceq.streams.source.admitting import admit
from onceq.streams.source.creating import begun_by_quorum, is_known
from onceq.streams.source.epochs import (
    Begun,
    Short,
    SourceLife,
    Succeeded,
    Timing,
    Used,
    is_succeeded,
)
from onceq.streams.source.tombstones import believed

ROUNDS: Final = 3
"""Times that stores which have not answered are asked for their promise."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a life of a source did before it begins another epoch. stream: 0: it has none yet.

    epochs: all whose log it chose; the first that it sent in, and what it tried since. tried: the
    last that it tried, whether it ever sent; stores that hold it may be silent now. needed: the
    lists by which it last counted what is stable. own: the last of them; None: the life's. wanted:
    the list to change to. puts_off: the last try was to begin that, and came to nothing. session:
    by which stores know the stream; 0: the life's. is_known: some store knew it as not new.
    """

    stream: int = 0
    epochs: frozenset[int] = frozenset()
    tried: int = 0
    needed: tuple[StoreList, ...] = ()
    own: StoreList | None = None
    wanted: StoreList | None = None
    puts_off: bool = False
    session: int = 0
    is_known: bool = False

    @property
    def change(self) -> StoreList | None:
        """The list to which the next epoch is to change; None: to none."""
        return None if self.puts_off else self.wanted

    @property
    def epoch(self) -> int:
        """The last of its epochs; 0: none."""
        return max(self.epochs, default=0)

    def after(self, tried: Tried) -> Past:
        """Return what it did when it has tried an epoch, too."""
        epochs = self.epochs | {tried.epoch} if self.epochs else self.epochs
        told = self.told(is_known=tried.is_known)
        return replace(told, epochs=epochs, tried=tried.epoch, puts_off=tried.is_changing)

    def told(self, *, is_known: bool) -> Past:
        """Return what it did when it has heard from stores, of which some know the stream."""
        return replace(self, is_known=self.is_known or is_known)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch was chosen for, and too few stores were admitted to it in time.

    is_changing: a change of lists was to begin with it. is_known: see Short.
    """

    stream: int
    epoch: int
    is_changing: bool = False
    is_known: bool = False


Recovered: TypeAlias = Begun | Short | Succeeded | Tried | Used


class _Looked(msgspec.Struct, frozen=True, kw_only=True):
    """is_held: some store holds the stream, or was asked to create it. late_join: see Begun.

    lists: all that were seen; answered: the stores that have. used: by another life. is_known: some
    store knows the stream as not new.
    """

    stream: int
    session: int
    late_join: bool | None
    is_held: bool
    top: int
    refused: frozenset[str]
    answered: frozenset[str]
    used: Mapping[str, InUse]
    lists: tuple[StoreList, ...]
    is_known: bool

    @property
    def is_in_use(self) -> bool:
        """Whether too many stores hear another life for this one to begin."""
        used = self.used.keys()
        return not may_take_over(self.lists, self.answered - used, used)


class _Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """known: the fillings that any answer told. unable, taken: see Begun.

    refused: what stores had promised to other lives, by the stores.
    """

    promised: Mapping[str, Promised] = {}
    known: Mapping[str, int] = {}
    unable: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    refused: Mapping[str, int] = {}

    def is_known(self, looked: _Looked) -> bool:
        """Whether some store knows the stream as not new, for all that can be known.

        One that refuses tells nothing else; what it had before, it has told if it was looked at.
        """
        is_unsure = not self.refused.keys() <= looked.answered
        return is_unsure or any(map(is_known, self.promised.values()))


def recover(life: SourceLife, past: Past, timing: Timing) -> Program[Recovered]:
    """Begin an epoch, or say why that cannot be now."""
    own, heard = past.own or life.own, 0
    for turn in range(LOOKS_MAX):
        looked = yield from _look(life, past, timing)
        past = past.told(is_known=looked.is_known)
        if is_succeeded(past.needed, looked.refused):
            return Succeeded(epoch=looked.top)
        if not past.epochs and looked.is_in_use:
            return Used(users=looked.used, lists=looked.lists)
        accepts = None if past.epochs else life.accepts
        goes_on = looked.is_held and accepts is None  # else nobody may know the last epoch
        epoch = max(looked.top, heard, 0 if goes_on else life.born_s - 1) + 1
        ask = asks.Fence(
            stream=looked.stream,
            epoch=epoch,
            life=life.life,
            own=own,
            topic=life.topic,
            session=looked.session,
        )
        fenced = yield from _fence(life, past, ask, timing)
        past = past.told(is_known=fenced.is_known(looked))
        if fenced.refused:  # perhaps by a store that a look does not ask
            heard = max(heard, *fenced.refused.values())
            yield from WaitUntil(within_s=timing.interval_s * own_part(life.life, turn))
            continue
        log = _choose(life, past, fenced.promised)
        if isinstance(log, Insufficient):
            return _short(past, log, fenced.taken)
        if past.epochs and log.admitted == 0:
            return Short(forgot=frozenset(fenced.promised))
        if past.epochs and log.admitted not in past.epochs:
            return Succeeded(epoch=log.admitted)
        begun = replace(
            _chosen(ask, log, fenced, past.change),
            late_join=looked.late_join,
            creation=Creation.ALL if past.is_known else life.creation,
        )
        admitted = yield from admit(life, begun, timing)
        return admitted or Tried(
            stream=looked.stream,
            epoch=epoch,
            is_changing=begun.bridge.stage is Stage.JOINT,
            is_known=past.is_known,
        )
    return Short(is_known=past.is_known)


def _short(past: Past, log: Insufficient, taken: frozenset[str]) -> Short:
    return Short(
        forgot=log.forgot,
        silent=log.silent - taken,
        taken=taken,
        rest=None if past.epochs else log.rest,
        is_known=past.is_known,
    )


def _choose(life: SourceLife, past: Past, promised: Mapping[str, Promised]) -> Log | Insufficient:
    """Return the log to go on with; a new one with a quorum, if a person chose that, and it may be.

    Not where any store ever told this life that the stream is not new.
    """
    own = past.own or life.own
    accepts = None if past.epochs else life.accepts
    found = choose(own, promised, accepts)
    is_chosen = life.creation is Creation.QUORUM and accepts is None
    if isinstance(found, Log) or past.epochs or past.is_known or not is_chosen:
        return found
    return begun_by_quorum(own, promised) or found


def _look(life: SourceLife, past: Past, timing: Timing) -> Program[_Looked]:
    """Ask what was promised, and to whom."""
    session = past.session or life.session
    lists = (*past.needed, past.own or life.own)
    found = yield from _ask(life, session, stores_of(lists), timing)
    its = _called(found)
    if not past.session and its.session not in {0, session}:  # some stores know it by RegIDs only
        session = its.session
        known = {store: one for store, one in found.items() if one.stream == its.stream}
        found = known | (yield from _ask(life, session, found.keys() - known.keys(), timing))
    if not past.epochs and any(one.used is not None for one in found.values()):
        lists = seen(lists[-1], (one.has for one in found.values()))  # its list may be another
        found |= yield from _ask(life, session, stores_of(lists) - found.keys(), timing)
    found, dead = yield from believed(life, found, timing)
    stream = past.stream or _called(found).stream or life.fresh_beside(dead)
    of_stream = {store: one for store, one in found.items() if one.stream == stream}
    last = max(of_stream.values(), key=lambda one: one.has.admitted, default=asks.Found())
    return _Looked(
        stream=stream,
        session=past.session or last.session or session,
        late_join=last.late_join if last.has.admitted else None,
        is_held=any(one.has.bridge is not None for one in of_stream.values()),
        top=max((past.epoch, past.tried, *(one.promised for one in of_stream.values()))),
        refused=frozenset(
            store
            for store, one in found.items()
            if past.epochs and (stream in one.gone or _is_overtaken(life, past, one, stream))
        ),
        answered=frozenset(found),
        used={
            store: one.used
            for store, one in of_stream.items()
            if one.used is not None and one.used.life != life.life
        },
        lists=lists,
        is_known=any(is_known(one.has) or not dead.issuperset(one.gone) for one in found.values()),
    )


def _is_overtaken(life: SourceLife, past: Past, one: asks.Found, stream: int) -> bool:
    return one.stream == stream and one.promised > past.epoch and one.life != life.life


def _ask(
    life: SourceLife, session: int, stores: AbstractSet[str], timing: Timing
) -> Program[dict[str, asks.Found]]:
    """Ask some stores what they have of the stream that a session, or the life's RegIDs, name."""
    if not stores:
        return {}
    answers = yield from AskStores(
        asked={
            store: asks.Look(topic=life.topic, session=session, regid=life.regids.get(store, 0))
            for store in sorted(stores)
        },
        enough=partial(_has_all, stores),
        within_s=timing.ask_s,
    )
    return {store: one for store, one in answers.items() if isinstance(one, asks.Found)}


def _has_all(stores: AbstractSet[str], answered: Mapping[str, asks.Answer]) -> bool:
    return answered.keys() >= stores


def _called(found: Mapping[str, asks.Found]) -> asks.Found:
    """Return what has the stream to go on with, if stores tell of several; or of none."""
    known = [one for one in found.values() if one.stream]
    known.sort(key=lambda one: (-one.has.admitted, one.has.bridge is None, one.stream))
    return known[0] if known else asks.Found()


def _fence(life: SourceLife, past: Past, ask: asks.Fence, timing: Timing) -> Program[_Fenced]:
    """Ask for the promise of every store of every list seen, up to one that has promised more.

    Who does not answer is asked again, unless the others suffice.
    """
    own = past.own or life.own
    extra = () if past.change is None else (past.change,)
    fenced, asked = _Fenced(), set[str]()
    for _ in range(ROUNDS):
        lists = (*seen(own, fenced.promised.values()), *past.needed, *extra)
        stores = {store for one in lists for store in one.stores} - fenced.promised.keys()
        suffices = isinstance(_choose(life, past, fenced.promised), Log)
        if not stores or (stores <= asked and suffices):
            break
        answers = yield from AskStores(
            asked={
                store: replace(ask, regid=life.regids.get(store, 0)) for store in sorted(stores)
            },
            enough=partial(_has_all, stores),
            within_s=timing.ask_s,
        )
        fenced = _heard(fenced, answers)
        if fenced.refused:
            break
        asked = (asked | stores) - (answers.keys() - fenced.promised.keys() - fenced.unable)
    return fenced


def _heard(before: _Fenced, answers: Mapping[str, asks.Answer]) -> _Fenced:
    """Return what is known after some answers, that may have been given in any order."""
    given = {store: one.has for store, one in answers.items() if isinstance(one, asks.Found)}
    promised = {**before.promised, **given}
    for store, has in given.items():
        for late in outdated(before.known, has) - {store}:
            promised.pop(late, None)
    known = merged((before.known, *(dict(has.fillings) for has in given.values())))
    full = {store for store, one in answers.items() if isinstance(one, asks.Full | Gone)}
    taken = {store for store, one in answers.items() if isinstance(one, asks.Taken)}
    return _Fenced(
        promised=promised,
        known=known,
        unable=before.unable - given.keys() | full | taken,
        taken=before.taken - given.keys() | taken,
        refused={
            store: one.promised for store, one in answers.items() if isinstance(one, asks.Refused)
        },
    )


def _chosen(ask: asks.Fence, log: Log, fenced: _Fenced, wanted: StoreList | None) -> Begun:
    """Return the epoch that is to begin with a log; the change of lists that is wanted begins too.

    That is, if enough stores of the new list have promised.
    """
    promised = fenced.promised
    bridge = recorded(
        log, epoch=ask.epoch, own=ask.own, wanted=wanted, promised=promised, known=fenced.known
    )
    holding = holders(promised)
    return Begun(
        stream=ask.stream,
        bridge=bridge,
        log=log,
        noted={},
        ends={},
        seen={store: one.end for store, one in holding.items()},
        donors=_donors(log, promised, bridge.lists),
        unable=fenced.unable,
        taken=fenced.taken,
        session=ask.session,
        fresh=frozenset(promised.keys() - holding.keys()),
    )


def _donors(
    log: Log, promised: Mapping[str, Promised], lists: tuple[StoreList, ...]
) -> tuple[str, ...]:
    """Return the stores to copy from: first those that have all of the log, whole."""
    stores = sorted({store for one in lists for store in one.stores} | promised.keys())
    empty = Promised(whole=False)

    def lacks(store: str) -> tuple[bool, int]:
        has = promised.get(store, empty)
        is_log = has.whole and (has.admitted, has.end) == (log.admitted, log.end)
        return not is_log, -has.end

    return tuple(sorted(stores, key=lacks))
