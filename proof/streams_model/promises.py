"""What is promised, I1 to I7, and what has been seen of it in a schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.streams.model.quorum import are_stable
from proof.streams_model.disks import VOID
from proof.streams_model.rules import I1, I2, I3, I4, I5, I6

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onceq.streams.model.losses import Lost
    from onceq.streams.model.quorum import StoreList
    from proof.streams_model.disks import Disk, Entry


@dataclass(slots=True)
class Followed:
    """What all lives of a receiver have done together.

    owed: from this number on it must get everything; None until its registration was complete.
    got: everything stable below was delivered, or told as lost.
    """

    owed: int | None = None
    got: int = 0


@dataclass(slots=True)
class Promises:
    """What was reported stable, sent and delivered. broken: the first breach of each promise.

    stable: the contents of numbers 0, 1, ... as they were reported. lists: of the greatest epoch
    that was complete. lost: stores whose disk lost what it had, and that are not yet filled again.
    given_up: numbers that a store dropped though they were not acknowledged. accepted: losses;
    void: the numbers of these, each with what was stable there before.
    """

    stable: list[int] = field(default_factory=list[int])
    sent: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    broken: dict[str, str] = field(default_factory=dict[str, str])
    epoch: int = 0
    lists: tuple[StoreList, ...] = ()
    used: set[StoreList] = field(default_factory=set["StoreList"])
    lost: set[str] = field(default_factory=set[str])
    given_up: set[int] = field(default_factory=set[int])
    receivers: dict[str, Followed] = field(default_factory=dict[str, Followed])
    accepted: set[Lost] = field(default_factory=set["Lost"])
    void: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    completed: int = 0

    def breach(self, promise: str, text: str) -> None:
        """Note that a promise was broken."""
        self.broken.setdefault(promise, text)

    def send(self, number: int, entry: Entry) -> None:
        """Note that a source sends a number."""
        epoch, content = entry
        if self.sent.setdefault((epoch, number), content) != content:
            self.breach(I3, f"({epoch}, {number}) is sent with another content")

    def report(self, log: Sequence[int], begin: int = 0) -> None:
        """Note that a source was told that this log is stable. begin: the number of its first."""
        for number, content in enumerate(log, begin):
            if number < len(self.stable):
                if self.stable[number] != content:
                    self.breach(I1, f"number {number} is stable with another content")
            elif number == len(self.stable):
                self.stable.append(content)
            else:
                self.breach(I4, f"number {number} is stable, and those before it are not known")

    def accept(self, lost: Lost) -> bool:
        """Note that a person has accepted a loss; return whether that is new."""
        if lost in self.accepted:
            return False
        self.accepted.add(lost)
        for number in range(lost.first, lost.below):
            self.void.setdefault(number, {VOID})
        for number, content in enumerate(self.stable[lost.first :], lost.first):
            self.void.setdefault(number, {VOID}).add(content)
        del self.stable[lost.first :]  # void is stable there from now on
        for followed in self.receivers.values():
            followed.owed = None  # it may be registered with none of the stores that are left
        return True

    def complete(self, epoch: int, lists: tuple[StoreList, ...], log: Sequence[int] | None) -> None:
        """Note that a recovery is complete. log: it begins with; None: a later life overtook it."""
        self.completed += 1
        if log is not None and list(log[: len(self.stable)]) != self.stable:
            self.breach(I4, f"epoch {epoch} begins without all that is stable")
        self.govern(epoch, lists)

    def govern(self, epoch: int, lists: tuple[StoreList, ...]) -> None:
        """Note by which lists a source now counts."""
        if epoch >= self.epoch:
            self.epoch, self.lists = epoch, lists

    def may_lose(self, store: str) -> bool:
        """Whether G11 still holds if this store loses its disk: no stable set is lost."""
        lost = self.lost | {store}
        return not any(one.is_stable(lost) for one in self.used)

    def check_stores(self, disks: Iterable[Disk]) -> None:
        """Check that a stable set has each stable number, but for the stores that lost it."""
        having = [(one.name, one) for one in disks]
        for number, content in enumerate(self.stable):
            if number in self.void:
                continue
            holders = {
                name
                for name, one in having
                if name in self.lost or (number < len(one.log) and one.log[number][1] == content)
            }
            if not are_stable(self.lists, holders):
                self.breach(I2, f"number {number} is at {sorted(holders)} only")
                return

    def deliver(self, receiver: str, number: int, content: int, *, is_stable_only: bool) -> None:
        """Note that a life of a receiver saw a number."""
        is_stable = number < len(self.stable)
        was_lost = content in self.void.get(number, ())
        if is_stable_only and not was_lost and (not is_stable or self.stable[number] != content):
            self.breach(I5, f"{receiver} was shown {number}, which is not stable so")

    def advance(self, receiver: str, seen: Mapping[int, int]) -> None:
        """Note what a life of a receiver has seen, now that more may be stable."""
        followed = self.receivers[receiver]
        stable = self.stable
        while followed.got < len(stable) and seen.get(followed.got) == stable[followed.got]:
            followed.got += 1

    def register(self, receiver: str) -> None:
        """Note that a registration is complete: from here on nothing may be missed."""
        followed = self.receivers[receiver]
        if followed.owed is None:
            followed.owed = followed.got = len(self.stable)

    def begin_life(self, receiver: str, low: int) -> None:
        """Note where a life of a receiver begins."""
        followed = self.receivers[receiver]
        if followed.owed is not None and low > followed.got:
            self.breach(I6, f"{receiver} begins at {low} and has everything below {followed.got}")

    def lose(self, receiver: str, first: int, below: int) -> None:
        """Note that a receiver was told that it does not get some numbers."""
        followed = self.receivers[receiver]
        if followed.owed is not None:
            for number in range(max(first, followed.got), below):
                if number not in self.given_up:
                    self.breach(I6, f"{number} was trimmed before {receiver} had it")
        if first <= followed.got < below:
            followed.got = below
