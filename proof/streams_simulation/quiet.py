"""How a schedule ends: all faults do, and then everything must be stable and delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.streams.model.choice import Stage
from onceq.streams.store.catalogue import serving
from proof.streams_model.rules import I2, I5, I6, I7

if TYPE_CHECKING:
    from onceq.streams.source.sending import Sending
    from proof.streams_simulation.stores import StoreNode
    from proof.streams_simulation.world import World

QUIET_STEPS = 20_000


class Quiet:
    """The end of a schedule."""

    def __init__(self, world: World) -> None:
        self.world = world

    def calm(self) -> None:
        """End all faults: what is then not stable and delivered in time breaks I7."""
        world = self.world
        self._end_faults()
        world.moves, world.numbers_max, world.acknowledges = 0.8, 0, 0.1
        for source in world.sources:
            source.kill()
        for store in world.stores.values():
            if not store.is_up:
                store.start()
        self._endure()
        for step in range(QUIET_STEPS):
            world.act()
            if world.promises.broken:
                return
            if step % 20 == 0 and self._is_done():
                self._check_end()
                return
        world.promises.breach(I7, self._unfinished())

    def _end_faults(self) -> None:
        net = self.world.net
        net.lost = net.doubled = 0.0
        net.apart.clear()
        net.deaf.clear()
        net.paused.clear()
        for store in self.world.stores.values():
            store.mend()

    def _endure(self) -> None:
        """With one store down, and no other fault, a source sends, whatever list it wants."""
        world, down = self.world, self._to_be_down()
        if down is None:
            return
        down.kill()
        for _ in range(QUIET_STEPS // 2):
            world.act()
            if world.promises.broken:
                return
            if self._goes_on():
                break
        else:
            world.promises.breach(I7, f"with {down.name} down, {self._unfinished()}")
        world.did["sources that sent with a store down"] += 1
        down.start()

    def _to_be_down(self) -> StoreNode | None:
        """Return a store without which the others suffice, if one of the list that is wanted."""
        world = self.world
        lists, chance = world.promises.lists, world.chance
        if world.promises.lost or len(lists) != 1:
            return None
        bridges = [world.stores[name].held.bridge for name in lists[0].stores]
        if any(one is None or (one.stage, one.lists) != (Stage.SETTLED, lists) for one in bridges):
            return None
        if lists[0] == world.lists[world.at] and chance.random() < 0.7:
            last = len(world.lists) - 1
            world.at = chance.choice([max(0, world.at - 1), min(last, world.at + 1)])
        left = {name: lists[0].stores - {name} - world.noting for name in world.stores}
        spare = [name for name, one in world.stores.items() if one.outlives]
        spare = [one for one in spare if lists[0].is_stable(left[one])]
        spare = [one for one in spare if lists[0].recovers(left[one])]
        wanted = [one for one in spare if one in world.lists[world.at].stores]
        return world.stores[chance.choice(wanted or spare)] if spare else None

    def _goes_on(self) -> bool:
        """Whether a source has sent something since all faults ended, and it is stable."""
        source = next((one for one in self.world.sources if one.is_sending), None)
        if source is None:
            return False
        if not source.contents:
            source.send(2, self.world.new_content)
        return bool(source.contents) and source.core.stable == source.core.next

    def _is_done(self) -> bool:
        """Whether a source sends, all that it has is stable at all stores, and all is delivered."""
        world = self.world
        source = next((one for one in world.sources if one.is_sending), None)
        if source is None:
            return False
        core = source.core
        if core.begun is None or core.begun.bridge.stage is not Stage.SETTLED:
            return False
        if not source.contents:
            source.send(2, world.new_content)
        return (
            core.stable == core.next
            and core.needed == (world.lists[world.at],)
            and all(self._is_at(world.stores[name], core) for name in core.needed[0].stores)
            and all(self._has_all(name, core.next) for name in world.readers)
        )

    def _is_at(self, store: StoreNode, core: Sending) -> bool:
        """Whether a store has all that a source has sent, in its epoch, settled."""
        held = store.held
        is_settled = held.bridge is not None and held.bridge.stage is Stage.SETTLED
        has_all = held.end == core.next and store.is_filled() and store.is_at_rest
        return is_settled and serving(held) == core.epoch and (has_all or not store.keeps)

    def _has_all(self, name: str, end: int) -> bool:
        reader = self.world.readers[name]
        core = None if reader is None else reader.core
        is_told = core is not None and core.told is not None
        return is_told and reader is not None and reader.expected == end

    def _unfinished(self) -> str:
        world = self.world
        sources = [
            f"{one.name}: epoch {one.core.epoch}, {one.is_sending}, next {one.core.next}, stable"
            f" {one.core.stable}, {one.core.begun and one.core.begun.bridge.stage}"
            f" {[its.text() for its in one.core.needed]}, at"
            f" { {name: (fed.end, fed.stage) for name, fed in one.core.feeding.stores.items()} }"
            for one in world.sources
            if not one.is_over
        ]
        readers = {
            name: one and one.core and (one.core.next, one.core.epoch, one.core.stable)
            for name, one in world.readers.items()
        }
        wanted, lost = world.lists[world.at].text(), sorted(world.promises.lost)
        return f"without faults: {sources}, wanted {wanted}, lost {lost}, {readers}"

    def _check_end(self) -> None:
        world, promises = self.world, self.world.promises
        world.judge.check_rollbacks()
        disks = world.judge.disks()
        promises.check_stores(disks)
        ends = world.lists[world.at].stores
        for disk in disks:
            if disk.name in ends and [one for _, one in disk.log] != promises.stable:
                promises.breach(I2, f"{disk.name} has another log than was sent")
        for name, reader in world.readers.items():
            followed = promises.receivers[name]
            if reader is None or followed.owed is None:
                continue
            promises.advance(name, reader.seen)
            if followed.got != len(promises.stable):
                promises.breach(I6, f"{name} never got {followed.got}")
            for number, content in reader.seen.items():
                if promises.stable[number] != content:
                    promises.breach(I5, f"{name} was not told that {number} was in vain")
