"""A life of a source, step by step: it looks, fences, chooses, admits, sends, and begins epochs.

Each `yield` is a place where anything else may happen. A life that ends is followed by another;
several may go on at once, and each believes that it is the one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from onceq.streams.model.choice import (
    Bridge,
    Insufficient,
    Log,
    Promised,
    Stage,
    choose,
    may_fill,
    outdated,
    seen,
)
from onceq.streams.model.log import merged
from onceq.streams.model.losses import void_below
from onceq.streams.model.quorum import are_stable
from onceq.streams.model.states import Deed
from proof.streams_model import loosely
from proof.streams_model.disks import VOID, Admit, Frame, Told
from proof.streams_model.records import record

if TYPE_CHECKING:
    from onceq.streams.model.quorum import StoreList
    from proof.streams_model.world import World

Steps = Generator[None, None, bool]
NO_BRIDGE = Bridge(epoch=0, stage=Stage.CREATING, lists=(), firsts=())
NO_LOG = Log(admitted=0, end=0, lists=(), firsts=(), positions={})
TRIES = 3
"""Rounds of asking all stores that have not answered."""


@dataclass(slots=True)
class Sender:
    """A life of a source. own: its list; wanted: the list that it is to change to, or None.

    epoch: 0 until it is complete for the first time. contents: of the numbers from `base` on.
    ends: of the logs of the stores that are admitted in the epoch; stages: the last bridge record
    that each has. needed: the lists by which a number is stable. known: fillings, as stores told.
    accepts: a person accepts with it what is lost.
    """

    world: World
    life: int
    own: StoreList
    wanted: StoreList | None = None
    epoch: int = 0
    base: int = 0
    contents: list[int] = field(default_factory=list[int])
    given_up: set[int] = field(default_factory=set[int])
    stable: int = 0
    bridge: Bridge = NO_BRIDGE
    log: Log = NO_LOG
    needed: tuple[StoreList, ...] = ()
    ends: dict[str, int] = field(default_factory=dict[str, int])
    stages: dict[str, Stage] = field(default_factory=dict[str, Stage])
    overtaken: set[str] = field(default_factory=set[str])
    recovered: list[int] = field(default_factory=list[int])
    is_sending: bool = False
    anew: str = ""
    known: dict[str, int] = field(default_factory=dict[str, int])
    accepts: bool = False
    _looked: dict[str, Promised] = field(default_factory=dict[str, Promised])

    @property
    def next(self) -> int:
        """The number of its next message."""
        return self.base + len(self.contents)

    def told(self) -> Told | None:
        """Return what receivers are told of the epoch; None before the first is complete."""
        return Told.of(self.bridge) if self.bridge.epoch == self.epoch else None

    def run(self) -> Steps:
        """Go through one life; return whether it ended because another one fenced it."""
        while (yield from self._recover()):
            self.is_sending = True
            yield from self._send()
            self.is_sending = False
            if not self.anew:
                return False
        return True

    def _recover(self) -> Steps:
        for _ in range(self.world.looks):
            epoch = yield from self._look()
            if epoch == 0:
                return False
            promised = yield from self._fence(epoch)
            if promised is None:
                continue  # overtaken: look again
            log = self._choice(promised)
            if log is None:
                return False
            if not (yield from self._admit(epoch, log, promised)):
                return False
            self._begin(epoch, log)
            return True
        return False

    def _look(self) -> Generator[None, None, int]:
        """Ask for promises; return the epoch to begin, or 0 if a successor has taken over."""
        top, self.overtaken = self.epoch, set()
        want = {store for one in (*self.needed, self.own) for store in one.stores}
        self._looked = {}
        for store in sorted(want):
            yield
            found = self.world.ask(
                store, lambda disk: (disk.promised, disk.life, disk.answer(self.world.rules))
            )
            if found is not None:
                promised, life, answer = found
                self._looked[store] = answer
                top = max(top, promised)
                if promised > self.epoch > 0 and life != self.life:
                    self.overtaken.add(store)
        if self._is_fenced():
            return 0
        if self.accepts and not self.epoch and self.world.rules.losses_need_an_epoch:
            top = max(top, self.world.tried)
        epoch = top + 1 + self.world.chance.randrange(2)
        self.world.tried = max(self.world.tried, epoch)
        return epoch

    def _is_fenced(self) -> bool:
        """Whether the stores that promised more to others leave no stable set."""
        left = {store for one in self.needed for store in one.stores} - self.overtaken
        return bool(self.overtaken) and not are_stable(self.needed, left)

    def _fence(self, epoch: int) -> Generator[None, None, dict[str, Promised] | None]:
        """Ask for the promise of every store of every list seen; None if one promised more."""
        promised: dict[str, Promised] = {}
        self.known = {}
        extra = () if self.wanted is None else (self.wanted,)
        for _ in range(TRIES):
            lists = (*seen(self.own, promised.values()), *self.needed, *extra)
            for store in sorted({store for one in lists for store in one.stores} - set(promised)):
                yield
                asked = self.world.ask(
                    store, lambda disk: disk.fence(epoch, self.life, self.own, self.world.rules)
                )
                if asked is None:
                    continue
                answer, _ = asked
                if answer is None:
                    return None
                for late in outdated(self.known, answer):
                    promised.pop(late, None)
                self.known = merged((self.known, dict(answer.fillings)))
                promised[store] = answer
            if self.world.chance.random() < self.world.hurry:
                break
        return promised

    def _choice(self, promised: dict[str, Promised]) -> Log | None:
        rules = self.world.rules
        answers = dict(promised)
        if not rules.choice_after_fence:
            answers = {store: self._looked.get(store, one) for store, one in promised.items()}
        found = choose(self.own, answers)
        if isinstance(found, Insufficient) and found.rest and self.accepts and not self.epoch:
            accepted = self.world.disasters.accepted(found.rest, found.silent)
            found = choose(self.own, answers, accepted)
        log = loosely.chosen(rules, self.own, answers, found)
        if isinstance(log, Insufficient):
            return None
        if self.epoch and log.admitted != self.epoch:
            return None  # another life was complete since
        return log

    def _admit(self, epoch: int, log: Log, promised: dict[str, Promised]) -> Steps:
        """Admit stores until a stable set of every list holds it; return whether one does."""
        self.log, self.overtaken = log, set()
        self.bridge = record(self, epoch, log, promised)
        self.ends, self.stages = {}, {}
        self.recovered = []
        stores = sorted({store for one in self.bridge.lists for store in one.stores})
        for _ in range(TRIES):
            for store in stores:
                if self.stages.get(store) is not self.bridge.stage and not self._must_wait(store):
                    yield
                    self._ask_to_admit(store)
            if self._are_noted_by_enough():
                if self.bridge.stage is not Stage.CREATING:
                    return True
                self.bridge = replace_stage(self.bridge, Stage.SETTLED)
                if not self.world.rules.creation_settled:
                    return True
        return False

    def _must_wait(self, store: str) -> bool:
        """Whether a store that may have forgotten cannot be asked to be admitted yet."""
        is_unsure = (store, self.bridge.epoch) in self.bridge.fillings
        return is_unsure and not may_fill(self.log, self.bridge, self.stages.keys())

    def _ask_to_admit(self, store: str) -> int | Deed | None:
        """Ask a store to be admitted, or to note the bridge record anew."""
        bridge, log = self.bridge, self.log
        ask = Admit(life=self.life, log=log, bridge=bridge)
        world = self.world
        answer = world.ask(store, lambda disk: disk.admit(ask, world.disks.values(), world.rules))
        if isinstance(answer, int):
            if not self.ends:
                entries = world.disks[store].log[: log.end]
                self.recovered = [content for _, content in entries]
            self.ends[store] = max(answer, self.ends.get(store, 0))
            self.stages[store] = bridge.stage
            if bridge.stage is not Stage.CREATING:
                world.filled(store, bridge.losses)
        elif answer is Deed.REFUSE:
            self.overtaken.add(store)
        return answer

    def _are_noted_by_enough(self) -> bool:
        """Whether as many stores have noted the bridge record as its stage needs."""
        bridge, rules = self.bridge, self.world.rules
        noted = {store for store, stage in self.stages.items() if stage >= bridge.stage}
        is_new = bridge.firsts[0][0] == bridge.epoch
        if is_new and rules.creation_noted_by_all:
            return noted >= bridge.lists[0].stores
        if bridge.stage is Stage.JOINT and not rules.both_lists_stable:
            return bridge.lists[-1].is_stable(noted)
        return are_stable(bridge.lists, noted)

    def _begin(self, epoch: int, log: Log) -> None:
        """Begin to send in an epoch: what was not in the chosen log comes again."""
        bridge, world = self.bridge, self.world
        self.needed = bridge.lists
        if bridge.stage is Stage.JOINT and not world.rules.both_lists_stable:
            self.needed = bridge.lists[-1:]
        if bridge.stage is Stage.SETTLING:
            self._settle()
        if self.epoch == 0:
            self.base = log.end
            if world.rules.losses_are_void:
                self.contents = [VOID] * (void_below(bridge.losses) - log.end)
        elif not self.base <= log.end <= self.next:  # only if a rule is broken
            self.contents, self.base = [], log.end
        for number in [one for one in self.given_up if log.end <= one < self.next]:
            self.contents[number - self.base] = VOID
        self.given_up = set()
        world.did[f"recoveries: {self.anew or 'a new life begins'}"] += 1
        self.epoch, self.anew = epoch, ""
        self.own = self.needed[-1]
        self._follow()
        world.completed(self)
        self.stable = log.end

    def _settle(self) -> None:
        """A stable set of both lists knows that all of the new one hold it: it alone counts."""
        bridge = self.bridge
        self.needed = bridge.lists[-1:]
        self._follow()
        self.bridge = replace_stage(bridge, Stage.SETTLED, self.needed)
        self.world.did["changes of lists settled"] += 1
        self.world.promises.govern(bridge.epoch, self.needed)

    def _follow(self) -> None:
        """Want a list no more once it alone counts; until then each epoch begins the change."""
        if self.needed == (self.wanted,):
            self.wanted = None

    def _send(self) -> Generator[None, None, None]:
        """Send in an epoch, until the life ends, or another epoch is to begin (`anew`)."""
        for _ in range(self.world.rounds()):
            yield
            self._step()
            if self.anew:
                return
            if self._is_fenced():
                return

    def _step(self) -> None:
        world = self.world
        chance = world.chance.random()
        if chance < world.sends:
            self._take()
        lists = (*self.needed, *self.bridge.lists)
        stores = sorted({store for one in lists for store in one.stores})
        store = world.chance.choice(stores)
        if store in self.stages:
            if self.stages[store] is self.bridge.stage:
                self._forward(store)
            else:
                self._ask_to_admit(store)
        elif not self._must_wait(store):
            self._admit_late(store)
        self._advance()
        self._look_around()

    def _take(self) -> None:
        world = self.world
        for _ in range(world.chance.randint(1, world.burst)):
            if len(self.contents) < world.numbers_max:
                self.contents.append(world.new_content())
                world.promises.send(self.next - 1, (self.epoch, self.contents[-1]))

    def _admit_late(self, store: str) -> None:
        answer = self._ask_to_admit(store)
        if answer is Deed.FORGOT:
            self.anew = "a store forgot"

    def _forward(self, store: str) -> None:
        """Send a store the next number that it lacks, or only what is stable."""
        number = self.ends[store]
        entry = None
        if self.base <= number < self.next:
            entry = (self.epoch, self.contents[number - self.base])
            self.world.promises.send(number, entry)
        frame = Frame(
            epoch=self.epoch, life=self.life, number=number, entry=entry, stable=self.stable
        )
        answer = self.world.ask(store, lambda disk: disk.append(frame, self.world.rules))
        match answer:
            case int():
                self.ends[store] = min(max(answer, self.ends[store]), self.next)
                self._count()
            case Deed.FORGOT:
                self.anew = "a store forgot"
            case Deed.NOT_ADMITTED:
                self.stages.pop(store, None)
            case Deed.REFUSE:
                self.overtaken.add(store)
            case _:
                pass

    def _count(self) -> None:
        """Find what is stable now, and tell the world."""
        below = self.stable
        while below < self.next and are_stable(
            self.needed, {store for store, end in self.ends.items() if end > below}
        ):
            below += 1
        if below > self.stable:
            log = self.contents[self.stable - self.base : below - self.base]
            self.world.promises.report(log, self.stable)
            self.stable = below

    def _advance(self) -> None:
        """Take a change of lists one stage further, if enough stores have come so far."""
        bridge, rules = self.bridge, self.world.rules
        if bridge.stage not in {Stage.JOINT, Stage.SETTLING}:
            return
        old, new = bridge.lists
        at = {store for store, stage in self.stages.items() if stage >= bridge.stage}
        if bridge.stage is Stage.JOINT:
            hold = new.stores <= at if rules.all_hold_before_settling else new.is_stable(at)
            if hold and rules.settled_in_two:
                self.bridge = replace_stage(bridge, Stage.SETTLING)
            elif hold:
                self._settle()
        elif are_stable((old, new), at):
            self._settle()

    def _look_around(self) -> None:
        """Find reasons to begin an epoch: a lone overtaken store, a number, a list."""
        world = self.world
        is_settled = self.bridge.stage is Stage.SETTLED
        if self.overtaken and not self._is_fenced():
            self.anew = "a store promised more to a life that did not last"
        elif self.wanted is not None and is_settled and world.chance.random() < 0.2:
            self.anew = "the list changes"
        elif self.next > self.stable and world.chance.random() < world.gives_up:
            number = world.chance.randrange(self.stable, self.next)
            if world.rules.void_in_new_epoch:
                self.given_up.add(number)
                self.anew = "a number is given up"
            else:
                self.contents[number - self.base] = VOID


def replace_stage(
    bridge: Bridge, stage: Stage, lists: tuple[StoreList, ...] | None = None
) -> Bridge:
    """Return a bridge record in a later stage."""
    return structs.replace(bridge, stage=stage, lists=lists or bridge.lists)
