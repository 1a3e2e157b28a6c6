"""A life of a receiver, step by step: it finds its place, registers, reads and acknowledges."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.streams.model import low
from onceq.streams.model.choice import newest, replaces
from onceq.streams.model.log import in_vain, rolled_back
from onceq.streams.model.quorum import StoreList, are_recovered, are_stable
from proof.streams_model.disks import RUINED, Disk, Told

if TYPE_CHECKING:
    from onceq.streams.model.choice import Promised
    from proof.streams_model.sources import Sender
    from proof.streams_model.world import World

Steps = Generator[None, None, None]
FIRST_LOOK_S = 40
"""Steps in which a life looks for its place before it gives up."""


@dataclass(slots=True)
class Reader:
    """A life of a receiver. told: the last registration information that it accepted.

    begin: where it began. seen: the contents of this life, by number. sure: below it, all is known
    to be stable. losses: the ranges that it was told as lost.
    """

    world: World
    name: str
    is_stable_only: bool
    from_newest: bool
    rule: low.Consensus
    told: Told | None = None
    begin: int = 0
    next: int = 0
    sure: int = 0
    seen: dict[int, int] = field(default_factory=dict[int, int])
    gone: dict[str, int] = field(default_factory=dict[str, int])
    losses: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _lists: tuple[StoreList, ...] = ()

    def run(self) -> Steps:
        """Go through a life; it never ends by itself once it reads."""
        if not (yield from self._begin()):
            return
        while True:
            yield
            world = self.world
            sources = [one for one in world.senders() if one.is_sending]
            if sources and world.chance.random() < world.from_source:
                for _ in range(world.burst):
                    self._read_source(world.chance.choice(sources))
            else:
                self._read_store(world.chance.choice(self._stores()))
            if world.chance.random() < world.acknowledges:
                yield
                self._acknowledge(world.chance.choice(self._stores()))

    def _stores(self) -> list[str]:
        lists = self._lists if self.told is None else (*self._lists, *self.told.lists)
        return sorted({store for one in lists for store in one.stores})

    def _begin(self) -> Generator[None, None, bool]:
        """Find the position, and register; return whether both came to an end."""
        answers: dict[str, tuple[int, Promised]] = {}
        stores = sorted(self.world.known_stores())
        for _ in range(FIRST_LOOK_S):
            yield
            store = self.world.chance.choice(stores)
            got = self.world.ask(
                store, lambda disk: (disk.serving, disk.answer(self.world.rules), disk.told)
            )
            if got is None:
                continue
            serving, answer, told = got
            self._accept(told)
            if serving:
                answers[store] = serving, answer
            epoch = max((one for one, _ in answers.values()), default=0)
            of_epoch = {store: one for store, (at, one) in answers.items() if at == epoch}
            record = newest(of_epoch.values())
            if record is not None and are_recovered(record.governs, of_epoch.keys()):
                self._lists = record.lists
                self._place(of_epoch)
                return (yield from self._register(epoch))
        return False

    def _place(self, answers: dict[str, Promised]) -> None:
        """Decide where this life begins."""
        known = [one.positions[self.name] for one in answers.values() if self.name in one.positions]
        stable = max(one.stable for one in answers.values())
        if known:
            begins = [one.begin for one in answers.values()]
            self.next = low.acknowledged(known, begins, self.rule)
        elif self.from_newest:
            self.next = stable
        self.sure = self.begin = self.next
        self.world.promises.begin_life(self.name, self.next)

    def _register(self, epoch: int) -> Generator[None, None, bool]:
        """Register at a stable set of all lists, in one epoch."""
        noted: set[str] = set()
        stores = sorted({store for one in self._lists for store in one.stores})
        for _ in range(3):
            self.world.chance.shuffle(stores)
            for store in stores:
                yield
                if self.world.ask(store, lambda disk: disk.register(self.name, self.next, epoch)):
                    noted.add(store)
                if are_stable(self._lists, noted):
                    self.world.promises.register(self.name)
                    return True
        return False

    def _accept(self, told: Told | None) -> bool:
        """Take registration information; return False for that of a former epoch.

        Of one epoch, that of the last stage counts.
        """
        if told is None:
            return False
        if self.told is not None and told.epoch < self.told.epoch:
            return not self.world.rules.zombies_ignored
        known = self.told
        if known is None or replaces((told.epoch, told.stage), (known.epoch, known.stage)):
            if self.told is not None:
                firsts = told.firsts
                if not self.world.rules.every_epoch_compared:
                    firsts = firsts[-1:]
                first = rolled_back(firsts, epoch=self.told.epoch, begin=self.begin, end=self.next)
                if first is not None:
                    self._roll_back(first)
            self.told = told
        return True

    def _roll_back(self, first: int) -> None:
        """Go back to a number, and be told what was seen in vain, if anything was."""
        told = in_vain(first, self.next, self.losses)
        seen = [number for number in self.seen if number >= first]
        if told != ((min(seen), max(seen) + 1) if seen else None):
            self.world.promises.breach("I5", f"{self.name} saw {seen} in vain, was told of {told}")
        if told is not None:
            self.world.did["receivers rolled back"] += 1
            was_lost = all(number in self.world.promises.void for number in range(*told))
            if self.is_stable_only and not was_lost:
                self.world.promises.breach("I5", f"{self.name} saw {told} in vain, as stable")
        self.losses = [(begin, min(below, first)) for begin, below in self.losses if begin < first]
        self.seen = {number: one for number, one in self.seen.items() if number < first}
        self.next = first
        self.sure = min(self.sure, first)

    def _read_source(self, source: Sender) -> None:
        """Take the next number from a source, if it still has it."""
        told = source.told()
        if told is None or not self._accept(told):
            return
        self.sure = max(self.sure, min(source.stable, self.next))
        below = source.stable if self.is_stable_only else source.next
        if source.base <= self.next < below:
            self._take(source.contents[self.next - source.base], stable_below=source.stable)

    def _read_store(self, store: str) -> None:
        """Take the next number from a store."""
        self.world.ask(store, self._read)

    def _read(self, disk: Disk) -> None:
        if disk.admitted == 0:
            return
        self._accept(disk.told)
        epoch = 0 if self.told is None else self.told.epoch
        below = disk.readable_below(
            epoch, is_stable_only=self.is_stable_only, rules=self.world.rules
        )
        self.sure = max(self.sure, min(disk.stable, self.next))
        if disk.begin > self.next:
            self._trimmed(disk)
        elif self.next < below:
            is_whole = self.next not in disk.damaged
            if is_whole or not self.world.rules.damage_is_not_served:
                content = disk.entry(self.next)[1] if is_whole else RUINED[1]
                self._take(content, stable_below=disk.stable)

    def _trimmed(self, disk: Disk) -> None:
        """A store has trimmed what comes next: if a recover set says so, it is lost."""
        self.gone[disk.name] = disk.begin
        if not self.world.rules.trimmed_is_told:
            self.next = disk.begin
            return
        lists = self._lists if self.told is None else self.told.governs
        gone = {store for store, begin in self.gone.items() if begin > self.next}
        if are_recovered(lists, gone):
            below = min(self.gone[store] for store in gone)
            self.world.promises.advance(self.name, self.seen)
            self.world.did["losses told to receivers"] += 1
            self.world.promises.lose(self.name, self.next, below)
            self.losses.append((self.next, below))
            self.next = below

    def _take(self, content: int, *, stable_below: int) -> None:
        number = self.next
        self.seen[number] = content
        self.world.promises.deliver(self.name, number, content, is_stable_only=self.is_stable_only)
        self.next += 1
        self.sure = max(self.sure, min(stable_below, self.next))

    def _acknowledge(self, store: str) -> None:
        """Tell a store what has been processed, as far as it is known to be stable."""
        position = self.sure if self.world.rules.only_stable_acknowledged else self.next
        self.world.ask(store, lambda disk: disk.acknowledge(self.name, position))
