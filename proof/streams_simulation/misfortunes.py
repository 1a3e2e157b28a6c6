"""What befalls stores, wires, sources and receivers, and how likely each is in a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proof.streams_simulation.disk_nodes import DiskNode
from proof.streams_simulation.senders import SourceNode

if TYPE_CHECKING:
    from proof.streams_simulation.net import Wire
    from proof.streams_simulation.stores import StoreNode
    from proof.streams_simulation.world import World

SOURCES_MAX = 3
READERS_MAX = 5
PAUSE_S_MAX = 5.0
DIES_IN_MAX = 12
"""The power fails before so many operations of a disk have ended."""
Likely = list[tuple[Callable[[], None], float]]


class Misfortunes:
    """All that may befall a schedule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance
        self.did = world.did

    def of_any(self, often: float = 1.0) -> Likely:
        """Draw how likely each is that befalls stores of any kind. often: times as likely."""
        draw = self.chance.random
        return [
            (self._kill_store, draw() * 0.010 * often),
            (self.start_store, 0.02),
            (self._wipe, draw() * 0.008 * often * (draw() < 0.7)),
            (self._kill_source, draw() * 0.008 * often),
            (self.start_source, draw() * 0.010 * often),
            (self._cut, draw() * 0.010 * often),
            (self._part, draw() * 0.010 * often),
            (self._join_again, 0.02),
            (self._kill_reader, draw() * 0.008 * often),
            (self._change_list, draw() * 0.010 * often * (draw() < 0.6)),
            (self._give_up, draw() * 0.008 * often * (draw() < 0.4)),
        ]

    def of_disks(self, often: float) -> Likely:
        """Draw how likely each is that befalls disks, and what goes with them."""
        draw = self.chance.random
        return [
            (self._fail_power, draw() * 0.006 * often),
            (self._fail_power_everywhere, draw() * 0.004 * often * (draw() < 0.5)),
            (self._fail_power_amid, draw() * 0.010 * often),
            (self._fail_sync, draw() * 0.008 * often * (draw() < 0.7)),
            (self._fill, draw() * 0.006 * often * (draw() < 0.5)),
            (self._empty, 0.01),
            (self._flip, draw() * 0.015 * often * (draw() < 0.5)),
            (self._pause, draw() * 0.010 * often),
            (self._part_one_way, draw() * 0.010 * often),
            (self._lose_source, draw() * 0.010 * often),
            (self._come_newly, draw() * 0.004 * (draw() < 0.5)),
            (self._kill_newborn, draw() * 0.100 * (draw() < 0.5)),
        ]

    # stores

    def _a_store(self) -> StoreNode:
        return self.world.stores[self.chance.choice(sorted(self.world.stores))]

    def _a_disk(self) -> DiskNode | None:
        disks = [one for one in self.world.stores.values() if isinstance(one, DiskNode)]
        return self.chance.choice(disks) if disks else None

    def _kill_store(self) -> None:
        store = self._a_store()
        if not store.is_up or not (store.outlives or self._may_lose(store)):
            return
        store.kill()
        self.did["stores killed"] += 1
        if not store.outlives:
            self.did["stores in memory that ended"] += 1
            self.world.promises.lost.add(store.name)

    def start_store(self) -> None:
        """Start the first store that does not run."""
        for store in self.world.stores.values():
            if not store.is_up:
                store.start()
                return

    def _may_lose(self, store: StoreNode) -> bool:
        """Whether G11 still holds if a store loses what it has, or it has nothing to lose."""
        return store.held.promised == 0 or self.world.may_lose(store.name)

    def _wipe(self) -> None:
        store = self._a_store()
        if store.held.bridge is not None and self.world.may_lose(store.name):
            if store.is_up:
                store.kill()
            store.wipe()
            store.start()
            self.world.promises.lost.add(store.name)
            self.did["stores wiped"] += 1

    def _fail_power(self) -> None:
        store = self._a_disk()
        if store is not None and store.is_up:
            store.fail_power()
            self.did["power cuts"] += 1

    def _fail_power_everywhere(self) -> None:
        for store in self.world.stores.values():
            if isinstance(store, DiskNode):
                store.fail_power()
        self.did["power cuts of all stores at once"] += 1

    def _fail_power_amid(self) -> None:
        store = self._a_disk()
        if store is not None:
            store.volume.dies_in = self.chance.randrange(DIES_IN_MAX)
            self.did["power cuts amid what a disk does"] += 1

    def _fail_sync(self) -> None:
        store = self._a_disk()
        if store is not None:
            store.volume.sync_fails = True
            self.did["syncs that failed"] += 1

    def _fill(self) -> None:
        store = self._a_disk()
        if store is not None:
            store.volume.is_full = True
            self.did["disks filled"] += 1

    def _empty(self) -> None:
        store = self._a_disk()
        if store is not None:
            store.volume.is_full = False

    def _flip(self) -> None:
        store = self._a_disk()
        if store is not None and self.world.may_lose(store.name) and store.flip():
            self.world.promises.lost.add(store.name)
            self.did["bits flipped"] += 1

    # the network, and processes that stand still

    def _a_wire(self) -> Wire | None:
        wires = self.world.net.wires
        return self.chance.choice(wires) if wires else None

    def _cut(self) -> None:
        wires = [one for one in self.world.net.wires if one.is_open]
        if wires:
            self.world.net.cut(self.chance.choice(wires), "the network")
            self.did["wires cut"] += 1

    def _part(self) -> None:
        wire = self._a_wire()
        if wire is not None:
            self.world.net.apart.add((wire.caller.name, wire.store.name))
            self.did["partitions"] += 1

    def _part_one_way(self) -> None:
        wire = self._a_wire()
        if wire is not None:
            way = wire.caller.name, wire.store.name, self.chance.random() < 0.5
            self.world.net.deaf.add(way)
            self.did["partitions, one way"] += 1

    def _join_again(self) -> None:
        net = self.world.net
        if net.apart:
            net.apart.discard(self.chance.choice(sorted(net.apart)))
        if net.deaf:
            net.deaf.discard(self.chance.choice(sorted(net.deaf)))

    def _pause(self) -> None:
        names = sorted({*self.world.stores, *(one.caller.name for one in self.world.net.wires)})
        pause_s = self.chance.random() * PAUSE_S_MAX
        net = self.world.net
        net.paused[self.chance.choice(names)] = net.now_s + pause_s
        self.did["processes paused"] += 1

    # sources and receivers

    def _kill_source(self) -> None:
        sources = self.world.sources
        if sources:
            sources.pop(self.chance.randrange(len(sources))).kill()
            self.did["sources killed"] += 1

    def start_source(self) -> None:
        """Start a life of the source, beside those that there are."""
        world = self.world
        world.sources = [one for one in world.sources if not one.is_over]
        if len(world.sources) < SOURCES_MAX:
            world.sources.append(SourceNode(world, world.lists[world.at]))

    def _kill_reader(self) -> None:
        readers = self.world.readers
        reader = readers[self.chance.choice(sorted(readers))]
        if reader is not None and not reader.is_over:
            reader.kill()
            self.did["receivers killed"] += 1

    def _come_newly(self) -> None:
        readers = self.world.readers
        if len(readers) < READERS_MAX:
            self.world.add_reader(f"{self.chance.choice(('stable', 'live'))} {len(readers)}")
            self.did["receivers that came newly"] += 1

    def _kill_newborn(self) -> None:
        for reader in self.world.readers.values():
            if reader is not None and reader.is_newborn:
                reader.kill()
                self.did["receivers killed as soon as they were registered"] += 1

    def _lose_source(self) -> None:
        readers = self.world.readers
        reader = readers[self.chance.choice(sorted(readers))]
        if reader is not None and reader.source is not None:
            reader.leave()
            self.did["links of receivers lost"] += 1

    def _change_list(self) -> None:
        world = self.world
        if world.promises.lists == (world.lists[world.at],):
            at = world.at + self.chance.choice((-1, 1))
            world.at = max(0, min(len(world.lists) - 1, at))
            for source in world.sources:
                source.want(world.lists[world.at])
            self.did["lists changed"] += 1

    def _give_up(self) -> None:
        sending = [one for one in self.world.sources if one.is_sending]
        for source in sending[:1]:
            if source.core.stable < source.core.next:
                source.give_up(self.chance.randrange(source.core.stable, source.core.next))
                self.did["numbers given up"] += 1
