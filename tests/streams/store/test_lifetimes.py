"""Receivers that never come back are forgotten, and those that are there are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.store import acts, records
from onceq.streams.store import serving as servings
from onceq.streams.store.limits import STATE_LIFETIME_S, Limits
from onceq.streams.store.listing import listed
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.records import Deregistered, Held, after
from tests.streams.store.served import OTHER, SOURCE, Served
from tests.streams.store.test_disk_store import S, data_of

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400.0
KEY = "session b5"


class Town:
    """A store in memory that serves, and a clock."""

    def __init__(self, lifetime_s: float | None = STATE_LIFETIME_S) -> None:
        self.now_s = 50.0
        may_keep = Limits(state_lifetime_s=lifetime_s)
        self.store = MemoryStore(may_keep=may_keep, clock=lambda: self.now_s)
        self.served = Served(self.store)
        self.served.begin()
        self.served.send(*(data_of(1, n, stable=n) for n in range(5)))
        self.served.heard()

    def register(self, link: int) -> None:
        ask = asks.Register(stream=S, epoch=1, topic="bars", session=0xB5, below=2)
        assert isinstance(self.served.told(ask, link), asks.Registered)

    def wait(self, days: float) -> None:
        self.now_s += days * DAY_S
        for _ in range(servings.FORGET_TICKS):
            self.served.step(acts.Ticked())

    @property
    def held(self) -> Held:
        return self.store.catalogue.of(S)

    @property
    def keys(self) -> list[str]:
        return list(self.held.positions)


def test_one_that_never_comes_back_is_forgotten() -> None:
    town = Town()
    town.register(OTHER)
    town.served.step(acts.Gone(link=OTHER))
    town.wait(6.9)
    assert town.keys == [KEY]
    town.wait(0.2)
    assert (town.keys, town.held.receivers, town.store.expired[S]) == ([], (), 1)


def test_one_that_is_connected_is_not_however_little_it_says() -> None:
    town = Town()
    town.register(OTHER)
    for _ in range(3):
        town.wait(30)
    assert town.keys == [KEY]
    town.served.step(acts.Gone(link=OTHER))
    town.wait(6.9)
    assert town.keys == [KEY], "it was there until now"
    town.wait(7.1)
    assert town.keys == []


def acknowledges(town: Town) -> None:
    regid = town.held.receivers[0].regid
    ask = asks.Acknowledge(stream=S, regid=regid, below=3, session=0xB5)
    assert isinstance(town.served.told(ask, SOURCE), asks.Holding)


def registers(town: Town) -> None:
    town.register(SOURCE)


@pytest.mark.parametrize("says", [acknowledges, registers])
def test_whatever_it_says_is_heard(says: Callable[[Town], None]) -> None:
    town = Town()
    town.register(OTHER)
    town.served.step(acts.Gone(link=OTHER))
    town.wait(6)
    says(town)
    town.served.step(acts.Gone(link=SOURCE))
    town.wait(6)
    assert town.keys == [KEY]


def test_one_of_which_others_told_is_forgotten_too() -> None:
    town = Town()
    town.store.catalogue._keep(replace(town.held, positions={"session 9": 1}))
    town.wait(0)
    town.wait(7.1)
    assert town.keys == []


def test_without_a_lifetime_none_is_forgotten() -> None:
    town = Town(None)
    town.register(OTHER)
    town.served.step(acts.Gone(link=OTHER))
    town.wait(10_000)
    assert town.keys == [KEY]


def test_a_receiver_is_deregistered_by_its_name_wherever_it_is_known_from() -> None:
    town = Town()
    town.register(OTHER)
    town.store.catalogue._keep(
        replace(town.held, positions={**town.held.positions, "session 9": 1})
    )
    shown = {one.key: (one.regid, one.below) for one in listed(town.held).receivers}
    assert shown == {KEY: (2, 2), "session 9": (0, 1)}
    for key, left in (("session 9", [KEY]), (KEY, []), ("session 9", [])):
        answer = town.served.told(asks.Deregister(stream=S, key=key))
        assert isinstance(answer, asks.Holding)
        assert town.keys == left
    assert town.held.receivers == ()


def test_what_is_known_of_others_stays() -> None:
    ann = records.Receiver(regid=1, topic="t", session=0)
    held = Held(stream=S, local=1, positions={"regid 1": 3, "session 9": 4}, receivers=(ann,))
    assert after(held, Deregistered(stream=S, regid=2)) == held
    assert after(held, Deregistered(stream=S, regid=1)).positions == {"session 9": 4}
    assert after(held, Deregistered(stream=S, key="session 9")).receivers == (ann,)
