"""Abstract stores: what each has on its disk, and what it does when it is asked.

An ask is one step: what it did is synced before it is answered. The tables of the product say what
is done (`onceq.streams.model.states`); this module says what that means for a log in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.streams.model import states
from onceq.streams.model.choice import Bridge, Firsts, Log, Promised, Stage, governing
from onceq.streams.model.log import epoch_at, kept_below, merged
from onceq.streams.model.losses import still_stable
from onceq.streams.model.states import Deed, Memory, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceq.streams.model.quorum import StoreList
    from proof.streams_model.rules import Rules

Entry = tuple[int, int]
"""An epoch, and a content: a number of its own for each that was ever sent."""
VOID = 0
"""The content of a number that was given up."""
RUINED: Entry = (-1, -1)
"""What a damaged entry looks like to those who do not check it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A message on its way to a store; entry: None if it only says what is stable."""

    epoch: int
    life: int
    number: int
    entry: Entry | None
    stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """What a store is to be admitted to."""

    life: int
    log: Log
    bridge: Bridge


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a store tells a receiver: of the last epoch in which it got something."""

    epoch: int
    stage: Stage
    firsts: Firsts
    lists: tuple[StoreList, ...]

    @classmethod
    def of(cls, bridge: Bridge) -> Told:
        """Return what is told of a bridge record."""
        return cls(epoch=bridge.epoch, stage=bridge.stage, firsts=bridge.firsts, lists=bridge.lists)

    @property
    def governs(self) -> tuple[StoreList, ...]:
        """The lists of which a recover set must say that numbers are lost."""
        return governing(self.stage, self.lists)


