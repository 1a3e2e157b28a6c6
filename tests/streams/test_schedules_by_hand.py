"""Schedules by hand, too rare to be found among seeds: stores that forget, and what is lost.

A store forgets what it promised while several lives of a source go on: one disk is lost, so that
everything stable must stay. And a receiver hears of a loss by stores that are behind. Each shows
also that it would be noticed if the rule were left out that it is for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import pytest

from onceq.streams.model import choice
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import StoreList, listed
from proof.streams_model import receivers, sources
from proof.streams_model.receivers import Reader
from proof.streams_model.rules import VARIANT_BY_NAME, Rules
from proof.streams_model.sources import Sender
from proof.streams_model.world import World

T = TypeVar("T")
Life = tuple[Sender, Generator[None, None, bool]]


class Chosen(random.Random):
    """What happens is what the schedule says. pick: the store that comes next; None: in turn."""

    pick: str | None = None
    later: int = 0
    turn: int = 0

    def random(self) -> float:
        return 0.99

    def randrange(self, *_: Any, **__: Any) -> int:
        return self.later

    def randint(self, a: int, b: int) -> int:
        return max(a, b)

    def shuffle(self, x: Any) -> None:
        pass

    def choice(self, seq: Any) -> Any:
        if self.pick in seq:
            return self.pick
        self.turn += 1
        return seq[self.turn % len(seq)]


class Schedule:
    """A world in which nothing happens by chance."""

    def __init__(self, text: str, rules: Rules | None = None) -> None:
        self.world = World(0, rules)
        self.chance = Chosen()
        self.world.chance = self.chance
        self.own = listed(text)
        self.world.lists = (self.own,)
        self.world.lost = self.world.hurry = self.world.gives_up = self.world.sends = 0.0
        self.world.from_source, self.world.burst, self.world.looks = 0.0, 1, 1
        self.world.sleeps = self.world.acknowledges = 0.0
        self.world.promises.used = {self.own}
        self.disks = self.world.disks
        self.lives = 0

    def life(self, wanted: StoreList | None = None) -> Life:
        self.lives += 1
        sender = Sender(world=self.world, life=self.lives, own=self.own, wanted=wanted)
        return sender, sender.run()

    def looked(self, life: Life, later: int = 0) -> None:
        """Let a life look; `later` is added to its epoch."""
        self.chance.later = later
        for _ in range(len(self.own.stores) + 1):
            next(life[1])
        self.chance.later = 0

    def until(self, life: Life, reached: Callable[[Sender], bool]) -> bool:
        """Let a life go on until something is so; return False if it ended before."""
        for _ in range(200):
            if reached(life[0]):
                return True
            if next(life[1], self) is self:
                return reached(life[0])
        raise AssertionError("it goes on for ever")

    def completed(self, life: Life) -> bool:
        return self.until(life, lambda sender: sender.is_sending)

    def begun(self) -> Life:
        """Begin a life that completes its recovery."""
        life = self.life()
        assert self.completed(life)
        return life

    def send(self, life: Life, stores: str, *, new: bool = True) -> None:
        """Let a life send a new number to some stores, each until it has everything."""
        self.world.sends = 1.0 if new else 0.0
        for store in stores:
            self.chance.pick = store
            for _ in range(4):
                next(life[1])
                self.world.sends = 0.0
        self.chance.pick = None

    def down(self, stores: str) -> None:
        for store, disk in self.disks.items():
            disk.up = store not in stores

    def first(self) -> None:
        """Create the stream: number 0 is at all stores."""
        self.send(self.begun(), "".join(sorted(self.own.stores)))
        assert len(self.world.promises.stable) == 1

    def end(self) -> None:
        """Nothing was broken, and a further life finds everything that is stable."""
        self.down("")
        assert self.begun()[0].base >= len(self.world.promises.stable)
        assert not self.world.promises.broken


def filled_by_a_former_life() -> Schedule:
    """A life that is long succeeded gets a promise of a store that has forgotten a greater one."""
    it = Schedule("A B C")
    it.first()
    former = it.life()
    it.looked(former)
    it.until(former, lambda sender: it.disks["B"].life == sender.life)
    successor = it.begun()
    it.send(successor, "BC")
    assert len(it.world.promises.stable) == 2
    it.disks["C"].wipe()
    it.until(former, lambda _: False)
    it.down("B")
    it.until(it.life(), lambda sender: sender.is_sending)
    return it


def promised_before_it_forgot() -> Schedule:
    """A life counts what a store promised that has forgotten it, and serves a lesser epoch."""
    it = Schedule("A B C")
    it.first()
    lesser, greater = it.life(), it.life()
    it.looked(lesser)
    it.looked(greater, later=1)
    it.until(greater, lambda sender: it.disks["A"].life == sender.life)
    it.disks["A"].wipe()
    assert it.completed(lesser)
    it.send(lesser, "AC")
    assert len(it.world.promises.stable) == 2
    it.down("C")
    it.until(greater, lambda sender: bool(sender.ends))
    it.down("")
    assert it.completed(greater)
    return it


def promised_by_too_few() -> Schedule:
    """A recover set promised, one store of it forgets, and another recover set knows nothing."""
    it = Schedule("A B C D")
    it.first()
    lesser, greater = it.life(), it.life()
    it.looked(lesser)
    it.looked(greater, later=1)
    it.until(greater, lambda sender: it.disks["B"].life == sender.life)
    it.disks["A"].wipe()
    it.down("B")
    assert it.completed(lesser)
    it.send(lesser, "ACD")
    assert len(it.world.promises.stable) == 2
    it.down("CD")
    it.until(greater, lambda sender: bool(sender.ends))
    it.down("")
    it.until(greater, lambda sender: sender.is_sending)
    return it


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "may_fill": filled_by_a_former_life,
    "outdated": promised_before_it_forgot,
    "are_stable": promised_by_too_few,
}


def _nothing(*_: Any) -> set[str]:
    return set()


def _always(*_: Any) -> bool:
    return True


@pytest.mark.parametrize("rule", SCHEDULES)
def test_a_store_that_forgot_costs_nothing_that_is_stable(rule: str) -> None:
    it = SCHEDULES[rule]()
    it.end()


@pytest.mark.parametrize("rule", SCHEDULES)
def test_without_the_rule_something_stable_is_lost(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = choice if rule == "are_stable" else sources
    monkeypatch.setattr(module, rule, _nothing if rule == "outdated" else _always)
    it = SCHEDULES[rule]()
    assert "I4" in it.world.promises.broken


def _stable_by_the_new_list(rules: Rules) -> Schedule:
    """A change of lists begins, and a recovery by the old list alone goes on without it."""
    it = Schedule("A B C", rules)
    it.first()
    it.down("B")
    changing = it.life(listed("A B D"))
    assert it.completed(changing)
    it.send(changing, "AD")
    it.down("AD")
    assert it.completed(it.life())
    return it


def test_while_a_change_is_joint_the_new_list_does_not_make_stable() -> None:
    it = _stable_by_the_new_list(Rules())
    assert len(it.world.promises.stable) == 1
    it.end()


def test_a_number_that_is_stable_by_the_new_list_alone_is_lost() -> None:
    it = _stable_by_the_new_list(VARIANT_BY_NAME["both-lists-stable"].rules)
    assert len(it.world.promises.stable) == 2
    assert "I4" in it.world.promises.broken


def _lost_by_old_information() -> tuple[Schedule, Reader]:
    """A receiver is told of a loss by stores that are behind, then hears of the epoch between."""
    it = Schedule("A B C")
    it.send(it.begun(), "ABC", new=False)
    reader, reading = _registered(it)
    life = it.begun()
    it.send(life, "AB")
    it.world.promises.given_up.add(0)
    it.disks["A"].trim(1)
    it.disks["B"].wipe()
    life = it.begun()
    it.chance.pick = "B"
    it.until(life, lambda _: it.disks["B"].admitted > 0)
    _read(it, reading, "CB", lambda: reader.next == 1)
    _read(it, reading, "A", lambda: reader.told is not None and reader.told.epoch > 1)
    return it, reader


def _registered(it: Schedule) -> tuple[Reader, Generator[None, None, None]]:
    """Return a receiver of what is stable, from the first number on, that is registered."""
    reader = Reader(
        world=it.world,
        name="stable",
        is_stable_only=True,
        from_newest=False,
        rule=Consensus.MAJORITY,
    )
    reading = reader.run()
    followed = it.world.promises.receivers["stable"]
    _read(it, reading, (), lambda: followed.owed is not None)
    return reader, reading


def _read(
    it: Schedule,
    reading: Generator[None, None, None],
    stores: Sequence[str],
    so: Callable[[], bool],
) -> None:
    for turn in range(60):
        if so() or it.world.promises.broken:
            break
        it.chance.pick = stores[turn % len(stores)] if stores else None
        next(reading)
    it.chance.pick = None


def test_what_was_told_as_lost_was_not_seen_in_vain() -> None:
    it, reader = _lost_by_old_information()
    assert not it.world.promises.broken
    assert it.world.did["losses told to receivers"] == 2, "it went back, and was told again"
    assert it.world.did["receivers rolled back"] == 0
    assert (reader.losses, reader.next) == ([(0, 1)], 1)


def test_a_loss_that_counts_as_seen_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "in_vain", lambda first, end, _: (first, end))
    it, _ = _lost_by_old_information()
    assert "was told of (0, 1)" in it.world.promises.broken["I5"]


def _settled_since() -> tuple[Schedule, Reader]:
    """A receiver hears of a change of lists, which settles; then a number is given up for it.

    A and B are in the old list only, and hear no more of it: they will never say that it is lost.
    """
    it = Schedule("A B C; D E")
    it.send(it.begun(), "DE")
    reader, reading = _registered(it)
    life = it.life(listed("D E"))
    assert it.completed(life)
    it.send(life, "C", new=False)
    it.world.promises.given_up.add(0)
    for store in "CDE":
        it.disks[store].trim(1)
    _read(it, reading, "C", lambda: reader.told is not None)
    it.send(life, "DED")
    assert life[0].bridge.stage is choice.Stage.SETTLED
    _read(it, reading, "ABCDE", lambda: reader.next == 2)
    return it, reader


def test_a_receiver_goes_by_the_lists_of_the_last_stage() -> None:
    it, reader = _settled_since()
    assert not it.world.promises.broken
    assert reader.told is not None
    assert reader.told.governs == (listed("D E"),)
    assert (reader.losses, list(reader.seen), reader.next) == ([(0, 1)], [1], 2)


def test_a_receiver_that_keeps_the_lists_of_a_former_stage_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receivers, "replaces", lambda told, known: told[0] > known[0])
    it, reader = _settled_since()
    assert reader.gone.keys() == {"C", "D", "E"}
    assert (reader.losses, reader.next) == ([], 0)
    assert len(it.world.promises.stable) == 2
