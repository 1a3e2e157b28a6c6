"""What was deregistered does not come back with a store that was down, and what was not stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.quorum import listed
from onceq.streams.model.tombstones import Positions, agreed, deregistered, joined, registered
from onceq.streams.receiver.acknowledging import Acknowledging, acknowledge
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.placing import Position, Registration, place, register
from onceq.streams.store import records
from onceq.streams.store.lifetimes import Lifetimes
from onceq.streams.store.records import Held
from onceq.streams.store.trimming import trim
from tests.streams.receiver.test_catching_up import WHO
from tests.streams.source.towns import ABC, S, Town, life

KEY = WHO.key


def test_marks_ascend_from_one_act_to_the_next() -> None:
    marks = [0]
    for _ in range(3):
        marks += [deregistered(marks[-1]), registered(deregistered(marks[-1]))]
    assert marks == [0, 1, 2, 3, 4, 5, 6]
    assert [registered(2), deregistered(3)] == [2, 3], "again changes nothing"


def known(text: str) -> dict[str, Positions]:
    """What stores know of one key: store, mark and position, as `a2:5`; without one, `a1`."""
    found: dict[str, Positions] = {}
    for word in text.split():
        mark, _, below = word[1:].partition(":")
        found[word[0]] = Positions(
            below={"k": int(below)} if below else {}, marks={"k": int(mark)} if mark != "0" else {}
        )
    return found


@pytest.mark.parametrize(
    ("stores", "below", "mark"),
    [
        ("a0:5 b0:7 c0:6", 7, 0),
        ("a1 b1 c0:9", None, 1),
        ("a1 b0:5 c0:9", 9, 0),
        ("a1 c0:9", 9, 0),
        ("a1 b1", None, 1),
        ("a1", None, 1),
        ("a2:2 b2:3 c0:9", 3, 2),
        ("a2:2 b0:3 c0:9", 2, 2),
        ("a3 b3 c2:4", None, 3),
        ("a3 b2:4 c0:9", 4, 2),
        ("a3 b1 c0:9", 9, 0),
    ],
)
def test_what_counts(stores: str, below: int | None, mark: int) -> None:
    found = agreed((ABC,), known(stores))
    assert (found.below.get("k"), found.mark("k")) == (below, mark)


def test_a_tombstone_counts_when_a_stable_set_of_every_list_has_it() -> None:
    both = (ABC, listed("b c d"))
    assert agreed(both, known("a1 b1 c0:9")).below == {"k": 9}
    assert agreed(both, known("a1 b1 c0:9 d1")).below == {}


@pytest.mark.parametrize(
    ("own", "told", "below", "mark"),
    [
        ("a0:5", "b0:7", 7, 0),
        ("a0:5", "b1", None, 1),
        ("a1", "b0:7", None, 1),
        ("a2:1", "b0:7", 1, 2),
        ("a0:7", "b2:1", 1, 2),
        ("a2:1", "b1", 1, 2),
    ],
)
def test_a_store_goes_by_the_later_act(own: str, told: str, below: int | None, mark: int) -> None:
    (its,), (other,) = known(own).values(), known(told).values()
    found = joined(its, other)
    assert (found.below.get("k"), found.mark("k")) == (below, mark)
    assert found == joined(other, its)


# stores


@pytest.fixture
def town() -> Town:
    """A stream of seven numbers, six of them stable, of which a receiver has acknowledged five."""
    made = Town()
    made.begun()
    for number in range(7):
        made.send(number, "abc", epoch=1, stable=number)
    enter(made, 5)
    return made


def found(town: Town) -> Position:
    position: Position | None = town.run(place(WHO, 1.0))
    assert position is not None
    return position


def enter(town: Town, below: int) -> Registration:
    """Register, and acknowledge."""
    registration: Registration | None = town.run(register(WHO, found(town), 1.0))
    assert registration is not None
    one = Acknowledging(WHO, registration)
    town.run(acknowledge(one, Delivering(S, 0, (ABC,), is_stable_only=True), below, 1.0))
    return registration


def deregister(town: Town, stores: str, key: str = KEY) -> None:
    for store in stores:
        answer = town.answer(store, asks.Deregister(stream=S, key=key))
        assert isinstance(answer, asks.Holding)


def held(town: Town, store: str) -> Held:
    return town.stores[store].catalogue.of(S)


def test_a_store_that_was_down_brings_nothing_back(town: Town) -> None:
    town.down = {"c"}
    deregister(town, "ab")
    town.down = set()
    assert held(town, "c").positions == {KEY: 5}
    position = found(town)
    assert (position.is_known, position.below) == (False, 0)
    begun = town.begun(life(2))
    assert begun.log.positions == {}
    assert held(town, "c").positions == {}
    assert held(town, "c").receivers == ()
    assert not found(town).is_known


def test_the_next_receiver_of_the_name_is_not_behind_what_it_never_got(town: Town) -> None:
    town.down = {"c"}
    deregister(town, "ab")
    enter(town, 2)
    town.down = set()
    assert held(town, "c").positions == {KEY: 5}
    assert found(town).below == 2
    assert town.begun(life(2)).log.positions == {KEY: 2}
    assert [held(town, store).positions for store in "abc"] == [{KEY: 2}] * 3
    assert found(town).below == 2


def test_it_registers_anew_at_the_store_that_was_down(town: Town) -> None:
    town.down = {"c"}
    deregister(town, "ab")
    town.down = set()
    registration = enter(town, 0)
    assert not any(answer.old for answer in registration.answers.values())
    assert [held(town, store).positions for store in "abc"] == [{KEY: 0}] * 3


def test_one_store_alone_does_not_forget_for_the_others(town: Town) -> None:
    town.down = {"b", "c"}
    deregister(town, "a")
    town.down = set()
    assert found(town).below == 5
    town.down = {"b"}
    assert found(town).below == 5
    town.down = set()
    assert town.begun(life(2)).log.positions == {KEY: 5}


def test_a_name_that_a_store_does_not_know_has_a_tombstone_there(town: Town) -> None:
    deregister(town, "abc", "session 77")
    assert [held(town, store).marks for store in "abc"] == [{"session 77": 1}] * 3
    deregister(town, "abc", "session 77")
    assert [held(town, store).marks for store in "abc"] == [{"session 77": 1}] * 3, "no news"
    assert found(town).below == 5


def test_nobody_waits_for_one_that_only_a_store_remembers_that_was_down(town: Town) -> None:
    town.down = {"c"}
    deregister(town, "ab")
    town.down = set()
    trimmed = town.run(trim(held(town, "a"), "a", 6))
    assert trimmed == records.Trimmed(stream=S, below=6)


def test_a_tombstone_is_forgotten_like_a_receiver(town: Town) -> None:
    deregister(town, "a")
    lifetimes = Lifetimes(10.0)
    assert lifetimes.over(held(town, "a"), 0.0) == []
    assert lifetimes.over(held(town, "a"), 10.1) == [KEY]
    gone = records.after(held(town, "a"), records.Deregistered(stream=S, key=KEY))
    assert (gone.marks, gone.positions) == ({}, {})


def test_what_a_log_has_of_before_is_read(town: Town) -> None:
    """A record of a store that knew no tombstones leaves none."""
    before = replace(held(town, "a"), marks={})
    assert records.after(before, records.Deregistered(stream=S, regid=1)).marks == {}
