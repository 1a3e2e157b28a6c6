"""A new stream begins with a quorum, where a person chose that and no store knows of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Promised, Stage
from onceq.streams.model.ops import WaitUntil
from onceq.streams.model.options import Creation
from onceq.streams.source.creating import begun_by_quorum
from onceq.streams.source.epochs import Short, SourceLife
from onceq.streams.source.program import SendOn, live
from onceq.streams.source.recovering import Tried
from onceq.streams.store.noting_store import Noting
from tests.streams.source.towns import ABC, TIMING, S, Town, life


def by_quorum(number: int = 1) -> SourceLife:
    """A life by which a new stream may begin with a quorum."""
    return replace(life(number), creation=Creation.QUORUM)


def test_a_new_stream_begins_with_a_quorum_where_a_person_chose_that() -> None:
    town = Town()
    town.down = {"c"}
    assert isinstance(town.recover(life(1)), Short), "without the choice it waits"
    begun = town.begun(by_quorum(2))
    assert (begun.bridge.stage, begun.log.end) == (Stage.SETTLED, 0)
    assert begun.noted == dict.fromkeys("ab", Stage.SETTLED)
    town.send(0, "ab", epoch=begun.epoch, life=2)
    town.down = set()
    later = town.begun(life(3))
    assert (later.log.end, set(later.noted)) == (1, {"a", "b"})
    assert later.bridge.fillings == (("c", later.epoch),), "it may have promised more"


def test_one_store_is_no_quorum_that_a_stream_could_begin_with() -> None:
    town = Town()
    town.down = {"b", "c"}
    assert isinstance(town.recover(by_quorum()), Short)
    town.down = {"c"}

    def die(store: str, ask: asks.Ask) -> None:
        if store == "b" and isinstance(ask, asks.Admit):
            town.down = {"b", "c"}

    town.before = die
    assert isinstance(town.recover(by_quorum(2)), Tried), "two promised, and one has noted it"


def test_stores_that_keep_no_messages_are_no_quorum_that_a_stream_could_begin_with() -> None:
    town = Town()
    town.stores["b"].catalogue = Noting()
    town.down = {"c"}
    assert isinstance(town.recover(by_quorum()), Short)


def test_nothing_begins_anew_by_a_quorum_where_a_store_knows_the_stream(town: Town) -> None:
    """Two stores are wiped: the third is enough to tell that messages were sent."""
    town.wipe("a")
    town.wipe("b")
    told = town.recover(by_quorum(2))
    assert isinstance(told, Short)
    assert told.is_known
    has = {"a": Promised(), "b": Promised()}
    assert begun_by_quorum(ABC, has) is not None
    assert begun_by_quorum(ABC, {**has, "c": Promised(positions={"session 5": 1})}) is None


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("ask", [asks.Look, asks.Fence])
def test_what_a_store_told_once_counts_though_it_is_silent_then(
    town: Town, ask: type[asks.Ask], *, is_refused: bool
) -> None:
    """It answers one ask; then two wiped stores are all that answer, for as long as it takes.

    is_refused: when it answered, another one had promised more to another life.
    """
    town.wipe("a")
    town.wipe("b")
    before, rests, is_told = len(town.asked), 0, False

    def answer_once(_: str, asked: asks.Ask) -> None:
        nonlocal is_told
        town.down = set() if not rests and isinstance(asked, ask) else {"c"}
        if isinstance(asked, asks.Fence) and is_refused and not is_told:
            is_told = True
            town.answer("b", asks.Fence(stream=S, epoch=50, life=9, own=ABC))
            town.down = set() if isinstance(asked, ask) else {"c"}

    town.before = answer_once
    program = live(by_quorum(2), TIMING)
    op: Any = next(program)
    for _ in range(40):
        assert not isinstance(op, SendOn), "a stream that was known begins anew"
        rests += isinstance(op, WaitUntil)
        op = program.send(town.perform(op, ""))
    assert rests > 3
    asked = [ask for _, ask in town.asked[before:] if isinstance(ask, asks.Admit)]
    assert not asked, "nor is it tried"


def test_two_wiped_stores_and_a_silent_third_begin_anew_by_a_quorum(town: Town) -> None:
    """What the choice risks, and why it is none that is made for anybody."""
    town.wipe("a")
    town.wipe("b")
    town.down = {"c"}
    assert isinstance(town.recover(life(2)), Short)
    assert town.begun(by_quorum(3)).log.end == 0
