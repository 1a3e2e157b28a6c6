"""A store copies a stream for one admission at a time: two lives of a source may ask at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.ops import FetchRange
from onceq.streams.model.states import may_copy
from onceq.streams.store import acts
from onceq.streams.store.memory_store import MemoryStore
from tests.streams.store.served import OTHER, SOURCE, Served, fence
from tests.streams.store.test_disk_store import S, admission, data_of

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture
def served() -> Served:
    """A store that holds number 0, of epoch 1."""
    made = Served(MemoryStore())
    made.begin()
    made.send(data_of(1, 0))
    made.heard()
    return made


def copying(epoch: int, life: int) -> asks.Admit:
    """An admission for which the store copies 1 and 2, which were sent in epoch 2."""
    firsts = ((1, 0), (2, 1))
    return replace(admission(epoch, life, end=3, firsts=firsts), donors=("b",))


def give(served: Served, asked: acts.Ask, numbers: Iterable[int] = (1, 2)) -> None:
    copies = tuple(data_of(2, number) for number in numbers)
    served.step(acts.Answered(program=asked.program, answer=copies))


@pytest.mark.parametrize(("epoch", "copying", "may"), [(8, 9, False), (9, 9, True), (9, 8, True)])
def test_the_greater_epoch_copies(epoch: int, copying: int, *, may: bool) -> None:
    assert may_copy(epoch, copying) is may


def test_a_promise_ends_the_admission_that_copies(served: Served) -> None:
    served.ask(copying(8, 5))
    (first,) = served.asked
    assert isinstance(served.told(fence(9, life=6), OTHER), asks.Found)
    assert served.dropped == [first.program]
    assert served.heard() == [asks.Refused(promised=9)]
    served.ask(copying(9, 6), OTHER)
    second = served.asked[-1]
    give(served, first)
    assert served.heard() == [], "its answer was given"
    give(served, second)
    assert served.heard(OTHER) == [asks.Holding(epoch=9, end=3, regid=1)]


def test_a_promise_of_less_ends_none(served: Served) -> None:
    served.ask(copying(8, 5))
    assert isinstance(served.told(fence(3, life=6), OTHER), asks.Found)
    assert served.dropped == []
    give(served, served.asked[0])
    assert served.heard() == [asks.Holding(epoch=8, end=3, regid=1)]


def test_an_admission_to_more_ends_the_one_that_copies(served: Served) -> None:
    served.ask(copying(8, 5))
    served.ask(copying(9, 6), OTHER)
    first, second = served.asked
    assert served.dropped == [first.program]
    assert served.heard() == [asks.Lacking(begin=0, end=3)]
    give(served, second)
    assert served.heard(OTHER) == [asks.Holding(epoch=9, end=3, regid=1)]
    numbers = asks.Fetch(stream=S, begin=0, end=9)
    served.ask(numbers)
    assert served.heard() == [asks.Range(begin=0, end=3, frames=3), 0, 1, 2]


def test_an_admission_to_less_waits_for_none(served: Served) -> None:
    served.ask(copying(9, 6), OTHER)
    served.ask(copying(8, 5))
    assert served.heard() == [asks.Lacking(begin=1, end=3)]
    assert served.dropped == []
    give(served, served.asked[0])
    assert served.heard(OTHER) == [asks.Holding(epoch=9, end=3, regid=1)]


def test_what_was_copied_for_an_admission_that_came_to_nothing_is_not_copied_again(
    served: Served,
) -> None:
    """Otherwise a store that has more to copy than is waited for would never be admitted."""
    served.ask(copying(8, 5))
    give(served, served.asked[0], (1,))
    served.step(acts.Gone(link=SOURCE))
    served.ask(copying(9, 6), OTHER)
    fetch = served.asked[-1]
    assert isinstance(fetch.op, FetchRange)
    assert (fetch.op.ask.begin, fetch.op.ask.end) == (2, 3)
    give(served, fetch, (2,))
    assert served.heard(OTHER) == [asks.Holding(epoch=9, end=3, regid=1)]
    served.ask(asks.Fetch(stream=S, begin=0, end=9), OTHER)
    assert served.heard(OTHER) == [asks.Range(begin=0, end=3, frames=3), 0, 1, 2]


def test_copies_of_another_log_are_no_beginning(served: Served) -> None:
    served.ask(copying(8, 5))
    give(served, served.asked[0], (1,))
    served.step(acts.Gone(link=SOURCE))
    other = replace(admission(9, 6, end=3, firsts=((1, 0), (3, 1))), donors=("b",))
    served.ask(other, OTHER)
    fetch = served.asked[-1]
    assert isinstance(fetch.op, FetchRange)
    assert fetch.op.ask.begin == 1


def test_a_life_that_asks_again_is_copied_for_on_its_new_link(served: Served) -> None:
    """Its first link is lost, and the store has not noticed."""
    served.ask(copying(8, 5))
    served.ask(copying(8, 5), OTHER)
    first, second = served.asked
    assert served.dropped == [first.program]
    give(served, second)
    assert served.heard(OTHER) == [asks.Holding(epoch=8, end=3, regid=1)]
    served.step(acts.Gone(link=SOURCE))
    assert served.dropped == [first.program]
