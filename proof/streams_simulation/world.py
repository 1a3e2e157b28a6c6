"""A schedule: stores, sources and receivers over wires, and what befalls them, all by one seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from onceq.streams.model.quorum import Intergroup, Intragroup, StoreList, listed
from onceq.streams.store.limits import Limits, WhenFull
from proof.streams_model.promises import Followed, Promises
from proof.streams_model.rules import I7
from proof.streams_simulation.disk_nodes import DiskNode, NoCacheNode
from proof.streams_simulation.judging import Judge
from proof.streams_simulation.misfortunes import Misfortunes
from proof.streams_simulation.net import Net
from proof.streams_simulation.quiet import Quiet
from proof.streams_simulation.readers import ReceiverNode
from proof.streams_simulation.stores import FleetingNode, StoreNode, Told

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.streams.source.epochs import Begun
    from proof.streams_simulation.senders import SourceNode

STORES = "ABCDE"
STEPS = 1_200
STEPS_OF_DISKS = 2_400
"""Disks take steps of their own."""
OFTEN = (0.1, 0.3, 0.6)
"""Where disks fail, too, each misfortune is so much rarer."""
LISTS: tuple[tuple[StoreList, ...], ...] = (
    (listed("A B C"), listed("A B D"), listed("A D E")),
    (listed("A B C"), listed("A B C; D E"), listed("D E")),
    (listed("A B C; D E"),),
    (listed("A B C; D E", intergroup=Intergroup.ALL),),
    (listed("A B C; D E", intergroup=Intergroup.ALL_ACTIVE),),
    (listed("A B C D"),),
    (listed("A B C D E"),),
    (listed("A B C", intragroup=Intragroup.ALL), listed("A B C")),
)
"""Lists of stores; a source goes from one to a neighbour. Neighbours share a stable set."""
WEIGHTS = (4, 2, 1, 1, 1, 1, 1, 1)
NUMBERS_MAX = 60
FIRST_SESSION = 21


class World:
    """One schedule. `run` goes through it; `promises.broken` says what was broken.

    home: where stores on disks have their directories, which schedules may share that run one after
    the other; None: all stores are in memory, which outlives their processes.
    """

    def __init__(self, seed: int, home: Path | None = None) -> None:
        self.home = home
        self.chance = random.Random(seed)
        self.promises = Promises()
        self.did: Counter[str] = Counter()
        self.net = Net(self.chance)
        self.has_regids = seed % 2 == 1
        self.lists = self.chance.choices(LISTS, WEIGHTS)[0]
        self.at = 0
        self.promises.used = set(self.lists)
        self.stores: dict[str, StoreNode] = {}
        self.judge = Judge(self.promises, self.did)
        self.noting: frozenset[str] = frozenset()
        self._make_stores(self._limits())
        self.net.stores = self.stores
        for store in self.stores.values():
            store.start()
        self.sources: list[SourceNode] = []
        self.readers: dict[str, ReceiverNode | None] = {}
        self.sessions: dict[str, int] = {}
        for name in ("stable", "live"):
            self.add_reader(name)
        self._contents = 0
        self._settings()

    def _limits(self) -> Limits:
        """Draw how much a store may keep: in half of the schedules, everything."""
        size = self.chance.choice((None, None, 300, 800))
        self.judge.overwrites = size is not None and self.chance.random() < 0.3
        full = WhenFull.OVERWRITE if self.judge.overwrites else WhenFull.BLOCK
        return Limits(size_bytes=size, when_full=full)

    def _make_stores(self, may_keep: Limits) -> None:
        told = Told(may_keep=may_keep, filled=self._filled, trimmed=self.judge.trimmed)
        home = self.home
        if home is None:
            self.stores |= {name: StoreNode(self.net, name, told) for name in STORES}
        else:
            self.noting = self._a_few(0.25)
            fleeting = self._a_few(0.25) - self.noting
            for name in STORES:
                if name in self.noting:
                    unheard = replace(told, trimmed=lambda *_: None)
                    self.stores[name] = NoCacheNode(self.net, name, unheard, home)
                elif name in fleeting:
                    self.stores[name] = FleetingNode(self.net, name, told)
                else:
                    self.stores[name] = DiskNode(self.net, name, told, home)
        self.judge.stores = {name: one for name, one in self.stores.items() if one.keeps}

    def _a_few(self, likely: float) -> frozenset[str]:
        """Draw a store, or none; without it every list can send, and recover."""
        found = frozenset({self.chance.choice(STORES)} if self.chance.random() < likely else ())
        suffice = all(one.is_stable(one.stores - found) for one in self.lists)
        recover = all(one.recovers(one.stores - found) for one in self.lists)
        return found if suffice and recover else frozenset()

    def add_reader(self, name: str) -> None:
        """Have a receiver that was never there."""
        self.readers[name] = None
        self.sessions[name] = FIRST_SESSION + len(self.sessions)
        self.promises.receivers[name] = Followed()

    def may_lose(self, store: str) -> bool:
        """Whether G11 still holds if this store loses what it has: no stable set is lost."""
        lost = self.promises.lost | self.noting | {store}
        return not any(one.is_stable(lost) for one in self.promises.used)

    def _settings(self) -> None:
        """Draw how likely each misfortune is in this schedule."""
        draw = self.chance.random
        self.net.lost = draw() * 0.05 * (draw() < 0.6)
        self.net.doubled = draw() * 0.05 * (draw() < 0.6)
        self.net.lingering = draw() * 0.8 * (draw() < 0.5)
        self.moves = 0.5 + draw() * 0.4
        self.befalls = Misfortunes(self)
        often = 1.0 if self.home is None else self.chance.choice(OFTEN)
        self.misfortunes = self.befalls.of_any(often)
        self.sends = 0.05 + draw() * 0.1
        self.acknowledges = draw() * 0.08
        self.numbers_max = NUMBERS_MAX
        if self.home is not None:
            self.misfortunes += self.befalls.of_disks(often)

    def new_content(self) -> int:
        """Return a content that was never sent."""
        self._contents += 1
        return self._contents

    # what is judged

    def completed(self, source: SourceNode, begun: Begun) -> None:
        """Note that a recovery is complete, and what its log has."""
        self.did["recoveries"] += 1
        holders = [self.stores[one].held for one in begun.ends]
        overtaken = any(one.promised > begun.epoch for one in holders)
        kept = [
            store
            for store in sorted(begun.ends.keys() - self.promises.lost)
            if (bridge := self.stores[store].held.bridge) and bridge.epoch == begun.epoch
        ]
        log = self.judge.log_of(self.stores[kept[0]], begun.log.end) if kept else []
        contents = [content for _, content in log]
        is_known = bool(kept) and not overtaken
        self.promises.complete(begun.epoch, source.core.needed, contents if is_known else None)
        self.judge.report(source.core.needed, log, 0)

    def _filled(self, store: str) -> None:
        self.promises.lost.discard(store)

    def publish(self, source: SourceNode, data: bytes) -> None:
        """Let what a source sends be on its way to those who are connected to it."""
        for reader in self.readers.values():
            if reader is not None:
                reader.publish(source, data)

    # what they do

    def _step(self) -> None:
        for befall, likely in self.misfortunes:
            if self.chance.random() < likely:
                befall()
        self.act()

    def act(self) -> None:
        """Go on with one thing that happens."""
        chance = self.chance
        if not any(not one.is_over for one in self.sources):
            self.befalls.start_source()
        if chance.random() < self.sends:
            self._send()
        for name, reader in self.readers.items():
            self._read(name, reader)
        moving = self.net.moving()
        if moving and chance.random() < self.moves:
            wire, is_to_store = chance.choice(moving)
            self.net.deliver(wire, is_to_store=is_to_store)
        else:
            self.net.pass_time()

    def _send(self) -> None:
        sending = [one for one in self.sources if not one.is_over]
        source = self.chance.choice(sending)
        if source.core.next < self.numbers_max and not self.net.is_paused(source.name):
            source.send(self.chance.randint(1, 3), self.new_content)

    def _read(self, name: str, reader: ReceiverNode | None) -> None:
        chance = self.chance
        if reader is None or reader.is_over:
            if self.promises.completed and chance.random() < 0.05:
                lists = self.promises.lists or self.lists
                self.readers[name] = ReceiverNode(
                    self, name, lists[0], from_newest=chance.random() < 0.5
                )
            return
        if self.net.is_paused(reader.caller.name):
            return
        if reader.queue and chance.random() < 0.5:
            reader.take()
        if chance.random() < self.acknowledges:
            reader.acknowledge()
        sending = [one for one in self.sources if one.is_sending]
        is_alone = reader.source is None or reader.source.is_over
        if sending and is_alone and chance.random() < 0.1:
            reader.join(chance.choice(sending))

    # the schedule

    def run(self) -> World:
        """Go through the schedule, then let all faults end, and check what must be so then."""
        try:
            self._go_through()
        finally:
            for store in self.stores.values():
                store.close()
        return self

    def _go_through(self) -> None:
        for _ in range(STEPS if self.home is None else STEPS_OF_DISKS):
            self._step()
            if self.promises.broken:
                return
        self.promises.check_stores(self.judge.disks())
        if not self.promises.broken:
            Quiet(self).calm()
        self._check_links()

    def _check_links(self) -> None:
        for store in self.stores.values():
            if store.refused:
                self.promises.breach(I7, f"{store.name} refused {store.refused[0]}")
