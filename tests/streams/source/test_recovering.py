"""A life of a source recovers: it looks, fences, chooses, and has stores admitted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.losses import acceptance
from onceq.streams.model.quorum import listed
from onceq.streams.source.epochs import Begun, Short, Succeeded, WhyEnded
from onceq.streams.source.program import Over, SendOn, live
from onceq.streams.source.recovering import Past, Tried, recover
from onceq.streams.store import catalogue
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.noting_store import Noting
from tests.streams.source.towns import ABC, TIMING, S, Town, life


def past(one: Begun, **given: Any) -> Past:
    """What a life did that sent in one epoch."""
    made = Past(stream=S, epochs=frozenset({one.epoch}), needed=one.bridge.lists, own=ABC)
    return replace(made, **given)


def test_a_new_stream_is_noted_twice_by_every_store() -> None:
    town = Town()
    begun = town.begun()
    assert (begun.stream, begun.epoch, begun.log.end) == (S, 1, 0)
    assert begun.bridge.stage is Stage.SETTLED
    assert begun.noted == dict.fromkeys("abc", Stage.SETTLED)
    for store in "abc":
        assert town.stages(store) == ["CREATING", "SETTLED"]


def test_no_identity_comes_again_though_all_stores_lost_a_stream() -> None:
    """Its id is the same: its epochs tell the new stream from the old one."""
    town = Town()
    assert town.begun(replace(life(1), born_s=1_000)).epoch == 1_000
    assert town.begun(replace(life(2), born_s=5_000)).epoch == 1_001, "it goes on"
    for store in "abc":
        town.wipe(store)
    begun = town.begun(replace(life(3), born_s=1_500))
    assert begun.bridge.firsts == ((1_500, 0),)
    for store in "abc":
        town.wipe(store)
    town.answer("b", asks.Fence(stream=S, epoch=2_000, life=9, own=ABC))
    assert town.begun(replace(life(4), born_s=1_500)).epoch == 2_001, "a clock may be slow"


@pytest.mark.parametrize("store", "abc")
def test_a_new_stream_waits_for_a_store_that_is_silent(store: str) -> None:
    town = Town()
    town.down = {store}
    assert town.recover() == Short(forgot=frozenset("abc") - {store}, silent=frozenset(store))
    town.down = set()
    assert town.begun(life(2)).epoch == 2


def test_a_creation_that_came_to_nothing_is_gone_on_with() -> None:
    town = Town()

    def die(store: str, ask: asks.Ask) -> None:
        if store == "c" and isinstance(ask, asks.Admit):
            town.down = {"c"}

    town.before = die
    assert town.recover() == Tried(stream=S, epoch=1)
    assert town.stages("a") == ["CREATING"]
    town.before, town.down = (lambda _, __: None), set()
    begun = town.begun(life(2))
    assert (begun.epoch, begun.bridge.firsts) == (2, ((2, 0),))


def test_a_creation_that_some_know_as_settled_is_an_empty_log() -> None:
    town = Town()

    def die(store: str, ask: asks.Ask) -> None:
        if store == "c" and isinstance(ask, asks.Admit) and ask.bridge.stage is Stage.SETTLED:
            town.down = {"c"}

    town.before = die
    assert isinstance(town.recover(), Tried)
    town.before = lambda _, __: None
    begun = town.begun(life(2))
    assert begun.bridge.firsts == ((1, 0), (2, 0))
    assert set(begun.noted) == {"a", "b"}


def test_the_greatest_log_is_chosen_and_the_others_copy_its_tail(town: Town) -> None:
    begun = town.begun(life(2))
    assert (begun.log.admitted, begun.log.end) == (1, 3)
    assert begun.bridge.firsts == ((1, 0), (2, 3))
    assert begun.donors == ("b", "c", "a")
    assert begun.seen == {"a": 2, "b": 3, "c": 3}
    for store in "abc":
        assert town.log(store) == ["1.0", "1.1", "1.2"]


def test_what_lies_beyond_the_chosen_log_is_cut(town: Town) -> None:
    town.down = {"b"}
    town.send(3, "c", epoch=1)
    town.send(4, "c", epoch=1)
    town.down = {"c"}
    begun = town.begun(life(2))
    assert begun.log.end == 3
    town.send(3, "ab", epoch=2, life=2)
    town.down = set()
    assert town.begun(life(3)).log.end == 4
    assert town.log("c") == ["1.0", "1.1", "1.2", "2.3"]


def test_a_greater_epoch_counts_more_than_a_longer_log(town: Town) -> None:
    for number in range(3, 9):
        town.send(number, "c", epoch=1)
    town.down = {"c"}
    town.begun(life(2))
    town.down = {"a"}
    assert town.begun(life(3)).log.end == 3


def test_what_comes_between_looking_and_fencing_counts(town: Town) -> None:
    def send(store: str, ask: asks.Ask) -> None:
        if isinstance(ask, asks.Fence) and store == "a":
            town.before = lambda _, __: None
            town.send(3, "bc", epoch=1)

    town.before = send
    assert town.begun(life(2)).log.end == 4


def test_what_comes_after_the_fence_is_refused(town: Town) -> None:
    town.begun(life(2))
    with pytest.raises(AssertionError, match="Refused"):
        town.send(3, "a", epoch=1)


def test_with_one_store_down_two_suffice(town: Town) -> None:
    town.down = {"a"}
    begun = town.begun(life(2))
    assert set(begun.noted) == {"b", "c"}
    assert begun.bridge.fillings == (("a", 2),), "nobody knows what it has"


def test_with_two_stores_down_a_source_waits(town: Town) -> None:
    town.down = {"a", "b"}
    rest = acceptance("2-3@1 a b")
    assert town.recover(life(2)) == Short(silent=frozenset("ab"), rest=rest, is_known=True)


def test_a_store_that_forgot_says_nothing_about_the_past(town: Town) -> None:
    town.wipe("c")
    town.down = {"b"}
    rest = acceptance("0-2@1 b c")
    short = Short(forgot=frozenset("c"), silent=frozenset("b"), rest=rest, is_known=True)
    assert town.recover(life(2)) == short
    town.down = set()
    begun = town.begun(life(3))
    assert begun.bridge.fillings == (("c", begun.epoch),)
    assert begun.log.end == 3


def test_a_store_that_forgot_is_admitted_last(town: Town) -> None:
    town.wipe("a")
    town.begun(life(2))
    admitted = [store for store, ask in town.asked if isinstance(ask, asks.Admit)]
    assert admitted == ["b", "c"]


def test_an_answer_from_before_a_filling_is_asked_for_anew(town: Town) -> None:
    """c was filled in an epoch that this life hears of only after c answered it."""
    town.wipe("c")
    filled = town.begun(life(2))
    assert filled.bridge.fillings == (("c", 2),)
    for order in (sorted, lambda stores: sorted(stores, reverse=True)):
        town.asked.clear()
        town.order = order
        town.begun(life(3))
        fences = [store for store, ask in town.asked if isinstance(ask, asks.Fence)]
        assert sorted(fences) == ["a", "b", "c", "c"]
        assert fences[-1] == "c"


def test_a_life_that_is_overtaken_looks_again(town: Town) -> None:
    def overtake(store: str, ask: asks.Ask) -> None:
        if isinstance(ask, asks.Fence) and store == "b":
            town.before = lambda _, __: None
            other = asks.Fence(stream=S, epoch=7, life=8, own=ABC)
            town.answer("b", other)

    town.before = overtake
    assert town.begun(life(2)).epoch == 8


def test_an_epoch_far_ahead_is_reached_at_once(town: Town) -> None:
    """It was promised by a store that a life hears of only when it fences."""
    town.stores["d"] = Town("d").stores["d"]
    town.begun(life(2, listed("b c d")))
    town.answer("d", asks.Fence(stream=S, epoch=50, life=9, own=ABC))
    assert town.begun(life(3)).epoch == 51


def test_a_source_is_succeeded_when_others_are_promised_more(town: Town) -> None:
    first = town.begun(life(2))
    own = life(2)
    town.answer("a", asks.Fence(stream=S, epoch=5, life=9, own=ABC))
    assert isinstance(town.begun(own, past(first)), Begun), "one alone may not have lasted"
    again = past(first, epochs=frozenset({6}))
    for store in "ab":
        town.answer(store, asks.Fence(stream=S, epoch=9, life=9, own=ABC))
    assert town.recover(own, again) == Succeeded(epoch=9)


def test_a_source_whose_epoch_is_not_the_last_is_succeeded(town: Town) -> None:
    first = town.begun(life(2))
    town.down = {"a"}
    town.begun(life(3))
    town.down = {"b"}
    assert town.recover(life(2), past(first)) == Succeeded(epoch=3)


def test_a_source_goes_on_with_what_it_tried_itself(town: Town) -> None:
    first = town.begun(life(2))

    def lose(_: str, ask: asks.Ask) -> None:
        if isinstance(ask, asks.Admit):
            town.down = {"b", "c"}

    town.before = lose
    tried = town.recover(life(2), past(first))
    assert tried == Tried(stream=S, epoch=3, is_known=True)
    town.before, town.down = (lambda _, __: None), set()
    assert isinstance(town.recover(life(2), past(first)), Succeeded)
    again = past(first, epochs=frozenset({2, 3}))
    assert town.begun(life(2), again).log.admitted == 3


def test_a_source_does_not_begin_anew_when_all_forgot(town: Town) -> None:
    first = town.begun(life(2))
    for store in "abc":
        town.wipe(store)
    assert town.recover(life(2), past(first)) == Short(forgot=frozenset("abc"))


def test_a_change_of_lists_begins_when_all_that_are_added_have_promised(town: Town) -> None:
    town.stores["d"] = Town("d").stores["d"]
    own = life(2, listed("b c d"))
    town.down = {"d"}
    begun = town.begun(own)
    assert (begun.bridge.stage, begun.bridge.lists) == (Stage.SETTLED, (ABC,))
    town.down = set()
    begun = town.begun(own)
    assert (begun.bridge.stage, begun.bridge.lists) == (Stage.JOINT, (ABC, own.own))
    assert begun.bridge.fillings == (("d", begun.epoch),)


def test_a_change_of_lists_begins_only_if_it_can_be_admitted() -> None:
    """Of the new list too few stores answer, and none is added: no epoch would begin with it."""
    old = listed("a b c; d e")
    town = Town("abcde")
    town.begun(life(1, old))
    town.down = {"e"}
    wanted = life(2, listed("d e"))
    begun = town.begun(wanted)
    assert (begun.bridge.stage, begun.bridge.lists) == (Stage.SETTLED, (old,))
    town.down = set()
    assert town.begun(wanted).bridge.stage is Stage.JOINT


def test_a_change_of_lists_that_was_not_admitted_is_left_out_of_the_next_try(town: Town) -> None:
    town.stores["d"] = Town("d").stores["d"]
    own = life(2, listed("a d"))

    def lose(store: str, ask: asks.Ask) -> None:
        if store == "d" and isinstance(ask, asks.Admit):
            town.down = {"d"}

    town.before = lose
    tried = town.recover(own)
    assert tried == Tried(stream=S, epoch=2, is_changing=True, is_known=True)
    town.before, town.down = (lambda _, __: None), set()
    begun = town.begun(own, Past(wanted=own.own, puts_off=True))
    assert (begun.bridge.stage, begun.bridge.lists) == (Stage.SETTLED, (ABC,))


def test_a_life_sends_though_a_change_of_lists_cannot_be_admitted(town: Town) -> None:
    """It never answers an admission: the change is tried again later, by an epoch that ends."""
    town.stores["d"] = Town("d").stores["d"]

    def lose(_: str, ask: asks.Ask) -> None:
        town.down = {"d"} if isinstance(ask, asks.Admit) else set()

    town.before = lose
    own = life(2, listed("a d"))
    program = live(own, TIMING)
    op: Any = next(program)
    while not isinstance(op, SendOn):
        op = program.send(town.perform(op, ""))
    assert op.begun.bridge.stage is Stage.SETTLED
    over = Over(why=WhyEnded.LIST_CHANGES, needed=(ABC,), wanted=own.own)
    town.before, town.down = (lambda _, __: None), set()
    op = program.send(over)
    while not isinstance(op, SendOn):
        op = program.send(town.perform(op, ""))
    assert op.begun.bridge.stage is Stage.JOINT, "it is not put off for ever"


def test_a_change_that_settles_needs_both_lists(town: Town) -> None:
    town.stores["d"] = Town("d").stores["d"]
    own = life(2, listed("b c d"))
    joint = town.begun(own)
    settling = replace(joint.bridge, stage=Stage.SETTLING)
    for store in "bc":
        ask = asks.Admit(stream=S, life=2, log=joint.log, bridge=settling)
        assert isinstance(town.answer(store, ask), asks.Holding)
    town.down = {"a", "b"}
    assert isinstance(town.recover(life(3, own.own)), Short), "of the old list only c answers"
    town.down = {"a"}
    begun = town.begun(life(4, own.own))
    assert begun.bridge.stage is Stage.SETTLING
    assert begun.bridge.lists == joint.bridge.lists


def test_a_change_that_came_to_nothing_holds_nobody_up(town: Town) -> None:
    town.stores |= Town("de").stores
    town.begun(life(2, listed("c d e")))
    town.down = {"d", "e"}
    assert town.begun(life(3)).bridge.lists == (ABC,)


class NotingMemory(MemoryStore):
    """A store that keeps no messages."""

    keeps = False
    _catalogue = Noting


def test_a_store_that_keeps_no_messages_makes_no_log_stable() -> None:
    """All below the end of the chosen log is stable from then on: a stable set must have it."""
    town = Town("abcn")
    town.stores["n"] = NotingMemory()
    own = listed("a b c n")
    assert set(town.begun(life(1, own)).noted) == {*"abcn"}
    town.send(0, "a", epoch=1)

    def lose(_: str, ask: asks.Ask) -> None:
        if isinstance(ask, asks.Admit):
            town.down = {"c"}

    town.before = lose
    assert town.recover(life(2, own)) == Tried(stream=S, epoch=2, is_known=True)
    assert town.stages("n")[2:], "it noted the stage"
    town.before, town.down = (lambda _, __: None), set()
    begun = town.begun(life(3, own))
    assert begun.ends == dict.fromkeys("abc", 1)


def test_an_admission_waits_for_who_may_be_admitted_though_others_cannot(town: Town) -> None:
    """Whoever has not answered when that is enough is cut off."""
    program = recover(life(2), Past(wanted=ABC), TIMING)
    op: Any = next(program)
    while not isinstance(op.asked["b"], asks.Admit):
        op = program.send(town.perform(op, ""))
    holding, lacking = asks.Holding(epoch=2, end=3), asks.Lacking(begin=2, end=3)
    assert not op.enough({"a": lacking, "b": holding})
    assert not op.enough({"a": asks.Noted(epoch=2), "b": holding})
    assert op.enough({"a": lacking, "b": holding, "c": holding})
    assert op.enough({"b": holding, "c": holding})


def test_a_store_that_has_no_room_for_a_promise_is_told_apart(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.wipe("c")
    monkeypatch.setattr(catalogue, "STREAMS_MAX", 0)
    begun = town.begun(life(2))
    assert begun.unable == {"c"}
    assert begun.noted.keys() == {"a", "b"}
    fences = [store for store, ask in town.asked if isinstance(ask, asks.Fence)]
    assert fences == ["a", "b", "c"], "it is asked once"


def test_positions_of_receivers_go_with_the_log(town: Town) -> None:
    ask = asks.Register(stream=S, epoch=1, topic="t", session=5, below=1)
    assert isinstance(town.answer("b", ask), asks.Registered)
    assert town.begun(life(2)).log.positions == {"session 5": 1}
    assert town.stores["a"].catalogue.of(S).positions == {"session 5": 1}
