"""What is judged beside the promises of the model: by what is really at stores, and was shown.

A source and a receiver say what they believe; a judge asks the stores.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onceq.streams.model.quorum import are_stable
from proof.streams_model.disks import VOID, Disk
from proof.streams_model.rules import I1, I2, I5, I6, I7

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceq.streams.model.quorum import StoreList
    from proof.streams_model.disks import Entry
    from proof.streams_model.promises import Promises
    from proof.streams_simulation.stores import StoreNode


class Judge:
    """What a schedule has seen. stores: those that keep messages.

    overwrites: stores give up what is over their limits.
    entries: epoch and content of each number, as it was first reported stable. acknowledged: below
    it a receiver has acknowledged all, to any store. given_up: numbers of which a source was told
    that it gave them up.
    """

    def __init__(self, promises: Promises, did: Counter[str]) -> None:
        self.promises = promises
        self.stores: Mapping[str, StoreNode] = {}
        self.overwrites = False
        self.entries: dict[int, Entry] = {}
        self.acknowledged: dict[str, int] = {}
        self.given_up: set[int] = set()
        self._did = did
        self._rolled_back: list[tuple[str, int, Entry]] = []

    # what a source is told

    def report(self, lists: tuple[StoreList, ...], log: Sequence[Entry], begin: int) -> None:
        """Judge that some numbers are reported stable: a stable set must have them now."""
        self.promises.report([content for _, content in log], begin)
        for number, entry in enumerate(log, begin):
            if self.entries.setdefault(number, entry) != entry:
                self.promises.breach(I1, f"{number} is stable as {entry}, and was so otherwise")
        having = {name: self._having(node, begin, log) for name, node in self.stores.items()}
        for number in range(begin, begin + len(log)):
            holders = {name for name, numbers in having.items() if number in numbers}
            if not are_stable(lists, holders | self.promises.lost):
                self.promises.breach(I2, f"{number} is reported, and at {sorted(holders)} only")
                return

    def succeeded(self, lists: tuple[StoreList, ...], *, epoch: int, life: int) -> None:
        """Judge that a life ends for another.

        Another was admitted to a later epoch, or the stores that heed this one are no stable set.
        """
        bridges = [node.held.bridge for node in self.stores.values()]
        if any(one is not None and one.epoch > epoch for one in bridges):
            return
        left = {
            name
            for name, node in self.stores.items()
            if node.held.promised <= epoch or node.held.life == life
        }
        if lists and are_stable(lists, left - self.promises.lost):
            self.promises.breach(I7, f"a life was fenced, and {sorted(left)} would heed it")

    def _having(self, node: StoreNode, begin: int, log: Sequence[Entry]) -> set[int]:
        """Return which of some numbers a store has as they are, or has given up since."""
        numbers = range(begin, begin + len(log))
        its = node.entries(numbers)
        return {n for n in numbers if n < node.held.begin or its.get(n) == log[n - begin]}

    def log_of(self, node: StoreNode, end: int) -> list[Entry]:
        """Return what a store has before a number. What it has trimmed is as it was reported."""
        its = node.entries(range(end))
        begin = node.held.begin
        trimmed = [self.entries.get(n, (0, VOID)) for n in range(min(begin, end))]
        return trimmed + [its[n] for n in range(begin, end) if n in its]

    def disks(self) -> list[Disk]:
        """Return what all stores have."""
        return [
            Disk(name=name, log=self.log_of(node, node.held.end))
            for name, node in self.stores.items()
        ]

    # what a store gives up

    def trimmed(self, store: str, numbers: range) -> None:
        """Judge that a store does not have some numbers any more."""
        self._did["numbers trimmed"] += len(numbers)
        if numbers.stop > len(self.promises.stable):
            self.promises.breach(I6, f"{store} gave up {numbers}, not all of which is stable")
        for receiver, followed in self.promises.receivers.items():
            if followed.owed is None:
                continue
            kept = max(followed.owed, self.acknowledged.get(receiver, 0))
            needed = range(max(kept, numbers.start), numbers.stop)
            if self.overwrites:
                self.promises.given_up.update(needed)
                self._did["numbers overwritten"] += len(needed)
            elif needed:
                self.promises.breach(I6, f"{store} gave up {needed}, which {receiver} needs")

    # what a receiver is told

    def rolled_back(self, receiver: str, seen: Mapping[int, Entry]) -> None:
        """Judge that a receiver is told that it saw some numbers in vain."""
        self._did["receivers rolled back"] += 1
        for number, entry in seen.items():
            self._rolled_back.append((receiver, number, entry))
        self.check_rollbacks()

    def check_rollbacks(self) -> None:
        """Check that no number that was seen in vain is stable as it was seen."""
        for receiver, number, entry in self._rolled_back:
            if self.entries.get(number) == entry:
                self.promises.breach(I5, f"{receiver} saw {number}, and not in vain as it was told")