@dataclass(slots=True)
class Disk:
    """What one store has of the stream. begin: what lies before was trimmed.

    before: its promise and life before the last one. unsynced: entries that a crash takes, in the
    variant that answers too early.
    """

    name: str
    promised: int = 0
    life: int = 0
    before: tuple[int, int] = (0, 0)
    hints: tuple[StoreList, ...] = ()
    bridge: Bridge | None = None
    log: list[Entry] = field(default_factory=list[Entry])
    begin: int = 0
    stable: int = 0
    positions: dict[str, int] = field(default_factory=dict[str, int])
    damaged: set[int] = field(default_factory=set[int])
    told: Told | None = None
    full: bool = False
    up: bool = True
    unsynced: int = 0

    @property
    def admitted(self) -> int:
        """The epoch of its admission; 0 while a creation is not settled."""
        bridge = self.bridge
        return 0 if bridge is None or bridge.stage is Stage.CREATING else bridge.epoch

    def wipe(self) -> None:
        """Lose everything, but for being up."""
        empty = Disk(name=self.name, up=self.up, full=self.full)
        for name in Disk.__slots__:
            setattr(self, name, getattr(empty, name))

    def answer(self, rules: Rules) -> Promised:
        """Return what it has."""
        harmed = [number for number in self.damaged if number >= self.stable]
        is_silent = rules.damaged_are_silent
        return Promised(
            bridge=self.bridge,
            hints=self.hints,
            begin=self.begin,
            end=len(self.log) if is_silent else min(harmed, default=len(self.log)),
            stable=self.stable,
            whole=not (harmed and is_silent),
            positions=dict(self.positions),
        )

    def _memory(self) -> Memory:
        return states.memory(self.promised, self.admitted)

    def _standing(self, epoch: int, life: int, rules: Rules) -> Standing:
        found = states.standing(self.promised, self.life, epoch=epoch, life=life)
        if found is Standing.OTHER and not rules.life_in_promise:
            return Standing.OWN
        return found

    def fence(
        self, epoch: int, life: int, own: StoreList, rules: Rules
    ) -> tuple[Promised | None, int]:
        """Promise an epoch to a life; return what it has, or None, and what it has promised."""
        deed = states.FENCE.get(self._standing(epoch, life, rules), Deed.REFUSE)
        if deed is Deed.REFUSE:
            return None, self.promised
        if deed is Deed.PROMISE:
            self._promise(epoch, life)
            if self.bridge is None:
                self.hints = tuple(dict.fromkeys((*self.hints, own)))
        return self.answer(rules), self.promised

    def _promise(self, epoch: int, life: int) -> None:
        self.before = (self.promised, self.life)
        self.promised, self.life = epoch, life

    def admit(self, ask: Admit, disks: Iterable[Disk], rules: Rules) -> int | Deed:
        """Be admitted, with the chosen log; return the end of its log, or why it is not."""
        standing = self._standing(ask.bridge.epoch, ask.life, rules)
        deed = states.ADMIT.get((standing, self._memory()), Deed.REFUSE)
        if deed is Deed.FORGOT and not rules.forgetful_need_epoch:
            deed = Deed.LATE
        match deed:
            case Deed.ADMIT | Deed.LATE:
                if not self._copy(ask, disks, rules):
                    return Deed.GAP
                if deed is Deed.LATE:
                    self._promise(ask.bridge.epoch, ask.life)
            case Deed.SETTLE:
                pass
            case _:
                return deed
        self.bridge = ask.bridge
        return len(self.log)

    def _copy(self, ask: Admit, disks: Iterable[Disk], rules: Rules) -> bool:
        """Make its log the chosen one; False if there is no room, or nobody to copy from."""
        end = ask.log.end
        losses = ask.bridge.losses if rules.losses_are_told else ()
        if end < still_stable(self.stable, self.admitted, losses):
            return False
        keep = kept_below(self.answer(rules), ask.log, losses)
        if keep < end and self.full:
            if rules.full_admits_nothing:
                return False
            end = keep
        found = self._found(range(keep, end), ask.log.firsts, list(disks), rules)
        if found is None:
            return False
        copied, begin = found
        rest = [] if rules.cut else self.log[end:]
        self.log = self.log[:keep] + copied + rest
        self.begin = max(self.begin, begin)
        self.stable = min(self.stable, len(self.log))
        self.damaged = {number for number in self.damaged if number < keep}
        if rules.positions_learned:
            self.positions = merged((self.positions, ask.log.positions))
        return True

    def _found(
        self, numbers: range, firsts: Firsts, disks: list[Disk], rules: Rules
    ) -> tuple[list[Entry], int] | None:
        """Return the entries of the chosen log with these numbers, from whoever has them.

        And where the log begins, if some have been trimmed. None: somebody who is silent has one.
        """
        copied: list[Entry] = []
        begin = 0
        for number in numbers:
            epoch = epoch_at(firsts, number)
            having = [one for one in disks if one.up and number < len(one.log)]
            if rules.copies_by_identity:
                having = [one for one in having if one.log[number][0] == epoch]
            whole = [
                one
                for one in having
                if one.begin <= number
                and (number not in one.damaged or not rules.damage_is_not_served)
            ]
            if whole:
                copied.append(whole[0].entry(number))
            elif any(one.begin > number for one in having):
                copied.append(having[0].log[number])
                begin = number + 1
            else:
                return None
        return copied, begin

    def entry(self, number: int) -> Entry:
        """Return what it would serve: rubbish, where it is damaged."""
        return RUINED if number in self.damaged else self.log[number]

    def append(self, frame: Frame, rules: Rules) -> int | Deed:
        """Take a frame; return the end of its log, or why it takes none."""
        standing = self._standing(frame.epoch, frame.life, rules)
        knows = self._memory()
        if not rules.fence_at_append and self.admitted == frame.epoch:
            standing, knows = Standing.OWN, Memory.ADMITTED
        at = states.where(frame.number, len(self.log))
        deed = states.FRAME.get((standing, knows, at), Deed.REFUSE)
        match deed:
            case Deed.APPEND if frame.entry is not None:
                if self.full:
                    return Deed.GAP
                self.log.append(frame.entry)
                self.unsynced = min(self.unsynced + 1, 2)
            case Deed.APPEND | Deed.KNOWN | Deed.GAP:
                pass
            case _:
                return deed
        self.stable = max(self.stable, min(frame.stable, len(self.log)))
        self._tell()
        return len(self.log)

    def _tell(self) -> None:
        if self.bridge is not None:
            self.told = Told.of(self.bridge)

    @property
    def serving(self) -> int:
        """The epoch in which it takes what receivers say; 0 between a promise and an admission."""
        return self.admitted if self.admitted == self.promised else 0

    def register(self, receiver: str, position: int, epoch: int) -> bool:
        """Note a receiver, and where it begins; whether it did, in that epoch."""
        if epoch == 0 or self.serving != epoch:
            return False
        self.positions[receiver] = max(position, self.positions.get(receiver, 0))
        return True

    def acknowledge(self, receiver: str, position: int) -> bool:
        """Note what a receiver has acknowledged, if it is known here; whether it is."""
        return receiver in self.positions and self.register(receiver, position, self.serving)

    def readable_below(self, epoch: int, *, is_stable_only: bool, rules: Rules) -> int:
        """Return the bound of what a receiver that has seen this epoch is shown."""
        shows_all = not is_stable_only and self.admitted == epoch
        return len(self.log) if shows_all or not rules.only_stable_read else self.stable

    def trim(self, below: int) -> None:
        """Give up what lies before a number."""
        self.begin = max(self.begin, min(below, len(self.log)))
        self.damaged = {number for number in self.damaged if number >= self.begin}

    def crash(self, rules: Rules) -> None:
        """Stop and start again: what was not synced is gone, if anything was answered before."""
        if not rules.synced_before_answer and self.unsynced:
            cut = max(len(self.log) - self.unsynced, self.begin)
            del self.log[cut:]
            self.stable = min(self.stable, len(self.log))
        self.unsynced = 0

    def flip_promise(self, rules: Rules) -> bool:
        """Suffer damage in its last promise; return whether it is now one that forgot."""
        if rules.promise_kept:
            self.wipe()
            return True
        if self.before[0] >= (self.bridge.epoch if self.bridge else 0):
            self.promised, self.life = self.before
        return False
