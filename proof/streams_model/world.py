"""A schedule: sources, stores and receivers, and what befalls them, all by one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from onceq.streams.model.choice import Stage
from onceq.streams.model.log import acknowledged_below, epoch_at
from onceq.streams.model.losses import Losses, void_below
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import Intergroup, Intragroup, are_recovered, listed
from proof.streams_model.disasters import Disasters
from proof.streams_model.disks import VOID, Disk
from proof.streams_model.promises import Followed, Promises
from proof.streams_model.receivers import Reader
from proof.streams_model.rules import I5, I6, I7, Rules
from proof.streams_model.sources import Sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.streams.model.quorum import StoreList

T = TypeVar("T")

STORES = "ABCDE"
STEPS = 400
QUIET_STEPS = 4_000
_ALL = Intergroup.ALL
LISTS: tuple[tuple[StoreList, ...], ...] = (
    (listed("A B C"), listed("A B D"), listed("A D E")),
    (listed("A B C"), listed("A B C; D E"), listed("D E")),
    (listed("A B C; D E"),),
    (listed("A B C; D E", intergroup=_ALL),),
    (listed("A B; C D", intragroup=Intragroup.ALL),),
    (listed("A B C D"),),
    (listed("A B C", intragroup=Intragroup.ALL), listed("A B C")),
)
"""Lists of stores; a source goes from one to a neighbour. Neighbours share a stable set."""
WEIGHTS = (4, 2, 1, 1, 1, 1, 1)


class World:
    """One schedule. `run` goes through it; `promises.broken` says what was broken."""

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        self.rules = Rules() if rules is None else rules
        self.chance = random.Random(seed)
        self.disasters = Disasters(self, seed)
        self.promises = Promises()
        self.trace: list[str] | None = None
        self.did: Counter[str] = Counter()
        self._settings()
        self.disks = {name: Disk(name=name) for name in STORES}
        self.lists = self.chance.choices(LISTS, WEIGHTS)[0]
        self.at = 0
        self._lives: list[tuple[Sender, Generator[None, None, bool]]] = []
        self.readings: dict[str, tuple[Reader, Generator[None, None, None]] | None] = {
            "stable": None,
            "live": None,
        }
        self.promises.receivers = {name: Followed() for name in self.readings}
        self.promises.used = set(self.lists)
        self._count = self._contents = 0
        self._asleep: set[str] = set()
        self.tried = 0
        self._frozen = 0
        self._is_quiet = False

    def _settings(self) -> None:
        """Draw how likely each misfortune is in this schedule."""
        draw = self.chance.random
        self.lost = draw() * 0.15
        self.down = draw() * 0.1
        self.begins = draw() * 0.05
        self.dies = draw() * 0.05
        self.wipes = draw() * 0.03 * (draw() < 0.7)
        self.damages = draw() * 0.03 * (draw() < 0.4)
        self.flips = draw() * 0.08 * (draw() < 0.3)
        self.fills = draw() * 0.05 * (draw() < 0.3)
        self.crashes = draw() * 0.03
        self.changes = draw() * 0.04
        self.gives_up = draw() * 0.06 * (draw() < 0.4)
        self.trims = draw() * 0.3 * (draw() < 0.6)
        self.overwrites = draw() * 0.02 * (draw() < 0.25)
        self.rereads = draw() * 0.015
        self.sends = 0.1 + draw() * 0.7
        self.acknowledges = draw() * 0.7
        self.hurry = self.chance.choice((0.0, 0.3, 0.8))
        self.looks = self.chance.choice((1, 3))
        self.freezes = draw() * 0.1 * (draw() < 0.4)
        self.numbers_max = 40
        self.burst = self.chance.choice((1, 1, 4))
        self.reads = 0.15 + draw() * 0.35
        self.sleeps = self.chance.choice((0.0, 0.9))
        self.from_source = 0.2 + draw() * 0.7
        self._rounds = self.chance.choice((2, 20, 80))
        self.rule = self.chance.choice(list(Consensus))

    def stop_sources(self) -> None:
        """End all lives of sources."""
        self._lives = []

    # what lives use

    def rounds(self) -> int:
        """Return how many steps of sending a life has, before it ends of itself."""
        return QUIET_STEPS if self._is_quiet else self.chance.randint(0, self._rounds)

    def new_content(self) -> int:
        """Return a content that was never sent."""
        self._contents += 1
        return self._contents

    def senders(self) -> list[Sender]:
        """Return the lives of sources that go on."""
        return [sender for sender, _ in self._lives]

    def known_stores(self) -> set[str]:
        """Return the stores that a receiver knows of: those of the lists in use."""
        lists = self.promises.lists or (self.lists[self.at],)
        return {store for one in lists for store in one.stores}

    def ask(self, store: str, does: Callable[[Disk], T]) -> T | None:
        """Ask a store; the ask or its answer may be lost: None."""
        disk = self.disks[store]
        if not disk.up or self.chance.random() < self.lost:
            return None
        answer = does(disk)
        if self.trace is not None:
            self.trace.append(f"{store}: {getattr(does, '__qualname__', '')} -> {answer!r}")
        return None if self.chance.random() < self.lost else answer

    def filled(self, store: str, losses: Losses = ()) -> None:
        """Note that a store has the chosen log: what it lost before is made good.

        losses: that were accepted for that.
        """
        for one in losses:
            self.did["losses accepted"] += self.promises.accept(one)
        if not self.disks[store].damaged and self.disks[store].admitted:
            self.promises.lost.discard(store)

    def completed(self, sender: Sender) -> None:
        """Note that a recovery is complete."""
        if sender.bridge.losses and sender.bridge.losses[-1].epoch == sender.bridge.epoch:
            self.disasters.away.clear()
        overtaken = any(self.disks[store].promised > sender.epoch for store in sender.ends)
        log = sender.recovered
        log += [VOID] * (void_below(sender.bridge.losses) - len(log))
        self.promises.complete(sender.epoch, sender.needed, None if overtaken else log)
        self.promises.report(log)

    # what befalls them

    def _step(self) -> None:
        chance = self.chance.random
        if chance() < self.begins and len(self._lives) < 3:
            self._start()
        if chance() < self.dies and self._lives:
            self._lives.pop(self.chance.randrange(len(self._lives)))
        self._strike()
        self.disasters.strike()
        if chance() < self.rereads:
            self._end_reader(self.chance.choice(sorted(self.readings)))
        self._move_list()
        if chance() < self.reads:
            self._go_on_reading()
        else:
            self._go_on_sending()

    def _strike(self) -> None:
        """Let something befall a store, or let one trim."""
        disk = self.disks[self.chance.choice(STORES)]
        chance = self.chance.random
        if chance() < self.down:
            disk.up = (not disk.up or chance() < 0.4) and disk.name not in self.disasters.away
        if chance() < self.crashes:
            disk.crash(self.rules)
        if chance() < self.fills:
            disk.full = not disk.full
            self.did["disks filled"] += disk.full
        if chance() < self.trims:
            self._trim(disk)
        if chance() < self.overwrites and disk.admitted:
            below = self.chance.randint(0, disk.stable)
            self.promises.given_up.update(range(disk.begin, below))
            self.did["numbers overwritten"] += max(below - disk.begin, 0)
            disk.trim(below)
        if disk.bridge is not None and self.promises.may_lose(disk.name):
            self._harm(disk)

    def _harm(self, disk: Disk) -> None:
        """Let a disk lose what it has, in whole or in part."""
        chance = self.chance.random
        if chance() < self.wipes:
            disk.wipe()
            self.did["disks wiped"] += 1
            self.promises.lost.add(disk.name)
        elif chance() < self.flips and disk.flip_promise(self.rules):
            self.did["records damaged"] += 1
            self.promises.lost.add(disk.name)
        elif chance() < self.damages and len(disk.log) > disk.begin:
            self.did["entries damaged"] += 1
            disk.damaged.add(self.chance.randrange(disk.begin, len(disk.log)))
            self.promises.lost.add(disk.name)
        elif disk.damaged and chance() < 0.1:
            self._scrub(disk)

    def _scrub(self, disk: Disk) -> None:
        """Repair what is damaged from any store that has the same identity."""
        bridge = disk.bridge
        if bridge is None or not disk.up:
            return
        others = [one for one in self.disks.values() if one.up and one is not disk]
        for number in sorted(disk.damaged):
            epoch = epoch_at(bridge.firsts, number)
            having = [
                one.log[number]
                for one in others
                if one.begin <= number < len(one.log) and number not in one.damaged
            ]
            if (found := next((one for one in having if one[0] == epoch), None)) is not None:
                disk.log[number] = found
                disk.damaged.discard(number)
            elif any(one.begin > number for one in others):
                disk.trim(number + 1)  # they trimmed it, and so it is acknowledged
        self.filled(disk.name)

    def _trim(self, disk: Disk) -> None:
        """Let a store trim what all receivers have, as a recover set of stores knows it."""
        epoch, bridge = disk.serving, disk.bridge
        if epoch == 0 or bridge is None:
            return
        known = {disk.name: dict(disk.positions)}
        if self.rules.positions_of_recover_set:
            for store in sorted({store for one in bridge.governs for store in one.stores}):
                found = self.ask(store, lambda one: (one.serving, dict(one.positions)))
                if found is not None and found[0] == epoch:
                    known[store] = found[1]
            if not are_recovered(bridge.governs, known.keys()):
                return
        below = acknowledged_below(known.values(), disk.stable)
        self.did["numbers trimmed"] += max(below - disk.begin, 0)
        disk.trim(below)

    def _move_list(self) -> None:
        """Let the operator go on to a neighbour of the list in use, if that is settled."""
        is_in_use = self.promises.lists == (self.lists[self.at],)
        if is_in_use and not self.disasters.is_struck and self.chance.random() < self.changes:
            at = self.at + self.chance.choice((-1, 1))
            self.at = max(0, min(len(self.lists) - 1, at))
            for sender in self.senders():
                if self.chance.random() < 0.7 and sender.own != self.lists[self.at]:
                    sender.wanted = self.lists[self.at]

    def _start(self) -> None:
        self._count += 1
        own = self.lists[self.at]
        accepts = self.disasters.is_accepted()
        sender = Sender(world=self, life=self._count, own=own, wanted=own, accepts=accepts)
        self._lives.append((sender, sender.run()))

    def _go_on_sending(self) -> None:
        if not self._lives:
            self._start()
        if not self._is_quiet and self.chance.random() < self.freezes:
            self._frozen = self.chance.choice(self._lives)[0].life
        awake = [one for one in self._lives if one[0].life != self._frozen or self._is_quiet]
        if not awake and len(self._lives) < 3:
            self._start()  # a successor beside it
            awake = self._lives[-1:]
        one = self.chance.choice(awake or self._lives)
        if next(one[1], self) is self:
            self._lives.remove(one)

    def _go_on_reading(self) -> None:
        name = self.chance.choice(sorted(self.readings))
        if self._is_asleep(name):
            return
        reading = self.readings[name]
        if reading is None:
            reader = Reader(
                world=self,
                name=name,
                is_stable_only=name == "stable",
                from_newest=self.chance.random() < 0.5,
                rule=self.rule,
            )
            reading = self.readings[name] = (reader, reader.run())
        ended: Any = self
        if next(reading[1], ended) is ended:
            self._end_reader(name)

    def _is_asleep(self, name: str) -> bool:
        """Whether a receiver does nothing now: it falls asleep for a while, and wakes."""
        if self._is_quiet or self.sleeps == 0.0:
            return False
        if self.chance.random() < 0.03:
            self._asleep.symmetric_difference_update({name})
        return name in self._asleep

    def _end_reader(self, name: str) -> None:
        reading = self.readings[name]
        if reading is not None:
            self.promises.advance(name, reading[0].seen)
        self.readings[name] = None

    # the schedule

    def run(self) -> World:
        """Go through the schedule, then let all faults end, and check what must be so then."""
        for _ in range(STEPS):
            self._step()
            if self.promises.broken:
                return self
        self.promises.check_stores(self.disks.values())
        if not self.promises.broken:
            self._calm()
        return self

    def _calm(self) -> None:
        """End all faults: what is then not stable and delivered in time breaks I7."""
        self.lost = self.gives_up = self.hurry = 0.0
        self.sends, self.acknowledges, self.looks, self._is_quiet = 0.2, 0.5, 3, True
        self.numbers_max = 0
        self.disasters.away.clear()
        for disk in self.disks.values():
            disk.up, disk.full = True, False
        self._lives = []
        for _ in range(QUIET_STEPS):
            self._calm_step()
            if self.promises.broken:
                return
            if self._is_done():
                self._check_end()
                return
        self.promises.breach(I7, self._unfinished())

    def _calm_step(self) -> None:
        if self.chance.random() < 0.5:
            self._go_on_reading()
        else:
            self._go_on_sending()
        for disk in self.disks.values():
            if disk.damaged:
                self._scrub(disk)

    def _is_done(self) -> bool:
        """Whether a source sends, all that it has is stable at all stores, and all is delivered."""
        senders = [one for one in self.senders() if one.is_sending]
        if not senders:
            return False
        sender, bridge = senders[0], senders[0].bridge
        if bridge.stage is not Stage.SETTLED or sender.wanted is not None:
            return False
        if sender.base == sender.next:
            sender.contents += [self.new_content(), self.new_content()]
        return (
            sender.stable == sender.next
            and all(sender.ends.get(one) == sender.next for one in sender.own.stores)
            and not self.promises.lost & sender.own.stores
            and all(self._has_all(name, sender.next) for name in self.readings)
        )

    def _has_all(self, name: str, end: int) -> bool:
        reading = self.readings[name]
        return reading is not None and reading[0].next == end and reading[0].told is not None

    def _unfinished(self) -> str:
        sources = [
            f"epoch {one.epoch}, {one.bridge.stage.name}, {one.is_sending}, next {one.next},"
            f" stable {one.stable}, at {one.ends}, list {one.own.text()}, wanted {one.wanted}"
            for one in self.senders()
        ]
        readers = {
            name: reading and (reading[0].next, reading[0].told and reading[0].told.epoch)
            for name, reading in self.readings.items()
        }
        lost = sorted(self.promises.lost)
        return f"in {QUIET_STEPS} steps without faults: {sources}, lost {lost}, receivers {readers}"

    def _check_end(self) -> None:
        self.promises.check_stores(self.disks.values())
        for name, reading in self.readings.items():
            followed = self.promises.receivers[name]
            if reading is None or followed.owed is None:
                continue
            self.promises.advance(name, reading[0].seen)
            if followed.got != len(self.promises.stable):
                self.promises.breach(I6, f"{name} never got {followed.got}")
            for number, content in reading[0].seen.items():
                if self.promises.stable[number] != content:
                    self.promises.breach(I5, f"{name} was not told that {number} was in vain")
