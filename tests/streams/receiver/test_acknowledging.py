"""Which stores are told how far a receiver has come, and which must note it first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.acknowledging import (
    PAUSE,
    Acknowledging,
    acknowledge,
    acknowledge_all,
)
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.placing import Registration, place
from onceq.streams.source.epochs import admission
from onceq.streams.source.telling import information
from tests.streams.receiver.test_catching_up import WHO, registered
from tests.streams.source.towns import ABC, S, Town, life


@pytest.fixture
def town() -> Town:
    """A stream of seven numbers at all stores, of which six are stable."""
    made = Town()
    made.begun()
    for number in range(7):
        made.send(number, "abc", epoch=1, stable=number)
    return made


class Life:
    """A receiver that is registered."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.registration: Registration = registered(town)
        self.core = Delivering(S, self.registration.begin, (ABC,), is_stable_only=True)
        self.one = Acknowledging(WHO, self.registration)

    def tell(self, below: int) -> dict[str, Any]:
        asked: dict[str, Any] = self.town.run(acknowledge(self.one, self.core, below, 1.0))
        return asked


def positions(town: Town, stores: str = "abc") -> list[int]:
    return [town.stores[store].catalogue.of(S).positions.get(WHO.key, 0) for store in stores]


def test_every_store_is_told_once(town: Town) -> None:
    one = Life(town)
    assert one.tell(0) == {}, "nothing is new"
    assert set(one.tell(4)) == set("abc")
    assert positions(town) == [4, 4, 4]
    assert one.tell(4) == {}
    assert town.run(place(WHO, 1.0)).shown.low == 4


def test_a_store_that_does_not_know_what_is_stable_is_told_again(town: Town) -> None:
    one = Life(town)
    one.tell(7)
    assert positions(town) == [6, 6, 6], "no more than is stable there"
    town.send(7, "ab", epoch=1, stable=7)
    assert set(one.tell(7)) == set("abc")
    assert positions(town) == [7, 7, 6]
    assert set(one.tell(7)) == {"c"}


def test_a_store_that_did_not_note_the_receiver_notes_it_later(town: Town) -> None:
    town.down = {"c"}
    one = Life(town)
    town.down = set()
    asked = one.tell(3)
    assert isinstance(asked["c"], asks.Register)
    assert positions(town) == [3, 3, 3]
    assert isinstance(one.tell(5)["c"], asks.Acknowledge)
    assert positions(town) == [5, 5, 5]


def test_a_store_that_forgot_notes_it_anew(town: Town) -> None:
    one = Life(town)
    one.tell(2)
    town.wipe("c")
    begun = town.begun(life(2))
    town.answer("c", admission(life(2), begun, "c"))
    one.core.inform(information(life(2), begun, 6))
    one.tell(3)
    assert isinstance(one.tell(3)["c"], asks.Register)
    assert positions(town) == [3, 3, 3]


def test_a_store_that_does_not_answer_is_left_out_for_a_while(town: Town) -> None:
    one = Life(town)
    town.down = {"c"}
    assert set(one.tell(3)) == set("abc")
    town.down = set()
    for _ in range(PAUSE):
        assert one.tell(3) == {}
    assert set(one.tell(3)) == {"c"}
    assert positions(town) == [3, 3, 3]


def test_a_store_that_is_new_in_the_list_is_told_too(town: Town) -> None:
    one = Life(town)
    told = information(life(), Town().begun(), 0)
    one.core.told = replace(told, lists=(ABC, listed("a b d")))
    assert {store: type(ask) for store, ask in one.tell(3).items()} == {
        **dict.fromkeys("abc", asks.Acknowledge),
        "d": asks.Register,
    }


def test_at_its_end_stores_are_told_until_they_know_what_is_stable(town: Town) -> None:
    one = Life(town)
    program = acknowledge_all(one.one, one.core, 7, 1.0)
    answer: Any = None
    for _ in range(4):
        answer = town.perform(program.send(answer), "")
    assert positions(town) == [6, 6, 6]
    town.send(7, "abc", epoch=1, stable=7)
    town.run(program, answer=answer)
    assert positions(town) == [7, 7, 7]


def test_at_its_end_it_does_not_wait_for_ever(town: Town) -> None:
    one = Life(town)
    town.run(acknowledge_all(one.one, one.core, 7, 1.0))
    assert positions(town) == [6, 6, 6]
