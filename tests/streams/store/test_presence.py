"""A store hears who uses a registration, and refuses others as long as it does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from onceq.streams.model import asks
from onceq.streams.model.uses import InUse, Leave
from onceq.streams.store import acts
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.records import key_of
from tests.streams.store.served import OTHER, SOURCE, Served, fence
from tests.streams.store.test_disk_store import S, admission, data_of

FIRST, SECOND = 11, 12
"""Lives of a receiver."""
ONE, TWO = 21, 22
"""Their links."""
SESSION = 5
ACTIVITY_MS = 1_000


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def served(clock: Clock) -> Served:
    made = Served(MemoryStore(clock=clock))
    made.begin()
    for link in (ONE, TWO):
        made.step(acts.Opened(link=link))
    return made


def register(life: int, session: int = SESSION, **given: Any) -> asks.Register:
    given = {"activity_ms": ACTIVITY_MS, "life": life, **given}
    return asks.Register(stream=S, epoch=1, topic="bars", session=session, **given)


def acknowledge(life: int, regid: int = 2, **given: Any) -> asks.Acknowledge:
    given = {"session": SESSION, "life": life, "activity_ms": ACTIVITY_MS, **given}
    return asks.Acknowledge(stream=S, regid=regid, below=0, **given)


def test_a_second_life_of_a_receiver_is_refused(served: Served) -> None:
    assert isinstance(served.told(register(FIRST), ONE), asks.Registered)
    assert served.told(register(SECOND), TWO) == InUse(life=FIRST)
    assert isinstance(served.told(acknowledge(FIRST), ONE), asks.Holding)
    assert isinstance(served.told(acknowledge(FIRST), ONE), asks.Holding)
    assert served.told(register(SECOND), TWO) == InUse(life=FIRST, heard=2)
    assert served.told(acknowledge(SECOND), TWO) == InUse(life=FIRST, heard=2)
    assert isinstance(served.told(register(SECOND, session=6), TWO), asks.Registered)


def test_so_is_one_that_chose_its_id(served: Served) -> None:
    chosen: dict[str, Any] = {"session": 0, "regid": 77}
    assert isinstance(served.told(register(FIRST, **chosen), ONE), asks.Registered)
    assert served.told(register(SECOND, **chosen), TWO) == InUse(life=FIRST)
    served.step(acts.Gone(link=ONE))
    assert isinstance(served.told(register(SECOND, **chosen), TWO), asks.Registered)


def test_those_without_a_name_are_never_one(served: Served) -> None:
    one = served.told(register(FIRST, session=0), ONE)
    two = served.told(register(SECOND, session=0), TWO)
    assert one.regid != two.regid


def test_one_whose_link_is_closed_is_gone_at_once(served: Served) -> None:
    served.told(register(FIRST), ONE)
    served.step(acts.Gone(link=ONE))
    assert isinstance(served.told(register(SECOND), TWO), asks.Registered)


def test_one_that_has_a_new_link_is_not_gone_with_the_old_one(served: Served) -> None:
    served.told(register(FIRST), ONE)
    assert isinstance(served.told(acknowledge(FIRST), OTHER), asks.Holding)
    served.step(acts.Gone(link=ONE))
    assert served.told(register(SECOND), TWO) == InUse(life=FIRST, heard=1)


def test_one_that_is_silent_is_replaced_and_then_refused(served: Served, clock: Clock) -> None:
    served.told(register(FIRST), ONE)
    clock.now_s += ACTIVITY_MS / 1_000
    assert isinstance(served.told(register(SECOND), TWO), InUse)
    clock.now_s += 0.01
    assert isinstance(served.told(register(SECOND), TWO), asks.Registered)
    assert served.told(acknowledge(FIRST), ONE) == InUse(life=SECOND), "it was frozen, and thaws"


def test_one_that_is_heard_in_time_stays(served: Served, clock: Clock) -> None:
    served.told(register(FIRST), ONE)
    for _ in range(9):
        clock.now_s += 0.9 * ACTIVITY_MS / 1_000
        assert isinstance(served.told(register(SECOND), TWO), InUse)
        served.told(acknowledge(FIRST), ONE)


def test_one_that_is_heard_between_two_epochs_stays(served: Served, clock: Clock) -> None:
    served.told(register(FIRST), ONE)
    assert isinstance(served.told(fence(2, 9), OTHER), asks.Found)
    for _ in range(3):
        clock.now_s += 0.9 * ACTIVITY_MS / 1_000
        assert served.told(acknowledge(FIRST), ONE) == asks.NotAdmitted()
    assert isinstance(served.told(admission(2, 9, firsts=((1, 0),)), OTHER), asks.Holding)
    assert served.told(register(SECOND), TWO) == InUse(life=FIRST)


def test_one_that_wants_no_time_refuses_nobody(served: Served) -> None:
    served.told(register(FIRST, activity_ms=0), ONE)
    assert isinstance(served.told(register(SECOND), TWO), asks.Registered)


def test_one_that_says_no_life_neither_refuses_nor_is_refused(served: Served) -> None:
    served.told(register(0), ONE)
    assert isinstance(served.told(register(SECOND), TWO), asks.Registered)
    assert isinstance(served.told(register(0), ONE), asks.Registered)
    assert served.told(register(FIRST), ONE) == InUse(life=SECOND)


def test_one_that_leaves_is_gone_and_no_other_is(served: Served) -> None:
    served.told(register(FIRST), ONE)
    leave = Leave(stream=S, key=key_of(0, SESSION), life=SECOND)
    assert isinstance(served.told(leave, TWO), asks.Holding)
    assert isinstance(served.told(register(SECOND), TWO), InUse)
    served.told(Leave(stream=S, key=leave.key, life=FIRST), ONE)
    assert isinstance(served.told(register(SECOND), TWO), asks.Registered)


def test_what_is_acknowledged_again_takes_no_room(served: Served) -> None:
    served.told(register(FIRST), ONE)
    served.ask(acknowledge(FIRST), ONE)
    end = served.store.end
    served.ask(acknowledge(FIRST), ONE)
    assert served.store.end == end


# sources

LOOK = asks.Look(topic="bars", session=9)


def source(served: Served, life: int, epoch: int, link: int, activity_ms: int = 1_000) -> None:
    assert isinstance(served.told(fence(epoch, life), link), asks.Found)
    ask = admission(epoch, life, firsts=((1, 0),) if epoch > 1 else ())
    admitted = served.told(msgspec.structs.replace(ask, activity_ms=activity_ms), link)
    assert isinstance(admitted, asks.Holding), admitted


def test_who_looks_is_told_of_a_source_that_is_heard(clock: Clock) -> None:
    served = Served(MemoryStore(clock=clock))
    assert served.told(LOOK, OTHER).used is None
    source(served, life=7, epoch=1, link=SOURCE)
    assert served.told(LOOK, OTHER).used == InUse(life=7)
    served.send(data_of(1, 0))
    assert served.heard()
    assert served.told(LOOK, OTHER).used == InUse(life=7, heard=1)
    clock.now_s += ACTIVITY_MS / 1_000 + 0.01
    assert served.told(LOOK, OTHER).used is None
    served.send(data_of(1, 1))
    assert served.told(LOOK, OTHER).used == InUse(life=7, heard=2)
    served.step(acts.Gone(link=SOURCE))
    assert served.told(LOOK, OTHER).used is None


def test_a_promise_to_another_does_not_end_it_but_an_admission_does(clock: Clock) -> None:
    served = Served(MemoryStore(clock=clock))
    source(served, life=7, epoch=1, link=SOURCE)
    source(served, life=8, epoch=2, link=OTHER)
    assert served.told(LOOK, OTHER).used == InUse(life=8)
    served.send(data_of(1, 0))
    assert served.told(LOOK, OTHER).used == InUse(life=8), "a former life is not heard"


def test_a_source_that_wants_no_time_is_never_in_the_way(clock: Clock) -> None:
    served = Served(MemoryStore(clock=clock))
    source(served, life=7, epoch=1, link=SOURCE)
    source(served, life=8, epoch=2, link=OTHER, activity_ms=0)
    assert served.told(LOOK, OTHER).used is None
