"""A schedule: stores, sources and receivers over wires, and what befalls them, all by one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from onceq.streams.model.choice import Stage
from onceq.streams.model.quorum import Intergroup, Intragroup, StoreList, listed
from onceq.streams.store.catalogue import serving
from onceq.streams.store.limits import Limits, WhenFull
from proof.streams_model.promises import Followed, Promises
from proof.streams_model.rules import I2, I5, I6, I7
from proof.streams_simulation.judging import Judge
from proof.streams_simulation.net import Net
from proof.streams_simulation.readers import ReceiverNode
from proof.streams_simulation.senders import SourceNode
from proof.streams_simulation.stores import StoreNode

if TYPE_CHECKING:
    from onceq.streams.source.epochs import Begun
    from onceq.streams.source.sending import Sending

STORES = "ABCDE"
STEPS = 1_200
QUIET_STEPS = 20_000
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
SOURCES_MAX = 3
NUMBERS_MAX = 60


class World:
    """One schedule. `run` goes through it; `promises.broken` says what was broken."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.promises = Promises()
        self.did: Counter[str] = Counter()
        self.net = Net(self.chance)
        self.lists = self.chance.choices(LISTS, WEIGHTS)[0]
        self.at = 0
        self.promises.used = set(self.lists)
        self.stores: dict[str, StoreNode] = {}
        self.judge = Judge(self.promises, self.stores, self.did)
        may_keep = self._limits()
        for name in STORES:
            self.stores[name] = StoreNode(
                self.net,
                name,
                may_keep=may_keep,
                filled=self._filled,
                trimmed=self.judge.trimmed,
            )
        self.net.stores = self.stores
        for store in self.stores.values():
            store.start()
        self.sources: list[SourceNode] = []
        self.readers: dict[str, ReceiverNode | None] = {"stable": None, "live": None}
        self.promises.receivers = {name: Followed() for name in self.readers}
        self._contents = 0
        self._settings()

    def _limits(self) -> Limits:
        """Draw how much a store may keep: in half of the schedules, everything."""
        size = self.chance.choice((None, None, 300, 800))
        self.judge.overwrites = size is not None and self.chance.random() < 0.3
        full = WhenFull.OVERWRITE if self.judge.overwrites else WhenFull.BLOCK
        return Limits(size_bytes=size, when_full=full)

    def _settings(self) -> None:
        """Draw how likely each misfortune is in this schedule."""
        draw = self.chance.random
        self.net.lost = draw() * 0.05 * (draw() < 0.6)
        self.net.doubled = draw() * 0.05 * (draw() < 0.6)
        self.net.lingering = draw() * 0.8 * (draw() < 0.5)
        self.moves = 0.5 + draw() * 0.4
        self.misfortunes: list[tuple[Callable[[], None], float]] = [
            (self._kill_store, draw() * 0.010),
            (self._start_store, 0.02),
            (self._wipe, draw() * 0.008 * (draw() < 0.7)),
            (self._kill_source, draw() * 0.008),
            (self._start_source, draw() * 0.010),
            (self._cut, draw() * 0.010),
            (self._part, draw() * 0.010),
            (self._join_again, 0.02),
            (self._kill_reader, draw() * 0.008),
            (self._change_list, draw() * 0.010 * (draw() < 0.6)),
            (self._give_up, draw() * 0.008 * (draw() < 0.4)),
        ]
        self.sends = 0.05 + draw() * 0.1
        self.acknowledges = draw() * 0.08
        self.numbers_max = NUMBERS_MAX

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
            for store in sorted(begun.ends)
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

    # what befalls them

    def _kill_store(self) -> None:
        store = self.stores[self.chance.choice(STORES)]
        if store.is_up:
            store.kill()
            self.did["stores killed"] += 1

    def _start_store(self) -> None:
        for store in self.stores.values():
            if not store.is_up:
                store.start()
                return

    def _wipe(self) -> None:
        store = self.stores[self.chance.choice(STORES)]
        if store.held.bridge is not None and self.promises.may_lose(store.name):
            if store.is_up:
                store.kill()
            store.wipe()
            store.start()
            self.promises.lost.add(store.name)
            self.did["stores wiped"] += 1

    def _kill_source(self) -> None:
        if self.sources:
            self.sources.pop(self.chance.randrange(len(self.sources))).kill()
            self.did["sources killed"] += 1

    def _start_source(self) -> None:
        self.sources = [one for one in self.sources if not one.is_over]
        if len(self.sources) < SOURCES_MAX:
            self.sources.append(SourceNode(self, self.lists[self.at]))

    def _cut(self) -> None:
        wires = [one for one in self.net.wires if one.is_open]
        if wires:
            self.net.cut(self.chance.choice(wires), "the network")
            self.did["wires cut"] += 1

    def _part(self) -> None:
        if self.net.wires:
            wire = self.chance.choice(self.net.wires)
            self.net.apart.add((wire.caller.name, wire.store.name))
            self.did["partitions"] += 1

    def _join_again(self) -> None:
        if self.net.apart:
            self.net.apart.discard(self.chance.choice(sorted(self.net.apart)))

    def _kill_reader(self) -> None:
        reader = self.readers[self.chance.choice(sorted(self.readers))]
        if reader is not None and not reader.is_over:
            reader.kill()
            self.did["receivers killed"] += 1

    def _change_list(self) -> None:
        if self.promises.lists == (self.lists[self.at],):
            at = self.at + self.chance.choice((-1, 1))
            self.at = max(0, min(len(self.lists) - 1, at))
            for source in self.sources:
                source.want(self.lists[self.at])
            self.did["lists changed"] += 1

    def _give_up(self) -> None:
        sending = [one for one in self.sources if one.is_sending]
        for source in sending[:1]:
            if source.core.stable < source.core.next:
                source.give_up(self.chance.randrange(source.core.stable, source.core.next))
                self.did["numbers given up"] += 1

    # what they do

    def _step(self) -> None:
        for befall, likely in self.misfortunes:
            if self.chance.random() < likely:
                befall()
        self._act()

    def _act(self) -> None:
        chance = self.chance
        if not any(not one.is_over for one in self.sources):
            self._start_source()
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
        if source.core.next < self.numbers_max:
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
        for _ in range(STEPS):
            self._step()
            if self.promises.broken:
                return self
        self.promises.check_stores(self.judge.disks())
        if not self.promises.broken:
            self._calm()
        self._check_links()
        return self

    def _check_links(self) -> None:
        for store in self.stores.values():
            if store.refused:
                self.promises.breach(I7, f"{store.name} refused {store.refused[0]}")

    def _calm(self) -> None:
        """End all faults: what is then not stable and delivered in time breaks I7."""
        self.net.lost = self.net.doubled = 0.0
        self.net.apart.clear()
        self.moves, self.numbers_max, self.acknowledges = 0.8, 0, 0.1
        for source in self.sources:
            source.kill()
        for store in self.stores.values():
            if not store.is_up:
                store.start()
        self._endure()
        for step in range(QUIET_STEPS):
            self._act()
            if self.promises.broken:
                return
            if step % 20 == 0 and self._is_done():
                self._check_end()
                return
        self.promises.breach(I7, self._unfinished())

    def _endure(self) -> None:
        """With one store down, and no other fault, a source sends, whatever list it wants."""
        down = self._to_be_down()
        if down is None:
            return
        down.kill()
        for _ in range(QUIET_STEPS // 2):
            self._act()
            if self.promises.broken:
                return
            if self._goes_on():
                break
        else:
            self.promises.breach(I7, f"with {down.name} down, {self._unfinished()}")
        self.did["sources that sent with a store down"] += 1
        down.start()

    def _to_be_down(self) -> StoreNode | None:
        """Return a store without which the others suffice, if one of the list that is wanted."""
        lists, chance = self.promises.lists, self.chance
        if self.promises.lost or len(lists) != 1:
            return None
        bridges = [self.stores[name].held.bridge for name in lists[0].stores]
        if any(one is None or (one.stage, one.lists) != (Stage.SETTLED, lists) for one in bridges):
            return None
        if lists[0] == self.lists[self.at] and chance.random() < 0.7:
            self.at = chance.choice([max(0, self.at - 1), min(len(self.lists) - 1, self.at + 1)])
        left = {name: lists[0].stores - {name} for name in STORES}
        spare = [one for one in STORES if lists[0].is_stable(left[one])]
        spare = [one for one in spare if lists[0].recovers(left[one])]
        wanted = [one for one in spare if one in self.lists[self.at].stores]
        return self.stores[chance.choice(wanted or spare)] if spare else None

    def _goes_on(self) -> bool:
        """Whether a source has sent something since all faults ended, and it is stable."""
        source = next((one for one in self.sources if one.is_sending), None)
        if source is None:
            return False
        if not source.contents:
            source.send(2, self.new_content)
        return bool(source.contents) and source.core.stable == source.core.next

    def _is_done(self) -> bool:
        """Whether a source sends, all that it has is stable at all stores, and all is delivered."""
        source = next((one for one in self.sources if one.is_sending), None)
        if source is None:
            return False
        core = source.core
        if core.begun is None or core.begun.bridge.stage is not Stage.SETTLED:
            return False
        if not source.contents:
            source.send(2, self.new_content)
        return (
            core.stable == core.next
            and core.needed == (self.lists[self.at],)
            and all(self._is_at(self.stores[name], core) for name in core.needed[0].stores)
            and all(self._has_all(name, core.next) for name in self.readers)
        )

    def _is_at(self, store: StoreNode, core: Sending) -> bool:
        """Whether a store has all that a source has sent, in its epoch, settled."""
        held = store.held
        is_settled = held.bridge is not None and held.bridge.stage is Stage.SETTLED
        return is_settled and (serving(held), held.end) == (core.epoch, core.next)

    def _has_all(self, name: str, end: int) -> bool:
        reader = self.readers[name]
        core = None if reader is None else reader.core
        is_told = core is not None and core.told is not None
        return is_told and reader is not None and reader.expected == end

    def _unfinished(self) -> str:
        sources = [
            f"{one.name}: epoch {one.core.epoch}, {one.is_sending}, next {one.core.next}, stable"
            f" {one.core.stable}, {one.core.begun and one.core.begun.bridge.stage}"
            f" {[its.text() for its in one.core.needed]}, at"
            f" { {name: (fed.end, fed.stage) for name, fed in one.core.feeding.stores.items()} }"
            for one in self.sources
            if not one.is_over
        ]
        readers = {
            name: one and one.core and (one.core.next, one.core.epoch, one.core.stable)
            for name, one in self.readers.items()
        }
        wanted, lost = self.lists[self.at].text(), sorted(self.promises.lost)
        return f"without faults: {sources}, wanted {wanted}, lost {lost}, {readers}"

    def _check_end(self) -> None:
        self.judge.check_rollbacks()
        disks = self.judge.disks()
        self.promises.check_stores(disks)
        ends = self.lists[self.at].stores
        for disk in disks:
            if disk.name in ends and [one for _, one in disk.log] != self.promises.stable:
                self.promises.breach(I2, f"{disk.name} has another log than was sent")
        for name, reader in self.readers.items():
            followed = self.promises.receivers[name]
            if reader is None or followed.owed is None:
                continue
            self.promises.advance(name, reader.seen)
            if followed.got != len(self.promises.stable):
                self.promises.breach(I6, f"{name} never got {followed.got}")
            for number, content in reader.seen.items():
                if self.promises.stable[number] != content:
                    self.promises.breach(I5, f"{name} was not told that {number} was in vain")
